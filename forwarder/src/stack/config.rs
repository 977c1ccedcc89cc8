//! The value of `stack=`: which port has which addresses.

use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{IpAddress, IpCidr};

use crate::verdict::PortId;

/// The most addresses that a port can be given. One more is kept for the link-local address that IPv6 needs.
pub const MAX_ADDRESSES: usize = super::filter::MAX_ADDRESSES - 1;

/// What a value of `stack=` may look like, for messages.
pub const ALLOWED: &str =
    "none, or a list of [PORT@]ADDRESS/PREFIX with commas between, e.g. 192.0.2.1/24,1@2001:db8::1/64";

/// One address of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortAddress {
    /// The port.
    pub port: PortId,
    /// The address, and how much of it names the network that the port is on.
    pub address: IpCidr,
}

/// The addresses of all ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StackSetting {
    entries: Vec<PortAddress>,
}

impl StackSetting {
    /// Whether no port has an address, so that there is no stack at all.
    pub fn is_none(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every address, in the order in which they were written.
    pub fn entries(&self) -> &[PortAddress] {
        &self.entries
    }

    /// The addresses of `port`; none where it has no stack.
    pub fn addresses(&self, port: PortId) -> impl Iterator<Item = IpCidr> {
        self.entries.iter().filter(move |entry| entry.port == port).map(|entry| entry.address)
    }
}

/// What is wrong with an item of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing stands between two commas.
    Empty,
    /// What stands before the `@` is not a number from 0 to 65535.
    Port,
    /// There is no `/PREFIX`.
    NoPrefix,
    /// Neither an IPv4 nor an IPv6 address.
    Address,
    /// The prefix is not a number from 0 to 32 for IPv4, or to 128 for IPv6.
    Prefix,
    /// No host may have this address: it is multicast, unspecified, loopback, or names a whole network.
    NotAHost,
    /// The port has this address already.
    Twice,
    /// The port has [`MAX_ADDRESSES`] already.
    TooMany,
}

/// Why a value of `stack=` was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackError {
    /// The item of the list, counted from 1.
    pub item: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {}: ", self.item)?;
        match self.fault {
            Fault::Empty => f.write_str("it is empty"),
            Fault::Port => f.write_str("the port is not a number from 0 to 65535"),
            Fault::NoPrefix => f.write_str("it has no /PREFIX"),
            Fault::Address => f.write_str("neither an IPv4 nor an IPv6 address"),
            Fault::Prefix => f.write_str("the prefix is not a number from 0 to 32 (IPv4) or 128 (IPv6)"),
            Fault::NotAHost => f.write_str("no host can have this address"),
            Fault::Twice => f.write_str("the port has this address already"),
            Fault::TooMany => write!(f, "the port has {MAX_ADDRESSES} addresses already"),
        }
    }
}

impl core::error::Error for StackError {}

/// Reads the value of `stack=`: `none`, or `[PORT@]ADDRESS/PREFIX` items with commas between. The port is 0 where it
/// is not said. Whether a port exists is known only later, to whoever has the ports.
pub fn parse(value: &str) -> Result<StackSetting, StackError> {
    let mut setting = StackSetting::default();
    if value == "none" {
        return Ok(setting);
    }
    for (index, text) in value.split(',').enumerate() {
        let refuse = |fault| StackError { item: index + 1, fault };
        let entry = parse_item(text).map_err(refuse)?;
        if setting.addresses(entry.port).any(|cidr| cidr.address() == entry.address.address()) {
            return Err(refuse(Fault::Twice));
        }
        if setting.addresses(entry.port).count() == MAX_ADDRESSES {
            return Err(refuse(Fault::TooMany));
        }
        setting.entries.push(entry);
    }
    Ok(setting)
}

fn parse_item(text: &str) -> Result<PortAddress, Fault> {
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let (port, network) = text.split_once('@').unwrap_or(("0", text));
    let port = PortId(number(port).ok_or(Fault::Port)?);
    let (address, prefix) = network.split_once('/').ok_or(Fault::NoPrefix)?;
    let (address, bits) = if let Ok(address) = address.parse::<Ipv4Addr>() {
        (IpAddress::Ipv4(address), 32)
    } else if let Ok(address) = address.parse::<Ipv6Addr>() {
        (IpAddress::Ipv6(address), 128)
    } else {
        return Err(Fault::Address);
    };
    let prefix = number(prefix).and_then(|prefix| u8::try_from(prefix).ok());
    let prefix = prefix.filter(|&prefix| prefix <= bits).ok_or(Fault::Prefix)?;
    let address = IpCidr::new(address, prefix);
    if is_host(&address) { Ok(PortAddress { port, address }) } else { Err(Fault::NotAHost) }
}

/// A decimal number without a sign, which `str::parse` would let through.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Whether an interface can have this address.
pub(super) fn is_host(cidr: &IpCidr) -> bool {
    match cidr {
        IpCidr::Ipv4(cidr) => {
            let address = cidr.address();
            // On a network with broadcasts its first and its last address are no host's (RFC 1122, 3.2.1.3);
            // networks of two addresses or one have none (RFC 3021).
            let whole_network = cidr.prefix_len() < 31
                && (address == cidr.network().address() || Some(address) == cidr.broadcast());
            !whole_network
                && !address.is_unspecified()
                && !address.is_loopback()
                && address.octets()[0] < 224
                && address.octets()[0] != 0
        }
        IpCidr::Ipv6(cidr) => {
            let address = cidr.address();
            !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && address.to_ipv4_mapped().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn entry(port: u16, address: &str, prefix: u8) -> PortAddress {
        PortAddress { port: PortId(port), address: IpCidr::new(address.parse().expect("an address"), prefix) }
    }

    #[test]
    fn a_list_names_ports_and_addresses() {
        let setting = parse("192.0.2.1/24,1@2001:db8::1/64,1@198.51.100.7/31,0@fe80::1/64").expect("valid");
        assert_eq!(
            setting.entries(),
            [
                entry(0, "192.0.2.1", 24),
                entry(1, "2001:db8::1", 64),
                entry(1, "198.51.100.7", 31),
                entry(0, "fe80::1", 64)
            ]
        );
        let of_port_1: Vec<IpCidr> = setting.addresses(PortId(1)).collect();
        assert_eq!(
            of_port_1,
            vec![entry(1, "2001:db8::1", 64).address, entry(1, "198.51.100.7", 31).address]
        );
        assert_eq!(setting.addresses(PortId(2)).count(), 0);
    }

    #[test]
    fn none_is_no_stack() {
        assert!(parse("none").expect("valid").is_none());
        assert!(!parse("192.0.2.1/24").expect("valid").is_none());
    }

    #[test]
    fn every_fault_names_its_item() {
        for (value, item, fault) in [
            ("", 1, Fault::Empty),
            ("192.0.2.1/24,", 2, Fault::Empty),
            ("x@192.0.2.1/24", 1, Fault::Port),
            ("@192.0.2.1/24", 1, Fault::Port),
            ("+1@192.0.2.1/24", 1, Fault::Port),
            ("65536@192.0.2.1/24", 1, Fault::Port),
            ("192.0.2.1", 1, Fault::NoPrefix),
            ("none,192.0.2.1/24", 1, Fault::NoPrefix),
            ("192.0.2.1/24,192.0.2/24", 2, Fault::Address),
            ("192.0.2.256/24", 1, Fault::Address),
            ("2001:db8::g/64", 1, Fault::Address),
            ("192.0.2.1/33", 1, Fault::Prefix),
            ("192.0.2.1/", 1, Fault::Prefix),
            ("192.0.2.1/+8", 1, Fault::Prefix),
            ("2001:db8::1/129", 1, Fault::Prefix),
            ("224.0.0.1/24", 1, Fault::NotAHost),
            ("255.255.255.255/32", 1, Fault::NotAHost),
            ("0.0.0.0/8", 1, Fault::NotAHost),
            ("127.0.0.1/8", 1, Fault::NotAHost),
            ("192.0.2.0/24", 1, Fault::NotAHost),
            ("192.0.2.255/24", 1, Fault::NotAHost),
            ("::/64", 1, Fault::NotAHost),
            ("::1/128", 1, Fault::NotAHost),
            ("ff02::1/64", 1, Fault::NotAHost),
            ("::ffff:192.0.2.1/96", 1, Fault::NotAHost),
            ("192.0.2.1/24,1@192.0.2.1/24,0@192.0.2.1/16", 3, Fault::Twice),
        ] {
            assert_eq!(parse(value), Err(StackError { item, fault }), "{value}");
        }
    }

    #[test]
    fn a_port_holds_so_many_addresses() {
        let list = |count: usize| {
            let items: Vec<String> = (1..=count).map(|host| format!("192.0.2.{host}/24")).collect();
            items.join(",")
        };
        assert!(parse(&list(MAX_ADDRESSES)).is_ok());
        let error = parse(&list(MAX_ADDRESSES + 1)).expect_err("too many");
        assert_eq!(error, StackError { item: MAX_ADDRESSES + 1, fault: Fault::TooMany });
        assert_eq!(error.to_string(), format!("item 8: the port has {MAX_ADDRESSES} addresses already"));
    }

    proptest! {
        #[test]
        fn whatever_is_typed_gets_an_answer(value in "[0-9a-f@:./,x]{0,40}") {
            match parse(&value) {
                Ok(setting) => prop_assert!(!setting.is_none()),
                Err(error) => prop_assert!((1..=value.split(',').count()).contains(&error.item)),
            }
        }

        #[test]
        fn what_is_written_is_read(port in 0..4u16, bits in any::<u32>(), prefix in 0..=32u8) {
            let address = Ipv4Addr::from_bits(bits);
            let cidr = IpCidr::new(IpAddress::Ipv4(address), prefix);
            match parse(&format!("{port}@{cidr}")) {
                Ok(setting) => {
                    prop_assert_eq!(setting.entries(), [PortAddress { port: PortId(port), address: cidr }]);
                }
                Err(error) => prop_assert_eq!(error.fault, Fault::NotAHost),
            }
        }
    }
}

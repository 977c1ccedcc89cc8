//! What a stack is made of, and what it can't be made of.

use core::fmt;

use arrayvec::ArrayVec;
use netdrv::device::Mac;
use smoltcp::wire::{EthernetAddress, IPV6_MIN_MTU, IpCidr, Ipv6Address, Ipv6Cidr};

use super::config::{self, MAX_ADDRESSES};
use super::filter;

/// The smallest MTU that a host must be able to use (RFC 791, 3.2).
const IPV4_MIN_MTU: u16 = 576;

/// The network of addresses that are good on one link only (RFC 4291, 2.5.6).
const LINK_LOCAL: Ipv6Cidr = Ipv6Cidr::new(Ipv6Address::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 64);

/// The addresses of an interface.
pub(super) type Addresses = ArrayVec<IpCidr, { filter::MAX_ADDRESSES }>;

/// What a stack is made of.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig<'a> {
    /// The port's station address.
    pub mac: Mac,
    /// The port's MTU in bytes: the longest IP packet. What is more than a buffer holds is not used.
    pub mtu: u16,
    /// The port's addresses, one to [`MAX_ADDRESSES`]. Where there are IPv6 ones and none is link-local, one made of the
    /// MAC is added.
    pub addresses: &'a [IpCidr],
    /// Different at every start, so that sequence numbers and ports are not those of the last one.
    pub seed: u64,
}

/// Why a stack could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// The MAC is a group's.
    Mac(Mac),
    /// There is no address, or there are more than [`MAX_ADDRESSES`].
    Count(usize),
    /// No interface can have this address.
    NotAHost(IpCidr),
    /// The MTU is below what the family of an address needs.
    Mtu {
        /// What the port has, in bytes.
        given: u16,
        /// What is needed.
        needed: u16,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Mac(mac) => write!(f, "{mac} is no station's address"),
            SetupError::Count(count) => write!(f, "{count} addresses, where 1 to {MAX_ADDRESSES} can be"),
            SetupError::NotAHost(address) => write!(f, "no host can have the address {address}"),
            SetupError::Mtu { given, needed } => {
                write!(f, "an MTU of {given} bytes, where {needed} are needed")
            }
        }
    }
}

impl core::error::Error for SetupError {}

impl StackConfig<'_> {
    /// The addresses of the interface: those given, and the link-local one that IPv6 needs (RFC 4291, 2.8).
    pub(super) fn checked_addresses(&self) -> Result<Addresses, SetupError> {
        let station = EthernetAddress(self.mac.0);
        if !station.is_unicast() {
            return Err(SetupError::Mac(self.mac));
        }
        if !(1..=MAX_ADDRESSES).contains(&self.addresses.len()) {
            return Err(SetupError::Count(self.addresses.len()));
        }
        if let Some(&address) = self.addresses.iter().find(|address| !config::is_host(address)) {
            return Err(SetupError::NotAHost(address));
        }
        let mut ipv6 = self.addresses.iter().filter_map(ipv6_of).peekable();
        let needed = if ipv6.peek().is_some() { IPV6_MIN_MTU as u16 } else { IPV4_MIN_MTU };
        if self.mtu < needed {
            return Err(SetupError::Mtu { given: self.mtu, needed });
        }
        let mut addresses: Addresses = self.addresses.iter().copied().collect();
        if ipv6.peek().is_some() && !ipv6.any(|address| address.is_unicast_link_local()) {
            addresses.extend(Ipv6Cidr::from_link_prefix(&LINK_LOCAL, station.into()).map(IpCidr::Ipv6));
        }
        Ok(addresses)
    }
}

/// The address, if it is IPv6.
pub(super) fn ipv6_of(cidr: &IpCidr) -> Option<Ipv6Address> {
    match cidr {
        IpCidr::Ipv6(cidr) => Some(cidr.address()),
        IpCidr::Ipv4(_) => None,
    }
}

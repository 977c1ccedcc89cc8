//! Addresses that another station may have: asking whether one has ours, and telling those who ask that we have it.
//!
//! IPv6 wants every address probed before it is used (RFC 4862, 5.4). This is done the optimistic way (RFC 4429): an
//! address answers from the first moment, and is given up if somebody claims it while the probe is out. A port is thus
//! reachable at once. smoltcp itself neither probes nor answers the probes of others.

use arrayvec::ArrayVec;
use netdrv::device::Mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol,
    IPV6_LINK_LOCAL_ALL_NODES, Icmpv6Packet, Icmpv6Repr, IpAddress, IpCidr, IpProtocol, Ipv4Address,
    Ipv6Address, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
};

use super::device::StackDevice;
use super::filter::MAX_ADDRESSES;

/// How long a probe waits for an objection (`RetransTimer`, RFC 4861, 10).
const PROBE_TIME: Duration = Duration::from_secs(1);

/// The IPv6 addresses that somebody may still object to.
#[derive(Debug)]
pub(super) struct Tentative {
    addresses: ArrayVec<Probe, MAX_ADDRESSES>,
}

#[derive(Debug)]
struct Probe {
    address: Ipv6Address,
    /// When the address is ours for good; `None` before the probe is out.
    settled_at: Option<Instant>,
}

impl Tentative {
    /// The IPv6 ones of an interface's addresses, none of them probed yet.
    pub(super) fn new(addresses: &ArrayVec<IpCidr, MAX_ADDRESSES>) -> Tentative {
        let probes = addresses.iter().filter_map(|cidr| match cidr.address() {
            IpAddress::Ipv6(address) => Some(Probe { address, settled_at: None }),
            IpAddress::Ipv4(_) => None,
        });
        Tentative { addresses: probes.collect() }
    }

    pub(super) fn contains(&self, address: IpAddress) -> bool {
        self.addresses.iter().any(|probe| IpAddress::Ipv6(probe.address) == address)
    }

    pub(super) fn remove(&mut self, address: IpAddress) {
        self.addresses.retain(|probe| IpAddress::Ipv6(probe.address) != address);
    }

    /// Sends the probes that are not out yet, as far as there is room, and settles addresses whose time is over.
    pub(super) fn poll(&mut self, now: Instant, mac: Mac, device: &mut StackDevice<'_>) {
        self.addresses.retain(|probe| probe.settled_at.is_none_or(|settled_at| now < settled_at));
        for probe in self.addresses.iter_mut().filter(|probe| probe.settled_at.is_none()) {
            if send_probe(mac, probe.address, device) {
                probe.settled_at = Some(now + PROBE_TIME);
            }
        }
    }

    /// When [`poll`](Self::poll) has something to do; the beginning of time where it has that now.
    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.addresses.iter().map(|probe| probe.settled_at.unwrap_or(Instant::ZERO)).min()
    }
}

/// Asks for `address`, from no address (RFC 4862, 5.4.2). Says whether there was room for the question.
fn send_probe(mac: Mac, address: Ipv6Address, device: &mut StackDevice<'_>) -> bool {
    let question = NdiscRepr::NeighborSolicit { target_addr: address, lladdr: None };
    send_ndisc(mac, Ipv6Address::UNSPECIFIED, solicited_node(address), question, device)
}

/// Tells the `station` that asks for `address` that it is ours.
pub(super) fn defend(
    mac: Mac,
    address: IpAddress,
    station: EthernetAddress,
    device: &mut StackDevice<'_>,
) -> bool {
    match address {
        IpAddress::Ipv4(address) => defend_ipv4(mac, address, station, device),
        IpAddress::Ipv6(address) => defend_ipv6(mac, address, device),
    }
}

/// RFC 5227, 2.1.1.
fn defend_ipv4(
    mac: Mac,
    address: Ipv4Address,
    station: EthernetAddress,
    device: &mut StackDevice<'_>,
) -> bool {
    let answer = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(mac.0),
        source_protocol_addr: address,
        target_hardware_addr: station,
        target_protocol_addr: Ipv4Address::UNSPECIFIED,
    };
    device.send(ETHERNET_HEADER_LEN + answer.buffer_len(), |bytes| {
        let payload = write_ethernet(bytes, mac, station, EthernetProtocol::Arp);
        answer.emit(&mut ArpPacket::new_unchecked(payload));
    })
}

/// All nodes are told: who asks from no address can't be told alone (RFC 4861, 7.2.4).
fn defend_ipv6(mac: Mac, address: Ipv6Address, device: &mut StackDevice<'_>) -> bool {
    let answer = NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE,
        target_addr: address,
        lladdr: Some(EthernetAddress(mac.0).into()),
    };
    send_ndisc(mac, address, IPV6_LINK_LOCAL_ALL_NODES, answer, device)
}

fn send_ndisc(
    mac: Mac,
    source: Ipv6Address,
    target: Ipv6Address,
    message: NdiscRepr<'_>,
    device: &mut StackDevice<'_>,
) -> bool {
    let message = Icmpv6Repr::Ndisc(message);
    let header = Ipv6Repr {
        src_addr: source,
        dst_addr: target,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: 255,
    };
    let length = ETHERNET_HEADER_LEN + header.buffer_len() + message.buffer_len();
    device.send(length, |bytes| {
        let payload = write_ethernet(bytes, mac, group_station(target), EthernetProtocol::Ipv6);
        let mut packet = Ipv6Packet::new_unchecked(payload);
        header.emit(&mut packet);
        let mut packet = Icmpv6Packet::new_unchecked(packet.payload_mut());
        message.emit(&source, &target, &mut packet, &ChecksumCapabilities::default());
    })
}

fn write_ethernet(
    bytes: &mut [u8],
    mac: Mac,
    target: EthernetAddress,
    protocol: EthernetProtocol,
) -> &mut [u8] {
    let mut frame = EthernetFrame::new_unchecked(&mut *bytes);
    frame.set_src_addr(EthernetAddress(mac.0));
    frame.set_dst_addr(target);
    frame.set_ethertype(protocol);
    &mut bytes[ETHERNET_HEADER_LEN..]
}

/// The group that a neighbour is asked for in (RFC 4291, 2.7.1).
fn solicited_node(address: Ipv6Address) -> Ipv6Address {
    let [.., a, b, c] = address.octets();
    Ipv6Address::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// The Ethernet address of an IPv6 group (RFC 2464, 7).
fn group_station(group: Ipv6Address) -> EthernetAddress {
    let [.., a, b, c, d] = group.octets();
    EthernetAddress([0x33, 0x33, a, b, c, d])
}

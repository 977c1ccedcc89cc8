//! Addresses that another station may have: asking whether one has ours, and telling those who ask that we have it.
//!
//! IPv6 wants every address probed before it is used (RFC 4862, 5.4). This is done the optimistic way (RFC 4429): an
//! address answers from the first moment, and is given up if somebody claims it while the probe is out. A port is thus
//! reachable at once. smoltcp itself neither probes nor answers the probes of others.

use arrayvec::ArrayVec;
use netdrv::device::Mac;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    ArpOperation, ArpRepr, EthernetAddress, IPV6_LINK_LOCAL_ALL_NODES, IpAddress, Ipv4Address, Ipv6Address,
    NdiscNeighborFlags, NdiscRepr,
};

use super::device::StackDevice;
use super::filter::MAX_ADDRESSES;
use super::frames::{Stations, arp_len, ndisc_len, write_arp, write_ndisc};
use super::setup::{Addresses, ipv6_of};

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
    pub(super) fn new(addresses: &Addresses) -> Tentative {
        let probes = addresses.iter().filter_map(ipv6_of).map(|address| Probe { address, settled_at: None });
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

/// Tells the `station` that asks for `address` that it is ours. Says whether there was room for the answer.
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
    let stations = Stations { from: EthernetAddress(mac.0), to: station };
    let answer = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: stations.from,
        source_protocol_addr: address,
        target_hardware_addr: stations.to,
        target_protocol_addr: Ipv4Address::UNSPECIFIED,
    };
    device.send(arp_len(&answer), |bytes| write_arp(bytes, stations, &answer))
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

/// Sends `message` to the group `target`.
fn send_ndisc(
    mac: Mac,
    source: Ipv6Address,
    target: Ipv6Address,
    message: NdiscRepr<'_>,
    device: &mut StackDevice<'_>,
) -> bool {
    let stations = Stations { from: EthernetAddress(mac.0), to: group_station(target) };
    device.send(ndisc_len(message), |bytes| write_ndisc(bytes, stations, source, target, message))
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

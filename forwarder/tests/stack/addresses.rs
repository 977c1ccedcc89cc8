//! Who has an address: telling who asks, and asking oneself.

use forwarder::stack::{Duration, StackDrop};
use netdrv::device::Mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, Icmpv6Packet, Icmpv6Repr, IpAddress,
    Ipv6Address, Ipv6Packet, NdiscNeighborFlags, NdiscRepr,
};

use crate::answers::ping;
use crate::craft::{NO_ADDRESS, Route, broadcast, duplicate_probe, solicited_node};
use crate::rig::{PEER_IPV4, PEER_IPV6, PEER_MAC, Rig, STACK_IPV4, STACK_IPV6, STACK_LINK_LOCAL, STACK_MAC};

const IPV4: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };
const IPV6: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV6, target: STACK_IPV6 };
const OTHER_MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 9]);

/// The neighbour's message that a frame of the stack's carries, with its addresses.
fn ndisc_of(frame: &[u8]) -> (EthernetAddress, Ipv6Address, Ipv6Address, NdiscRepr<'_>) {
    let frame = EthernetFrame::new_checked(frame).expect("a frame");
    assert_eq!(frame.src_addr(), EthernetAddress(STACK_MAC.0));
    let packet = Ipv6Packet::new_checked(frame.payload()).expect("a packet");
    assert_eq!(packet.hop_limit(), 255);
    let (source, target) = (packet.src_addr(), packet.dst_addr());
    let message = Icmpv6Packet::new_checked(packet.payload()).expect("a message");
    match Icmpv6Repr::parse(&source, &target, &message, &ChecksumCapabilities::default()).expect("sound") {
        Icmpv6Repr::Ndisc(message) => (frame.dst_addr(), source, target, message),
        other => panic!("{other:?}"),
    }
}

fn ipv6(address: IpAddress) -> Ipv6Address {
    match address {
        IpAddress::Ipv6(address) => address,
        IpAddress::Ipv4(_) => panic!("an IPv6 address is needed"),
    }
}

/// An advertisement to all nodes, from `source`, that `address` is another station's.
pub(crate) fn claim(source: IpAddress, address: IpAddress) -> Vec<u8> {
    let message = NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE,
        target_addr: ipv6(address),
        lladdr: Some(EthernetAddress(OTHER_MAC.0).into()),
    };
    let to = Mac([0x33, 0x33, 0, 0, 0, 1]);
    let target = IpAddress::v6(0xff02, 0, 0, 0, 0, 0, 0, 1);
    Route { from: OTHER_MAC, to, source, target }.icmpv6(255, Icmpv6Repr::Ndisc(message))
}

#[test]
fn an_address_is_told_to_who_asks_for_it() {
    let mut rig = Rig::settled();
    for (source, target_protocol) in [(PEER_IPV4, PEER_IPV4), (NO_ADDRESS, NO_ADDRESS)] {
        let answers = rig.ask(&Route { to: broadcast(), source, ..IPV4 }.arp(ArpOperation::Request));
        let frame = EthernetFrame::new_checked(&answers[0]).expect("a frame");
        let packet = ArpPacket::new_checked(frame.payload()).expect("a packet");
        let ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr,
            source_protocol_addr,
            target_hardware_addr,
            target_protocol_addr,
        } = ArpRepr::parse(&packet).expect("sound")
        else {
            panic!("a reply is due")
        };
        assert_eq!(source_hardware_addr.0, STACK_MAC.0);
        assert_eq!(IpAddress::from(source_protocol_addr), STACK_IPV4);
        assert_eq!(target_hardware_addr.0, PEER_MAC.0);
        assert_eq!(IpAddress::from(target_protocol_addr), target_protocol);
        assert_eq!((frame.dst_addr().0, answers.len()), (PEER_MAC.0, 1));
    }
    rig.finish();
}

#[test]
fn a_neighbour_is_told_and_so_is_who_would_take_the_address() {
    let mut rig = Rig::settled();
    for address in [STACK_IPV6, STACK_LINK_LOCAL] {
        let (to, group) = solicited_node(address);
        let question = NdiscRepr::NeighborSolicit {
            target_addr: ipv6(address),
            lladdr: Some(EthernetAddress(PEER_MAC.0).into()),
        };
        let route = Route { to, target: group, ..IPV6 };
        let answers = rig.ask(&route.icmpv6(255, Icmpv6Repr::Ndisc(question)));
        let (station, source, target, message) = ndisc_of(&answers[0]);
        assert_eq!((station.0, source, target), (PEER_MAC.0, ipv6(address), ipv6(PEER_IPV6)));
        assert!(
            matches!(message, NdiscRepr::NeighborAdvert { target_addr, .. } if target_addr == ipv6(address))
        );

        let answers = rig.ask(&duplicate_probe(OTHER_MAC, address));
        let (station, source, target, message) = ndisc_of(&answers[0]);
        assert_eq!((station.0, source), ([0x33, 0x33, 0, 0, 0, 1], ipv6(address)));
        assert_eq!(target, Ipv6Address::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
        let expected = NdiscRepr::NeighborAdvert {
            flags: NdiscNeighborFlags::OVERRIDE,
            target_addr: ipv6(address),
            lladdr: Some(EthernetAddress(STACK_MAC.0).into()),
        };
        assert_eq!(message, expected);
    }
    assert_eq!(rig.stack.counters().conflicts, 0);
    rig.finish();
}

#[test]
fn every_ipv6_address_is_probed_once() {
    let mut rig = Rig::new();
    let mut probed = Vec::new();
    let end = rig.now + Duration::from_secs(10);
    while rig.now < end {
        rig.step();
        for frame in &rig.sent {
            let (station, source, target, message) = ndisc_of(frame);
            let NdiscRepr::NeighborSolicit { target_addr, lladdr: None } = message else {
                panic!("{message:?}")
            };
            let (mac, group) = solicited_node(target_addr.into());
            assert_eq!((station.0, IpAddress::from(target)), (mac.0, group));
            assert!(source.is_unspecified());
            probed.push(IpAddress::from(target_addr));
        }
        // The link may send our own frames back to us. That is no objection.
        for frame in rig.sent.clone() {
            rig.offer(&frame);
        }
    }
    assert_eq!(probed, [STACK_IPV6, STACK_LINK_LOCAL]);
    assert_eq!(rig.stack.counters().conflicts, 0);
    rig.finish();
}

#[test]
fn an_address_that_another_station_has_is_given_up() {
    let objections = [duplicate_probe(OTHER_MAC, STACK_IPV6), claim(STACK_IPV6, STACK_IPV6)];
    for objection in objections {
        let mut rig = Rig::new();
        rig.step();
        assert!(rig.stack.filter().is_local(&IPV6.ping(1, b"before")));
        assert!(rig.ask(&objection).is_empty());
        assert_eq!(rig.stack.counters().conflicts, 1);
        assert!(!rig.stack.filter().is_local(&IPV6.ping(1, b"after")));
        assert!(rig.ask(&IPV6.ping(1, b"after")).is_empty());
        assert_eq!(rig.stack.counters().drops[StackDrop::NotLocal], 1);
        ping(&mut rig, STACK_LINK_LOCAL, 1, b"the others stay");
        rig.finish();
    }
}

#[test]
fn a_claim_that_comes_too_late_changes_nothing() {
    let mut rig = Rig::settled();
    assert_eq!(rig.ask(&duplicate_probe(OTHER_MAC, STACK_IPV6)).len(), 1);
    assert_eq!(rig.stack.counters().conflicts, 0);
    ping(&mut rig, STACK_IPV6, 1, b"still here");
    rig.finish();
}

//! The filter's word against smoltcp's: what its parsers say about a frame, put together the slow way.

use std::sync::LazyLock;

use forwarder::stack::{Destination, LocalFilter};
use netdrv::device::Mac;
use proptest::collection::vec;
use proptest::prelude::*;
use smoltcp::wire::{
    ArpHardware, ArpOperation, ArpPacket, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Message,
    Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, Ipv4Address, Ipv4Packet, Ipv6Address, Ipv6Packet,
    NdiscRepr,
};

use crate::craft::{NO_ADDRESS, Route, broadcast, solicited_node};
use crate::rig::{PEER_IPV4, PEER_IPV6, PEER_MAC, Rig, STACK_IPV4, STACK_IPV6, STACK_LINK_LOCAL, STACK_MAC};

const IPV4: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };
const IPV6: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV6, target: STACK_IPV6 };
const ALL_NODES: IpAddress = IpAddress::v6(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

static FILTER: LazyLock<LocalFilter> = LazyLock::new(|| Rig::new().stack.filter().clone());

fn is_ours(address: impl Into<IpAddress>) -> bool {
    [STACK_IPV4, STACK_IPV6, STACK_LINK_LOCAL].contains(&address.into())
}

/// What smoltcp's parsers make of a frame.
fn destination(frame: &[u8]) -> Destination {
    parsed(frame).unwrap_or(Destination::Elsewhere)
}

fn parsed(frame: &[u8]) -> Option<Destination> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let station = frame.dst_addr();
    if station != EthernetAddress(STACK_MAC.0) && station.is_unicast() {
        return None;
    }
    match frame.ethertype() {
        EthernetProtocol::Arp => {
            let packet = ArpPacket::new_checked(frame.payload()).ok()?;
            let for_ipv4 = packet.hardware_type() == ArpHardware::Ethernet
                && packet.protocol_type() == EthernetProtocol::Ipv4
                && packet.hardware_len() == 6
                && packet.protocol_len() == 4;
            let target: [u8; 4] = for_ipv4.then(|| packet.target_protocol_addr().try_into().ok())??;
            is_ours(Ipv4Address::from(target)).then_some(Destination::Here)
        }
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
            (packet.version() == 4 && is_ours(packet.dst_addr())).then_some(Destination::Here)
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
            match packet.dst_addr() {
                _ if packet.version() != 6 => None,
                target if is_ours(target) => Some(Destination::Here),
                target => group(target, packet.next_header(), packet.payload()),
            }
        }
        EthernetProtocol::Unknown(_) => None,
    }
}

fn group(target: Ipv6Address, next_header: IpProtocol, payload: &[u8]) -> Option<Destination> {
    let mut groups = vec![ALL_NODES];
    groups.extend([STACK_IPV6, STACK_LINK_LOCAL].map(|address| solicited_node(address).1));
    if !groups.contains(&target.into()) {
        return None;
    }
    match next_header {
        IpProtocol::Icmpv6 => match Icmpv6Packet::new_checked(payload) {
            Ok(packet) if packet.msg_type() == Icmpv6Message::NeighborSolicit => {
                is_ours(packet.target_addr()).then_some(Destination::Here)
            }
            Ok(_) => Some(Destination::Everyone),
            Err(_) => None,
        },
        IpProtocol::HopByHop if payload.first() == Some(&58) => Some(Destination::Everyone),
        _ => None,
    }
}

#[test]
fn the_stack_gets_its_own_and_the_program_the_rest() {
    let other_ipv4 = IpAddress::v4(192, 0, 2, 3);
    let other_ipv6 = IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3);
    let other_mac = Mac([0x52, 0x54, 0, 0, 0, 3]);
    let (group_mac, group) = solicited_node(STACK_IPV6);
    let question = |address: IpAddress| {
        let IpAddress::Ipv6(target_addr) = address else { unreachable!() };
        let message = NdiscRepr::NeighborSolicit { target_addr, lladdr: None };
        Route { to: group_mac, target: group, ..IPV6 }.icmpv6(255, Icmpv6Repr::Ndisc(message))
    };
    let tagged = {
        let mut frame = IPV4.ping(1, b"");
        frame.splice(12..12, [0x81, 0x00, 0, 5]);
        frame
    };
    // Shares the last two bytes with an address of ours, which is enough for smoltcp to take it.
    let lookalike = IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 9, 1);
    let cases = [
        (IPV4.ping(1, b""), Destination::Here),
        (Route { to: broadcast(), ..IPV4 }.ping(1, b""), Destination::Here),
        (Route { to: other_mac, ..IPV4 }.ping(1, b""), Destination::Elsewhere),
        (Route { target: other_ipv4, ..IPV4 }.ping(1, b""), Destination::Elsewhere),
        (
            Route { target: IpAddress::v4(192, 0, 2, 255), to: broadcast(), ..IPV4 }.udp(1, 2, b""),
            Destination::Elsewhere,
        ),
        (Route { target: IpAddress::v4(224, 0, 0, 1), ..IPV4 }.udp(1, 2, b""), Destination::Elsewhere),
        (tagged, Destination::Elsewhere),
        (Route { to: broadcast(), ..IPV4 }.arp(ArpOperation::Request), Destination::Here),
        (Route { to: broadcast(), source: NO_ADDRESS, ..IPV4 }.arp(ArpOperation::Request), Destination::Here),
        (IPV4.arp(ArpOperation::Reply), Destination::Here),
        (
            Route { target: other_ipv4, to: broadcast(), ..IPV4 }.arp(ArpOperation::Request),
            Destination::Elsewhere,
        ),
        (
            Route { target: PEER_IPV4, to: broadcast(), ..IPV4 }.arp(ArpOperation::Request),
            Destination::Elsewhere,
        ),
        (IPV6.ping(1, b""), Destination::Here),
        (Route { target: STACK_LINK_LOCAL, ..IPV6 }.ping(1, b""), Destination::Here),
        (Route { target: other_ipv6, ..IPV6 }.ping(1, b""), Destination::Elsewhere),
        (Route { target: lookalike, ..IPV6 }.ping(1, b""), Destination::Elsewhere),
        (question(STACK_IPV6), Destination::Here),
        (question(lookalike), Destination::Elsewhere),
        (Route { target: group, to: group_mac, ..IPV6 }.ping(1, b""), Destination::Everyone),
        (Route { target: ALL_NODES, to: ALL_NODES_MAC, ..IPV6 }.ping(1, b""), Destination::Everyone),
        (Route { target: ALL_NODES, to: ALL_NODES_MAC, ..IPV6 }.udp(1, 7, b""), Destination::Elsewhere),
        (vec![], Destination::Elsewhere),
        (IPV4.ping(1, b"")[..33].to_vec(), Destination::Elsewhere),
        (IPV6.ping(1, b"")[..53].to_vec(), Destination::Elsewhere),
    ];
    for (index, (frame, expected)) in cases.into_iter().enumerate() {
        assert_eq!(FILTER.destination(&frame), expected, "case {index}");
        assert_eq!(destination(&frame), expected, "case {index}, by smoltcp's parsers");
        assert_eq!(FILTER.is_local(&frame), expected != Destination::Elsewhere);
    }
}

/// Addresses that are ours, nearly ours, and others'.
fn ipv4() -> impl Strategy<Value = Ipv4Address> {
    prop_oneof![
        Just(Ipv4Address::new(192, 0, 2, 1)),
        (0..4u8).prop_map(|host| Ipv4Address::new(192, 0, 2, host)),
        any::<[u8; 4]>().prop_map(Ipv4Address::from)
    ]
}

fn ipv6() -> impl Strategy<Value = Ipv6Address> {
    let known = [
        STACK_IPV6,
        STACK_LINK_LOCAL,
        ALL_NODES,
        solicited_node(STACK_IPV6).1,
        solicited_node(STACK_LINK_LOCAL).1,
    ];
    let known = prop::sample::select(known.to_vec()).prop_map(|address| match address {
        IpAddress::Ipv6(address) => address,
        IpAddress::Ipv4(_) => unreachable!(),
    });
    (known, prop_oneof![3 => Just(None), 1 => (0..16usize, any::<u8>()).prop_map(Some)]).prop_map(
        |(address, change)| {
            let mut bytes = address.octets();
            if let Some((index, byte)) = change {
                bytes[index] = byte;
            }
            bytes.into()
        },
    )
}

fn mac() -> impl Strategy<Value = Mac> {
    prop_oneof![4 => Just(STACK_MAC), 1 => Just(broadcast()), 1 => any::<[u8; 6]>().prop_map(Mac)]
}

/// Frames that look like something, with a few bytes changed and perhaps cut off.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let arp = (mac(), ipv4(), 0..3u16).prop_map(|(to, target, operation)| {
        Route { to, target: target.into(), ..IPV4 }.arp(operation.into())
    });
    let ipv4 = (mac(), ipv4(), any::<u8>()).prop_map(|(to, target, protocol)| {
        Route { to, target: target.into(), ..IPV4 }.ip(protocol.into(), 64, 30, |_| {})
    });
    let next_header = prop_oneof![4 => Just(58u8), 1 => Just(0), 1 => any::<u8>()];
    let first_byte = prop_oneof![3 => Just(135u8), 1 => Just(136), 1 => Just(58), 1 => any::<u8>()];
    let ipv6 = (mac(), ipv6(), next_header, first_byte, ipv6(), 0..40usize).prop_map(
        |(to, target, next_header, first_byte, asked, len)| {
            Route { to, target: target.into(), ..IPV6 }.ip(next_header.into(), 255, len, |bytes| {
                if let Some(byte) = bytes.first_mut() {
                    *byte = first_byte;
                }
                if let Some(place) = bytes.get_mut(8..24) {
                    place.copy_from_slice(&asked.octets());
                }
            })
        },
    );
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let length = prop_oneof![3 => Just(None), 1 => (0..80usize).prop_map(Some)];
    (prop_oneof![arp, ipv4, ipv6], changes, length).prop_map(|(mut frame, changes, length)| {
        for (index, byte) in changes {
            *index.get_mut(&mut frame) = byte;
        }
        frame.truncate(length.unwrap_or(frame.len()));
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// smoltcp checks more, so it may refuse what the filter lets through; but what both let through has one destination,
    /// and what smoltcp takes the filter never keeps from it.
    #[test]
    fn what_smoltcp_takes_the_filter_lets_through(frame in frame()) {
        let (ours, theirs) = (FILTER.destination(&frame), destination(&frame));
        prop_assert!(ours == theirs || theirs == Destination::Elsewhere, "{ours:?}, but {theirs:?}");
    }

    /// Where every length is right there is nothing that smoltcp could check and the filter does not.
    #[test]
    fn sound_frames_have_one_destination(to in mac(), v4 in ipv4(), v6 in ipv6(), asked in ipv6(), protocol in any::<u8>()) {
            let message = NdiscRepr::NeighborSolicit { target_addr: asked, lladdr: None };
        for frame in [
            Route { to, target: v4.into(), ..IPV4 }.arp(ArpOperation::Request),
            Route { to, target: v4.into(), ..IPV4 }.ip(protocol.into(), 64, 30, |_| {}),
            Route { to, target: v6.into(), ..IPV6 }.icmpv6(255, Icmpv6Repr::Ndisc(message)),
            Route { to, target: v6.into(), ..IPV6 }.ping(1, b""),
        ] {
            prop_assert_eq!(FILTER.destination(&frame), destination(&frame));
        }
    }
}

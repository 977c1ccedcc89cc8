//! The frames in which neighbours say where they are, written with smoltcp's wire types.

use netdrv::packet::Packet;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol,
    IPV6_HEADER_LEN, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, Ipv6Address, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr,
};

/// The hop limit that shows that a neighbour's message came through no router (RFC 4861, 7.1).
pub(super) const NEIGHBOUR_HOP_LIMIT: u8 = 255;

/// The stations of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stations {
    pub(super) from: EthernetAddress,
    pub(super) to: EthernetAddress,
}

/// The length of a frame with `message`, in bytes.
pub(super) fn arp_len(message: &ArpRepr) -> usize {
    ETHERNET_HEADER_LEN + message.buffer_len()
}

/// Writes a frame of [`arp_len`] bytes.
pub(super) fn write_arp(bytes: &mut [u8], stations: Stations, message: &ArpRepr) {
    let payload = write_ethernet(bytes, stations, EthernetProtocol::Arp);
    message.emit(&mut ArpPacket::new_unchecked(payload));
}

/// The length of a frame with `message`, in bytes.
pub(super) fn ndisc_len(message: NdiscRepr<'_>) -> usize {
    ETHERNET_HEADER_LEN + IPV6_HEADER_LEN + Icmpv6Repr::Ndisc(message).buffer_len()
}

/// Writes a frame of [`ndisc_len`] bytes from `source` to `target`.
pub(super) fn write_ndisc(
    bytes: &mut [u8],
    stations: Stations,
    source: Ipv6Address,
    target: Ipv6Address,
    message: NdiscRepr<'_>,
) {
    let message = Icmpv6Repr::Ndisc(message);
    let header = Ipv6Repr {
        src_addr: source,
        dst_addr: target,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: NEIGHBOUR_HOP_LIMIT,
    };
    let payload = write_ethernet(bytes, stations, EthernetProtocol::Ipv6);
    let mut packet = Ipv6Packet::new_unchecked(payload);
    header.emit(&mut packet);
    let mut packet = Icmpv6Packet::new_unchecked(packet.payload_mut());
    message.emit(&source, &target, &mut packet, &ChecksumCapabilities::default());
}

/// Writes into `packet` that `source` is at the station `stations.from`, for `target`, which is one of ours: an ARP reply
/// or a neighbour's advertisement that nobody sent. False where source and target are of two families.
pub(super) fn write_introduction(
    packet: &mut Packet,
    stations: Stations,
    source: IpAddress,
    target: IpAddress,
) -> bool {
    match (source, target) {
        (IpAddress::Ipv4(source), IpAddress::Ipv4(target)) => {
            let message = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Reply,
                source_hardware_addr: stations.from,
                source_protocol_addr: source,
                target_hardware_addr: stations.to,
                target_protocol_addr: target,
            };
            let fits = packet.set_len(arp_len(&message));
            if fits {
                write_arp(packet.bytes_mut(), stations, &message);
            }
            fits
        }
        (IpAddress::Ipv6(source), IpAddress::Ipv6(target)) => {
            let message = NdiscRepr::NeighborAdvert {
                flags: NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE,
                target_addr: source,
                lladdr: Some(stations.from.into()),
            };
            let fits = packet.set_len(ndisc_len(message));
            if fits {
                write_ndisc(packet.bytes_mut(), stations, source, target, message);
            }
            fits
        }
        _ => false,
    }
}

fn write_ethernet(bytes: &mut [u8], stations: Stations, protocol: EthernetProtocol) -> &mut [u8] {
    let mut frame = EthernetFrame::new_unchecked(&mut *bytes);
    frame.set_src_addr(stations.from);
    frame.set_dst_addr(stations.to);
    frame.set_ethertype(protocol);
    &mut bytes[ETHERNET_HEADER_LEN..]
}

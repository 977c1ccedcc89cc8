//! Looks into a frame with smoltcp's parsers before smoltcp's interface gets it. The interface drops what it does not
//! like without a word; here each such frame gets a reason. It costs a second look at the checksums, and the stack's
//! path can afford that.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IPV4_HEADER_LEN,
    Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscRepr, TcpPacket, TcpRepr, UdpPacket, UdpRepr,
};

use super::counters::StackDrop;
use super::frames::NEIGHBOUR_HOP_LIMIT;

/// The longest IPv4 datagram that is put together from fragments and, as an answer, sent in fragments again: header
/// and payload, in bytes. It is the size of smoltcp's buffer for this.
pub const MAX_DATAGRAM: usize = 8192;

/// What a sound frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inspected {
    /// Who sent it, by protocol address.
    pub(super) source: IpAddress,
    /// Whom it is for, by protocol address.
    pub(super) target: IpAddress,
    /// Who sent it on this link.
    pub(super) station: EthernetAddress,
    pub(super) content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Somebody without an address asks whether anybody has this one (RFC 5227, 2.1.1; RFC 4862, 5.4.3).
    Probe(IpAddress),
    /// Somebody says that this address is theirs (RFC 4861, 4.4).
    Advertisement(IpAddress),
    /// A question that is answered at once by an echo (RFC 792; RFC 4443, 4.1), or a fragment of ICMP that may be one.
    Ping,
    /// A whole UDP datagram.
    Datagram { from: u16, to: u16 },
    /// A fragment of a UDP datagram; which port it is for only the first one says.
    DatagramFragment,
    /// Anything else.
    Other,
}

/// What a parser found, or the reason to drop the frame: smoltcp's own error says nothing.
type Checked<T> = Result<T, StackDrop>;

/// Looks at a frame that the filter let through.
pub(super) fn inspect(frame: &[u8]) -> Checked<Inspected> {
    let frame = EthernetFrame::new_checked(frame).or_malformed()?;
    let station = frame.src_addr();
    station.is_unicast().or_malformed()?;
    let (source, target, content) = match frame.ethertype() {
        EthernetProtocol::Arp => arp(frame.payload())?,
        EthernetProtocol::Ipv4 => ipv4(frame.payload())?,
        EthernetProtocol::Ipv6 => ipv6(frame.payload())?,
        EthernetProtocol::Unknown(_) => return Err(StackDrop::NotLocal),
    };
    Ok(Inspected { source, target, station, content })
}

fn arp(packet: &[u8]) -> Checked<(IpAddress, IpAddress, Content)> {
    let packet = ArpPacket::new_checked(packet).or_malformed()?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    } = ArpRepr::parse(&packet).or_malformed()?
    else {
        return Err(StackDrop::Malformed);
    };
    source_hardware_addr.is_unicast().or_malformed()?;
    let content = match operation {
        ArpOperation::Request if source_protocol_addr.is_unspecified() => {
            Content::Probe(target_protocol_addr.into())
        }
        ArpOperation::Request | ArpOperation::Reply => Content::Other,
        ArpOperation::Unknown(_) => return Err(StackDrop::Malformed),
    };
    Ok((source_protocol_addr.into(), target_protocol_addr.into(), content))
}

fn ipv4(packet: &[u8]) -> Checked<(IpAddress, IpAddress, Content)> {
    let packet = Ipv4Packet::new_checked(packet).or_malformed()?;
    let header = Ipv4Repr::parse(&packet, &ChecksumCapabilities::default()).or_malformed()?;
    let (source, target) = (IpAddress::Ipv4(header.src_addr), IpAddress::Ipv4(header.dst_addr));
    let content = if packet.more_frags() || packet.frag_offset() != 0 {
        fragment(&packet)?
    } else if header.next_header == IpProtocol::Icmp {
        let message = Icmpv4Packet::new_checked(packet.payload()).or_malformed()?;
        message.verify_checksum().or_malformed()?;
        match message.msg_type() {
            Icmpv4Message::EchoRequest => Content::Ping,
            _ => Content::Other,
        }
    } else {
        transport(header.next_header, packet.payload(), &source, &target)?
    };
    Ok((source, target, content))
}

/// Checks that a fragment is one, and that its datagram can be put together.
fn fragment(packet: &Ipv4Packet<&[u8]>) -> Checked<Content> {
    let length = packet.payload().len();
    // All fragments but the last are multiples of 8 bytes, for that is the unit of offsets (RFC 791, 3.2).
    (length > 0 && (!packet.more_frags() || length.is_multiple_of(8))).or_malformed()?;
    if IPV4_HEADER_LEN + usize::from(packet.frag_offset()) + length > MAX_DATAGRAM {
        return Err(StackDrop::TooLong);
    }
    match packet.next_header() {
        IpProtocol::Udp => Ok(Content::DatagramFragment),
        IpProtocol::Icmp => Ok(Content::Ping),
        _ => Ok(Content::Other),
    }
}

fn ipv6(packet: &[u8]) -> Checked<(IpAddress, IpAddress, Content)> {
    let packet = Ipv6Packet::new_checked(packet).or_malformed()?;
    let header = Ipv6Repr::parse(&packet).or_malformed()?;
    let (source, target) = (IpAddress::Ipv6(header.src_addr), IpAddress::Ipv6(header.dst_addr));
    let content = match header.next_header {
        IpProtocol::Icmpv6 => icmpv6(&header, packet.payload())?,
        next_header => transport(next_header, packet.payload(), &source, &target)?,
    };
    Ok((source, target, content))
}

fn icmpv6(header: &Ipv6Repr, message: &[u8]) -> Checked<Content> {
    let packet = Icmpv6Packet::new_checked(message).or_malformed()?;
    packet.verify_checksum(&header.src_addr, &header.dst_addr).or_malformed()?;
    match packet.msg_type() {
        Icmpv6Message::EchoRequest => return Ok(Content::Ping),
        message if !message.is_ndisc() => return Ok(Content::Other),
        _ => {}
    }
    (header.hop_limit == NEIGHBOUR_HOP_LIMIT).or_malformed()?;
    let ignored = ChecksumCapabilities::ignored();
    match Icmpv6Repr::parse(&header.src_addr, &header.dst_addr, &packet, &ignored).or_malformed()? {
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, .. })
            if header.src_addr.is_unspecified() =>
        {
            Ok(Content::Probe(target_addr.into()))
        }
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, .. }) => {
            Ok(Content::Advertisement(target_addr.into()))
        }
        _ => Ok(Content::Other),
    }
}

/// Checks what IPv4 and IPv6 carry alike. Protocols that are not known here are the interface's to answer.
fn transport(
    protocol: IpProtocol,
    payload: &[u8],
    source: &IpAddress,
    target: &IpAddress,
) -> Checked<Content> {
    let checksums = ChecksumCapabilities::default();
    match protocol {
        IpProtocol::Udp => {
            let packet = UdpPacket::new_checked(payload).or_malformed()?;
            let header = UdpRepr::parse(&packet, source, target, &checksums).or_malformed()?;
            Ok(Content::Datagram { from: header.src_port, to: header.dst_port })
        }
        IpProtocol::Tcp => {
            let packet = TcpPacket::new_checked(payload).or_malformed()?;
            TcpRepr::parse(&packet, source, target, &checksums).or_malformed()?;
            Ok(Content::Other)
        }
        _ => Ok(Content::Other),
    }
}

trait OrMalformed<T> {
    fn or_malformed(self) -> Checked<T>;
}

impl<T> OrMalformed<T> for smoltcp::wire::Result<T> {
    fn or_malformed(self) -> Checked<T> {
        self.map_err(|_| StackDrop::Malformed)
    }
}

/// For what holds in every sound frame.
impl OrMalformed<()> for bool {
    fn or_malformed(self) -> Checked<()> {
        self.then_some(()).ok_or(StackDrop::Malformed)
    }
}

//! Frames made by hand.

use netdrv::device::Mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet,
    Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, IpRepr, Ipv4Address, Ipv4Packet,
    Ipv6Address, NdiscRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};

/// Who sends a frame to whom.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
    pub(crate) source: IpAddress,
    pub(crate) target: IpAddress,
}

impl Route {
    fn ethernet(self, protocol: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 14 + payload.len()];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes);
        frame.set_src_addr(EthernetAddress(self.from.0));
        frame.set_dst_addr(EthernetAddress(self.to.0));
        frame.set_ethertype(protocol);
        frame.payload_mut().copy_from_slice(payload);
        bytes
    }

    /// A packet of `protocol` that `write` fills.
    pub(crate) fn ip(
        self,
        protocol: IpProtocol,
        hop_limit: u8,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Vec<u8> {
        let header = IpRepr::new(self.source, self.target, protocol, len, hop_limit);
        let mut bytes = vec![0; header.buffer_len()];
        header.emit(&mut bytes[..], &ChecksumCapabilities::default());
        write(&mut bytes[header.header_len()..]);
        let ethertype = match self.source {
            IpAddress::Ipv4(_) => EthernetProtocol::Ipv4,
            IpAddress::Ipv6(_) => EthernetProtocol::Ipv6,
        };
        self.ethernet(ethertype, &bytes)
    }

    /// An echo request.
    pub(crate) fn ping(self, number: u16, data: &[u8]) -> Vec<u8> {
        let checksums = ChecksumCapabilities::default();
        match (self.source, self.target) {
            (IpAddress::Ipv4(_), IpAddress::Ipv4(_)) => {
                let message = Icmpv4Repr::EchoRequest { ident: 1, seq_no: number, data };
                self.ip(IpProtocol::Icmp, 64, message.buffer_len(), |bytes| {
                    message.emit(&mut Icmpv4Packet::new_unchecked(bytes), &checksums);
                })
            }
            _ => self.icmpv6(64, Icmpv6Repr::EchoRequest { ident: 1, seq_no: number, data }),
        }
    }

    pub(crate) fn icmpv6(self, hop_limit: u8, message: Icmpv6Repr<'_>) -> Vec<u8> {
        let (IpAddress::Ipv6(source), IpAddress::Ipv6(target)) = (self.source, self.target) else {
            panic!("IPv6 addresses are needed")
        };
        self.ip(IpProtocol::Icmpv6, hop_limit, message.buffer_len(), |bytes| {
            let mut packet = Icmpv6Packet::new_unchecked(bytes);
            message.emit(&source, &target, &mut packet, &ChecksumCapabilities::default());
        })
    }

    pub(crate) fn udp(self, from: u16, to: u16, data: &[u8]) -> Vec<u8> {
        let header = UdpRepr { src_port: from, dst_port: to };
        self.ip(IpProtocol::Udp, 64, header.header_len() + data.len(), |bytes| {
            let mut packet = UdpPacket::new_unchecked(bytes);
            let (source, target) = (self.source, self.target);
            let write = |payload: &mut [u8]| payload.copy_from_slice(data);
            header.emit(&mut packet, &source, &target, data.len(), write, &ChecksumCapabilities::default());
        })
    }

    /// A segment with a `control` flag, and an acknowledgement if there is one.
    pub(crate) fn tcp(
        self,
        ports: (u16, u16),
        control: TcpControl,
        numbers: (i32, Option<i32>),
        data: &[u8],
    ) -> Vec<u8> {
        let segment = TcpRepr {
            src_port: ports.0,
            dst_port: ports.1,
            control,
            seq_number: TcpSeqNumber(numbers.0),
            ack_number: numbers.1.map(TcpSeqNumber),
            window_len: 4096,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: data,
        };
        self.ip(IpProtocol::Tcp, 64, segment.buffer_len(), |bytes| {
            let mut packet = TcpPacket::new_unchecked(bytes);
            segment.emit(&mut packet, &self.source, &self.target, &ChecksumCapabilities::default());
        })
    }

    pub(crate) fn arp(self, operation: ArpOperation) -> Vec<u8> {
        let (IpAddress::Ipv4(source), IpAddress::Ipv4(target)) = (self.source, self.target) else {
            panic!("IPv4 addresses are needed")
        };
        let message = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.from.0),
            source_protocol_addr: source,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: target,
        };
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut ArpPacket::new_unchecked(&mut bytes[..]));
        self.ethernet(EthernetProtocol::Arp, &bytes)
    }
}

/// The Ethernet address of the group that is asked for `address`, and the group.
pub(crate) fn solicited_node(address: IpAddress) -> (Mac, IpAddress) {
    let IpAddress::Ipv6(address) = address else { panic!("an IPv6 address is needed") };
    let [.., a, b, c] = address.octets();
    let group = Ipv6Address::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    (Mac([0x33, 0x33, 0xff, a, b, c]), group.into())
}

/// A question of `from` for `target`, from no address: what a station asks before it uses the address itself.
pub(crate) fn duplicate_probe(from: Mac, target: IpAddress) -> Vec<u8> {
    let (to, group) = solicited_node(target);
    let route = Route { from, to, source: Ipv6Address::UNSPECIFIED.into(), target: group };
    let IpAddress::Ipv6(target_addr) = target else { panic!("an IPv6 address is needed") };
    route.icmpv6(255, Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, lladdr: None }))
}

/// An IPv4 packet cut into pieces of `size` bytes of payload.
pub(crate) fn fragments(frame: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (head, payload) = frame.split_at(34);
    let count = payload.len().div_ceil(size);
    let piece = |(index, data): (usize, &[u8])| {
        let mut bytes = [head, data].concat();
        let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
        packet.set_total_len(20 + data.len() as u16);
        packet.set_frag_offset((index * size) as u16);
        packet.set_more_frags(index + 1 < count);
        packet.set_dont_frag(false);
        packet.fill_checksum();
        bytes
    };
    payload.chunks(size).enumerate().map(piece).collect()
}

pub(crate) fn broadcast() -> Mac {
    Mac([0xff; 6])
}

pub(crate) const NO_ADDRESS: IpAddress = IpAddress::Ipv4(Ipv4Address::UNSPECIFIED);

//! Whatever comes, the stack counts it and goes on.

use std::sync::LazyLock;

use forwarder::stack::Duration;
use netdrv::pool::Pool;
use netdrv::process::ProcessHal;
use proptest::collection::vec;
use proptest::prelude::*;
use smoltcp::wire::{
    ArpOperation, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv6Packet, Icmpv6Repr,
    IpAddress, IpProtocol, Ipv4Packet, Ipv6Address, Ipv6Packet, NdiscNeighborFlags, NdiscRepr, TcpControl,
    TcpPacket, UdpPacket,
};

use crate::craft::{Route, broadcast, duplicate_probe, fragments, solicited_node};
use crate::rig::{
    PEER_IPV4, PEER_IPV6, PEER_MAC, POOL, Rig, STACK_IPV4, STACK_IPV6, STACK_LINK_LOCAL, STACK_MAC,
};

const IPV4: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };
const IPV6: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV6, target: STACK_IPV6 };
/// Where the flags of a TCP segment are, in a frame with IPv4.
const TCP_FLAGS: usize = 47;

static SHARED_POOL: LazyLock<&'static Pool> =
    LazyLock::new(|| Pool::new::<ProcessHal>(POOL).expect("memory"));

/// Something that happens to the stack.
#[derive(Clone, Debug)]
enum Event {
    /// Any bytes.
    Noise(Vec<u8>),
    /// One of [`sound_frames`] with bytes changed.
    Changed { base: prop::sample::Index, changes: Vec<(prop::sample::Index, u8)>, checksums: Checksums },
    /// A TCP segment that fits, more or less, what the stack said last on this connection.
    Segment(Segment),
    /// Nothing, for so many milliseconds.
    Quiet(u64),
}

#[derive(Clone, Copy, Debug)]
enum Checksums {
    Left,
    Corrected,
}

#[derive(Clone, Debug)]
struct Segment {
    port: u16,
    flags: u8,
    sequence: i32,
    acknowledgement: i32,
    window: u16,
    options: Vec<u8>,
    payload: usize,
}

fn sound_frames() -> Vec<Vec<u8>> {
    let IpAddress::Ipv6(stack) = STACK_IPV6 else { unreachable!() };
    let lladdr = Some(EthernetAddress(PEER_MAC.0).into());
    let (group_mac, group) = solicited_node(STACK_IPV6);
    let all_nodes = IpAddress::Ipv6(Ipv6Address::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    let ndisc = |message| Icmpv6Repr::Ndisc(message);
    let advertisement =
        NdiscRepr::NeighborAdvert { flags: NdiscNeighborFlags::OVERRIDE, target_addr: stack, lladdr };
    let options = IPV6.ip(IpProtocol::HopByHop, 1, 16, |bytes| bytes[..2].copy_from_slice(&[58, 0]));
    let mut frames = vec![
        Route { to: broadcast(), ..IPV4 }.arp(ArpOperation::Request),
        IPV4.arp(ArpOperation::Reply),
        IPV4.ping(1, &[1; 100]),
        IPV6.ping(1, &[1; 100]),
        Route { target: STACK_LINK_LOCAL, ..IPV6 }.ping(1, b""),
        Route { target: all_nodes, to: group_mac, ..IPV6 }.ping(1, b"all"),
        IPV4.udp(5, 7, &[2; 200]),
        IPV6.udp(5, 7, b""),
        IPV6.udp(5, 6, b"closed"),
        IPV4.tcp((9, 7), TcpControl::Syn, (1, None), b""),
        IPV6.tcp((9, 7), TcpControl::Syn, (1, None), b""),
        IPV4.tcp((9, 7), TcpControl::Psh, (2, Some(1)), &[3; 300]),
        Route { to: group_mac, target: group, ..IPV6 }
            .icmpv6(255, ndisc(NdiscRepr::NeighborSolicit { target_addr: stack, lladdr })),
        IPV6.icmpv6(255, ndisc(advertisement)),
        IPV6.icmpv6(255, ndisc(NdiscRepr::RouterSolicit { lladdr })),
        duplicate_probe(PEER_MAC, STACK_LINK_LOCAL),
        options,
    ];
    frames.extend(fragments(&IPV4.ping(2, &[4; 4_000]), 1_480));
    frames.extend(fragments(&IPV4.udp(5, 7, &[5; 3_000]), 1_000));
    frames
}

/// Makes every checksum right whose place can still be found.
fn correct_checksums(frame: &mut [u8]) {
    let Ok(mut frame) = EthernetFrame::new_checked(frame) else { return };
    let ethertype = frame.ethertype();
    let payload = frame.payload_mut();
    let (source, target, protocol): (IpAddress, IpAddress, _) = match ethertype {
        EthernetProtocol::Ipv4 => {
            let Ok(mut packet) = Ipv4Packet::new_checked(&mut *payload) else { return };
            packet.fill_checksum();
            (packet.src_addr().into(), packet.dst_addr().into(), packet.next_header())
        }
        EthernetProtocol::Ipv6 => {
            let Ok(packet) = Ipv6Packet::new_checked(&mut *payload) else { return };
            (packet.src_addr().into(), packet.dst_addr().into(), packet.next_header())
        }
        _ => return,
    };
    let body = match ethertype {
        EthernetProtocol::Ipv4 => match Ipv4Packet::new_checked(&mut *payload) {
            Ok(packet) if packet.frag_offset() == 0 => {
                let (from, to) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
                &mut payload[from..to]
            }
            _ => return,
        },
        _ => {
            let length = Ipv6Packet::new_unchecked(&*payload).total_len();
            &mut payload[40..length]
        }
    };
    match (protocol, source, target) {
        (IpProtocol::Icmp, ..) => {
            let _ = Icmpv4Packet::new_checked(body).map(|mut packet| packet.fill_checksum());
        }
        (IpProtocol::Icmpv6, IpAddress::Ipv6(source), IpAddress::Ipv6(target)) => {
            let _ = Icmpv6Packet::new_checked(body).map(|mut packet| packet.fill_checksum(&source, &target));
        }
        (IpProtocol::Udp, ..) => {
            let _ = UdpPacket::new_checked(body).map(|mut packet| packet.fill_checksum(&source, &target));
        }
        (IpProtocol::Tcp, ..) => {
            let _ = TcpPacket::new_checked(body).map(|mut packet| packet.fill_checksum(&source, &target));
        }
        _ => {}
    }
}

fn segment() -> impl Strategy<Value = Segment> {
    let near = || prop_oneof![4 => Just(0), 2 => -3..=3, 2 => -9_000..=9_000, 1 => any::<i32>()];
    let flags = prop_oneof![
        3 => Just(0x10),
        2 => Just(0x18),
        2 => Just(0x02),
        1 => Just(0x11),
        1 => Just(0x04),
        1 => any::<u8>()
    ];
    let payload = prop_oneof![2 => Just(0), 2 => 1..1_400_usize];
    let options = prop_oneof![3 => Just(vec![]), 1 => vec(any::<u8>(), 0..=10)
        .prop_map(|bytes| bytes.chunks(4).flat_map(|chunk| [chunk, &[1; 4][chunk.len()..]].concat()).collect())];
    (1_000..1_003u16, flags, near(), near(), any::<u16>(), options, payload).prop_map(
        |(port, flags, sequence, acknowledgement, window, options, payload)| Segment {
            port,
            flags,
            sequence,
            acknowledgement,
            window,
            options,
            payload,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let checksums = prop_oneof![Just(Checksums::Left), Just(Checksums::Corrected)];
    prop_oneof![
        1 => vec(any::<u8>(), 0..200).prop_map(Event::Noise),
        5 => (any::<prop::sample::Index>(), vec(change, 0..4), checksums)
            .prop_map(|(base, changes, checksums)| Event::Changed { base, changes, checksums }),
        6 => segment().prop_map(Event::Segment),
        2 => (0..5_000u64).prop_map(Event::Quiet),
    ]
}

/// What the stack said last on each of the connections that segments come from.
#[derive(Default)]
struct Conversation {
    /// By the peer's port: the stack's next sequence number, and what it has acknowledged.
    numbers: std::collections::HashMap<u16, (u32, u32)>,
}

impl Conversation {
    fn listen(&mut self, frames: &[Vec<u8>]) {
        for frame in
            frames.iter().filter(|frame| frame.len() >= 54 && frame[12..14] == [8, 0] && frame[23] == 6)
        {
            let packet = TcpPacket::new_unchecked(&frame[34..]);
            let next = packet.seq_number() + packet.segment_len();
            self.numbers.insert(packet.dst_port(), (next.0 as u32, packet.ack_number().0 as u32));
        }
    }

    fn frame(&self, segment: &Segment) -> Vec<u8> {
        let (acknowledged, next) = self.numbers.get(&segment.port).copied().unwrap_or_default();
        let header = 20 + segment.options.len();
        IPV4.ip(IpProtocol::Tcp, 64, header + segment.payload, |bytes| {
            bytes[..2].copy_from_slice(&segment.port.to_be_bytes());
            bytes[3] = 7;
            bytes[4..8].copy_from_slice(&next.wrapping_add_signed(segment.sequence).to_be_bytes());
            bytes[8..12]
                .copy_from_slice(&acknowledged.wrapping_add_signed(segment.acknowledgement).to_be_bytes());
            bytes[12] = (header as u8 / 4) << 4;
            bytes[TCP_FLAGS - 34] = segment.flags;
            bytes[14..16].copy_from_slice(&segment.window.to_be_bytes());
            bytes[20..header].copy_from_slice(&segment.options);
            TcpPacket::new_unchecked(bytes).fill_checksum(&PEER_IPV4, &STACK_IPV4);
        })
    }
}

fn happen(rig: &mut Rig, bases: &[Vec<u8>], conversation: &mut Conversation, event: &Event) {
    match event {
        Event::Noise(bytes) => rig.offer(bytes),
        Event::Changed { base, changes, checksums } => {
            let mut frame = base.get(bases).clone();
            for (index, byte) in changes {
                *index.get_mut(&mut frame) = *byte;
            }
            if let Checksums::Corrected = checksums {
                correct_checksums(&mut frame);
            }
            rig.offer(&frame);
        }
        Event::Segment(segment) => rig.offer(&conversation.frame(segment)),
        Event::Quiet(milliseconds) => rig.now += Duration::from_millis(*milliseconds),
    }
    // The rig checks that the counters add up.
    rig.poll_stack();
    conversation.listen(&rig.sent);
}

proptest! {
    #[test]
    fn nothing_breaks_the_stack(events in vec(event(), 1..80)) {
        let mut rig = Rig::over(*SHARED_POOL);
        rig.ask(&Route { to: broadcast(), ..IPV4 }.arp(ArpOperation::Request));
        let bases = sound_frames();
        let mut conversation = Conversation::default();
        for event in &events {
            happen(&mut rig, &bases, &mut conversation, event);
        }
        // It still does what it is there for.
        rig.offer(&IPV4.ping(4_711, b"alive?"));
        let answers = rig.drain();
        prop_assert!(answers.iter().any(|frame| frame.len() == 48 && frame[40..42] == 4_711u16.to_be_bytes()));
        rig.finish();
    }
}

#[test]
fn sound_frames_are_sound() {
    let mut rig = Rig::new();
    for frame in sound_frames() {
        let mut corrected = frame.clone();
        correct_checksums(&mut corrected);
        if frame[12..14] != [8, 0] || frame[20..22] == [0, 0] {
            assert_eq!(corrected, frame);
        }
        rig.ask(&frame);
    }
    let counters = *rig.stack.counters();
    assert!(counters.handled >= 20 && counters.drops.sum() <= 2, "{counters:?}");
    rig.finish();
}

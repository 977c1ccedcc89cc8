//! What the stack answers by itself, and what it does not.

use forwarder::stack::{Duration, IpCidr, MAX_DATAGRAM, SetupError, Stack, StackConfig, StackDrop};
use netdrv::device::Mac;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp::Socket;
use smoltcp::wire::{
    ArpOperation, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4DstUnreachable, Icmpv4Packet,
    Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, Ipv4Packet, Ipv6Address, Ipv6Packet, TcpControl,
    TcpPacket,
};

use crate::addresses::claim;
use crate::craft::{NO_ADDRESS, Route, broadcast, fragments};
use crate::rig::{PEER_IPV4, PEER_IPV6, PEER_MAC, Rig, STACK_IPV4, STACK_IPV6, STACK_LINK_LOCAL, STACK_MAC};

const IPV4: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };
const IPV6: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV6, target: STACK_IPV6 };
const OTHER_MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 9]);

/// Sends `count` pings with `data` from the peer and waits for the echoes.
pub(crate) fn ping(rig: &mut Rig, target: IpAddress, count: u16, data: &[u8]) {
    const IDENT: u16 = 77;
    let handle = rig.peer.open_icmp(IDENT);
    for seq_no in 0..count {
        send_ping(rig, handle, target, seq_no, data);
        let mut echo = None;
        rig.run_until(Duration::from_secs(5), |rig| {
            let source = rig.peer.interface.get_source_address(&target).expect("an address");
            let socket = rig.peer.socket::<Socket<'_>>(handle);
            echo = socket.recv().ok().map(|(message, from)| (message.to_vec(), from, source));
            echo.is_some()
        });
        let (message, from, source) = echo.expect("an echo");
        assert_eq!(from, target);
        assert_eq!(echo_in(&message, from, source), (seq_no, data.to_vec()));
    }
    rig.peer.sockets.remove(handle);
}

fn send_ping(rig: &mut Rig, handle: SocketHandle, target: IpAddress, seq_no: u16, data: &[u8]) {
    let checksums = ChecksumCapabilities::default();
    let source = rig.peer.interface.get_source_address(&target).expect("an address");
    let socket = rig.peer.socket::<Socket<'_>>(handle);
    match (source, target) {
        (IpAddress::Ipv6(source), IpAddress::Ipv6(to)) => {
            let message = Icmpv6Repr::EchoRequest { ident: 77, seq_no, data };
            let bytes = socket.send(message.buffer_len(), target).expect("room");
            message.emit(&source, &to, &mut Icmpv6Packet::new_unchecked(bytes), &checksums);
        }
        _ => {
            let message = Icmpv4Repr::EchoRequest { ident: 77, seq_no, data };
            let bytes = socket.send(message.buffer_len(), target).expect("room");
            message.emit(&mut Icmpv4Packet::new_unchecked(bytes), &checksums);
        }
    }
}

/// The number and the data of an echo.
fn echo_in(message: &[u8], source: IpAddress, target: IpAddress) -> (u16, Vec<u8>) {
    let checksums = ChecksumCapabilities::default();
    match (source, target) {
        (IpAddress::Ipv6(source), IpAddress::Ipv6(target)) => {
            let packet = Icmpv6Packet::new_checked(message).expect("a message");
            match Icmpv6Repr::parse(&source, &target, &packet, &checksums).expect("sound") {
                Icmpv6Repr::EchoReply { seq_no, data, .. } => (seq_no, data.to_vec()),
                other => panic!("{other:?}"),
            }
        }
        _ => {
            let packet = Icmpv4Packet::new_checked(message).expect("a message");
            match Icmpv4Repr::parse(&packet, &checksums).expect("sound") {
                Icmpv4Repr::EchoReply { seq_no, data, .. } => (seq_no, data.to_vec()),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The echo that a frame of the stack's carries.
fn echo_of(frame: &[u8]) -> (u16, Vec<u8>) {
    let frame = EthernetFrame::new_checked(frame).expect("a frame");
    assert_eq!(frame.dst_addr(), EthernetAddress(PEER_MAC.0));
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).expect("a packet");
            assert!(packet.verify_checksum());
            echo_in(packet.payload(), packet.src_addr().into(), packet.dst_addr().into())
        }
        _ => {
            let packet = Ipv6Packet::new_checked(frame.payload()).expect("a packet");
            echo_in(packet.payload(), packet.src_addr().into(), packet.dst_addr().into())
        }
    }
}

#[test]
fn pings_are_echoed() {
    let mut rig = Rig::new();
    for target in [STACK_IPV4, STACK_IPV6, STACK_LINK_LOCAL] {
        for len in [0, 1, 56, 1452] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            ping(&mut rig, target, 10, &data);
        }
    }
    assert_eq!(rig.stack.counters().drops.sum(), 0);
    rig.finish();
}

#[test]
fn a_ping_from_a_station_not_heard_of_is_echoed_at_once() {
    let mut rig = Rig::settled();
    for minutes in [0, 2, 60] {
        rig.now += Duration::from_secs(60 * minutes);
        for route in [IPV4, IPV6] {
            let answers = rig.ask(&route.ping(5, b"hello"));
            assert_eq!(answers.len(), 1);
            assert_eq!(echo_of(&answers[0]), (5, b"hello".to_vec()));
        }
    }
    rig.finish();
}

#[test]
fn long_pings_go_in_fragments_both_ways() {
    let mut rig = Rig::new();
    for len in [1473, 2000, 5000, MAX_DATAGRAM - 28] {
        let data: Vec<u8> = (0..len).map(|i| (i / 3) as u8).collect();
        ping(&mut rig, STACK_IPV4, 3, &data);
    }
    assert_eq!(rig.stack.counters().drops.sum(), 0);
    rig.finish();
}

#[test]
fn long_pings_do_not_mix_whatever_the_budget() {
    for (tx, pieces) in [(1, 1480), (2, 800), (32, 8)] {
        let mut rig = Rig::settled();
        rig.budget.tx = tx;
        for number in 0..4 {
            for piece in long_ping(number, pieces) {
                rig.offer(&piece);
                rig.poll_stack();
                let sent = std::mem::take(&mut rig.sent);
                rig.peer.device.received.extend(sent);
            }
        }
        let left = rig.drain();
        rig.peer.device.received.extend(left);
        let handle = rig.peer.open_icmp(1);
        let mut echoes = Vec::new();
        rig.run_until(Duration::from_secs(5), |rig| {
            while let Ok((message, from)) = rig.peer.socket::<Socket<'_>>(handle).recv() {
                echoes.push(echo_in(message, from, PEER_IPV4));
            }
            echoes.len() == 4
        });
        assert!(echoes.iter().all(|(number, data)| *data == vec![*number as u8; 4000]));
        rig.finish();
    }
}

/// A long ping's fragments, with a number of their own so that they are not put together with another's.
fn long_ping(number: u8, size: usize) -> Vec<Vec<u8>> {
    let mut pieces = fragments(&IPV4.ping(number.into(), &vec![number; 4000]), size);
    for piece in &mut pieces {
        let mut packet = Ipv4Packet::new_unchecked(&mut piece[14..]);
        packet.set_ident(number.into());
        packet.fill_checksum();
    }
    pieces
}

#[test]
fn an_echo_that_buffers_run_out_for_is_finished_before_the_next() {
    for free in 1..8 {
        let mut rig = Rig::settled();
        let (mut first, mut second) = (long_ping(1, 1480), long_ping(2, 1480));
        let ends = [first.pop(), second.pop()].map(|piece| piece.expect("a piece"));
        for piece in first.iter().chain(&second) {
            assert!(rig.ask(piece).is_empty());
        }
        for piece in &ends {
            rig.offer(piece);
        }
        let mut hoard: Vec<_> = std::iter::from_fn(|| rig.cache.take()).collect();
        hoard.truncate(hoard.len() - free);
        rig.poll_stack();
        let mut sent = std::mem::take(&mut rig.sent);
        drop(hoard);
        sent.extend(rig.drain());
        let dropped = rig.stack.counters().drops[StackDrop::NoBuffer];
        let echoed: Vec<usize> = [1, 2].map(|number| bytes_echoed(&sent, number)).into();
        assert_eq!(
            echoed.iter().filter(|&&bytes| bytes == 4_008).count() as u64,
            2 - dropped,
            "{free} free: {echoed:?}"
        );
        assert!(echoed.iter().all(|&bytes| bytes == 4_008 || bytes == 0), "{free} free: {echoed:?}");
        rig.finish();
    }
}

/// Payload of the IPv4 packets that carry the echo `number`, which is also its data.
fn bytes_echoed(frames: &[Vec<u8>], number: u8) -> usize {
    let packets = frames.iter().filter(|frame| frame[12..14] == [8, 0] && frame.last() == Some(&number));
    packets.map(|frame| Ipv4Packet::new_checked(&frame[14..]).expect("a packet").payload().len()).sum()
}

#[test]
fn fragments_without_their_fellows_do_not_stay() {
    let mut rig = Rig::settled();
    for number in 10..20 {
        rig.ask(&long_ping(number, 1480)[0]);
    }
    rig.now += Duration::from_secs(6);
    let whole = long_ping(1, 1480);
    let sent: Vec<Vec<u8>> = whole.iter().flat_map(|piece| rig.ask(piece)).collect();
    assert_eq!(bytes_echoed(&sent, 1), 4_008);
    rig.finish();
}

#[test]
fn a_stack_can_move_to_another_core() {
    let rig = Rig::settled();
    std::thread::scope(|scope| scope.spawn(move || rig.finish()).join().expect("a thread"));
}

#[test]
fn a_datagram_beyond_the_buffer_is_counted() {
    let mut rig = Rig::settled();
    let frame = IPV4.ping(1, &vec![7; MAX_DATAGRAM - 27]);
    let pieces = fragments(&frame, 1480);
    assert!(rig.ask(&pieces[0]).is_empty());
    assert!(rig.ask(pieces.last().expect("a piece")).is_empty());
    assert_eq!(rig.stack.counters().drops[StackDrop::TooLong], 1);
    rig.finish();
}

#[test]
fn a_whole_group_can_be_pinged() {
    let mut rig = Rig::settled();
    let group = Ipv6Address::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into();
    let source = IpAddress::v6(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    let route = Route { from: PEER_MAC, to: Mac([0x33, 0x33, 0, 0, 0, 1]), source, target: group };
    let answers = rig.ask(&route.ping(9, b"all"));
    assert_eq!(echo_of(&answers[0]), (9, b"all".to_vec()));
    rig.finish();
}

#[test]
fn a_closed_port_says_so() {
    let mut rig = Rig::settled();
    rig.ask(&Route { to: broadcast(), ..IPV4 }.arp(ArpOperation::Request));
    let answers = rig.ask(&IPV4.udp(5000, 5001, b"anybody?"));
    let packet = Ipv4Packet::new_checked(&answers[0][14..]).expect("a packet");
    let message = Icmpv4Packet::new_checked(packet.payload()).expect("a message");
    let parsed = Icmpv4Repr::parse(&message, &ChecksumCapabilities::default()).expect("sound");
    let reason = Icmpv4DstUnreachable::PortUnreachable;
    assert!(matches!(parsed, Icmpv4Repr::DstUnreachable { reason: found, .. } if found == reason));

    let answers = rig.ask(&IPV4.tcp((5000, 80), TcpControl::Syn, (1, None), b""));
    let packet = Ipv4Packet::new_checked(&answers[0][14..]).expect("a packet");
    assert!(TcpPacket::new_checked(packet.payload()).expect("a segment").rst());
    rig.finish();
}

#[test]
fn frames_that_nobody_here_should_answer_are_dropped_with_a_reason() {
    let mut rig = Rig::settled();
    let other = IpAddress::v4(192, 0, 2, 77);
    let far = IpAddress::v4(198, 51, 100, 1);
    let far_ipv6 = IpAddress::v6(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
    let cases = [
        (IPV4.tcp((1, 7), TcpControl::Syn, (1, None), b""), None),
        (Route { target: other, ..IPV4 }.ping(1, b""), Some(StackDrop::NotLocal)),
        (Route { to: OTHER_MAC, ..IPV4 }.ping(1, b""), Some(StackDrop::NotLocal)),
        (Route { source: far, ..IPV4 }.ping(1, b""), Some(StackDrop::OffLink)),
        (Route { source: NO_ADDRESS, ..IPV4 }.ping(1, b""), Some(StackDrop::OffLink)),
        (Route { source: far_ipv6, ..IPV6 }.ping(1, b""), Some(StackDrop::OffLink)),
        (Route { source: far, ..IPV4 }.arp(ArpOperation::Request), Some(StackDrop::OffLink)),
        (Route { source: STACK_IPV4, ..IPV4 }.ping(1, b""), Some(StackDrop::Impostor)),
        (Route { source: STACK_IPV4, ..IPV4 }.arp(ArpOperation::Reply), Some(StackDrop::Impostor)),
        (Route { source: STACK_LINK_LOCAL, ..IPV6 }.ping(1, b""), Some(StackDrop::Impostor)),
        (Route { from: broadcast(), ..IPV4 }.ping(1, b""), Some(StackDrop::Malformed)),
        (IPV4.arp(ArpOperation::Unknown(3)), Some(StackDrop::Malformed)),
        (claim(STACK_IPV6, STACK_IPV6), Some(StackDrop::Impostor)),
        (claim(far_ipv6, far_ipv6), Some(StackDrop::OffLink)),
        (claim(PEER_IPV6, PEER_IPV6), None),
        (IPV4.udp(1, 7, b"x")[..40].to_vec(), Some(StackDrop::Malformed)),
    ];
    for (frame, reason) in cases {
        let before = *rig.stack.counters();
        rig.ask(&frame);
        let after = rig.stack.counters();
        assert_eq!(after.drops.sum() - before.drops.sum(), u64::from(reason.is_some()), "{reason:?}");
        assert_eq!(after.handled - before.handled, u64::from(reason.is_none()), "{reason:?}");
        if let Some(reason) = reason {
            assert_eq!(after.drops[reason], before.drops[reason] + 1, "{reason}");
        }
    }
    rig.finish();
}

#[test]
fn a_changed_byte_never_gets_an_answer() {
    let mut rig = Rig::settled();
    let frames = [
        IPV4.ping(1, b"data that is checked"),
        IPV6.ping(1, b"data that is checked"),
        IPV4.udp(5000, 7, b"data that is checked"),
        IPV6.udp(5000, 7, b"data that is checked"),
        IPV4.tcp((5000, 7), TcpControl::Syn, (1, None), b""),
        IPV6.tcp((5000, 7), TcpControl::Syn, (1, None), b""),
    ];
    for frame in frames {
        // Behind the addresses, all is under a checksum.
        for index in 34..frame.len() {
            let mut changed = frame.clone();
            changed[index] ^= 0x10;
            let before = rig.stack.counters().handled;
            rig.ask(&changed);
            assert_eq!(rig.stack.counters().handled, before, "byte {index}");
        }
    }
    rig.finish();
}

#[test]
fn a_stack_that_can_not_be_is_refused() {
    let rig = Rig::new();
    let valid = [IpCidr::new(STACK_IPV4, 24)];
    let make = |mac: Mac, mtu: u16, addresses: &[IpCidr]| {
        let config = StackConfig { mac, mtu, addresses, seed: 1 };
        Stack::new(&config, rig.pool, rig.now).map(drop)
    };
    let with_ipv6 = [IpCidr::new(STACK_IPV6, 64)];
    let group = IpCidr::new(IpAddress::v4(224, 0, 0, 1), 24);
    assert_eq!(make(STACK_MAC, 576, &valid), Ok(()));
    assert_eq!(make(STACK_MAC, 9000, &with_ipv6), Ok(()));
    assert_eq!(make(broadcast(), 1500, &valid), Err(SetupError::Mac(broadcast())));
    assert_eq!(make(STACK_MAC, 1500, &[]), Err(SetupError::Count(0)));
    assert_eq!(make(STACK_MAC, 1500, &[valid[0]; 8]), Err(SetupError::Count(8)));
    assert_eq!(make(STACK_MAC, 1500, &[group]), Err(SetupError::NotAHost(group)));
    assert_eq!(make(STACK_MAC, 575, &valid), Err(SetupError::Mtu { given: 575, needed: 576 }));
    assert_eq!(make(STACK_MAC, 1279, &with_ipv6), Err(SetupError::Mtu { given: 1279, needed: 1280 }));
    rig.finish();
}

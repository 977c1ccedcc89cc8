//! Echo on UDP.

use forwarder::stack::{Duration, ECHO_PORT, StackDrop};
use netdrv::device::Mac;
use smoltcp::socket::udp::Socket;
use smoltcp::wire::{ArpOperation, IpAddress};

use crate::craft::{Route, broadcast, fragments};
use crate::rig::{PEER_IPV4, PEER_MAC, Rig, STACK_IPV4, STACK_IPV6, STACK_MAC};

const IPV4: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };

/// A rig whose stack knows where the peer is.
fn acquainted() -> Rig {
    let mut rig = Rig::settled();
    assert_eq!(rig.ask(&Route { to: broadcast(), ..IPV4 }.arp(ArpOperation::Request)).len(), 1);
    rig
}

fn data(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number * 31 + i) as u8).collect()
}

#[test]
fn datagrams_come_back_as_they_were() {
    let mut rig = Rig::new();
    let handle = rig.peer.open_udp(5_000);
    for target in [STACK_IPV4, STACK_IPV6] {
        for (number, len) in [0, 1, 100, 1_452].into_iter().enumerate() {
            let socket = rig.peer.socket::<Socket<'_>>(handle);
            socket.send_slice(&data(number, len), (target, ECHO_PORT)).expect("room");
            let mut echo = None;
            rig.run_until(Duration::from_secs(5), |rig| {
                let received = rig.peer.socket::<Socket<'_>>(handle).recv();
                echo = received.ok().map(|(bytes, from)| (bytes.to_vec(), from.endpoint));
                echo.is_some()
            });
            assert_eq!(echo, Some((data(number, len), (target, ECHO_PORT).into())));
        }
    }
    rig.finish();
}

#[test]
fn long_datagrams_go_in_fragments_both_ways() {
    let mut rig = Rig::new();
    let handle = rig.peer.open_udp(5_000);
    for (number, len) in [1_473, 3_000, 8_164].into_iter().enumerate() {
        let socket = rig.peer.socket::<Socket<'_>>(handle);
        socket.send_slice(&data(number, len), (STACK_IPV4, ECHO_PORT)).expect("room");
        rig.run_until(Duration::from_secs(5), |rig| {
            let received = rig.peer.socket::<Socket<'_>>(handle).recv();
            received.is_ok_and(|(bytes, _)| bytes == data(number, len))
        });
    }
    assert_eq!(rig.stack.counters().drops.sum(), 0);
    rig.finish();
}

#[test]
fn a_steady_stream_loses_nothing() {
    const COUNT: usize = 2_000;
    const WINDOW: usize = 32;
    let mut rig = Rig::new();
    let handle = rig.peer.open_udp(5_000);
    let (mut sent, mut received) = (0, 0);
    rig.run_until(Duration::from_secs(60), |rig| {
        let socket = rig.peer.socket::<Socket<'_>>(handle);
        while let Ok((bytes, _)) = socket.recv() {
            assert_eq!(bytes, data(received, 600), "in order");
            received += 1;
        }
        while sent < COUNT && sent - received < WINDOW {
            socket.send_slice(&data(sent, 600), (STACK_IPV4, ECHO_PORT)).expect("room");
            sent += 1;
        }
        received == COUNT
    });
    assert_eq!(rig.stack.counters().drops.sum(), 0);
    rig.finish();
}

#[test]
fn what_is_too_much_at_once_is_counted() {
    const COUNT: u64 = 200;
    for len in [0, 18, 1_472] {
        let mut rig = acquainted();
        rig.budget.rx = 256;
        for number in 0..COUNT {
            rig.offer(&IPV4.udp(5_000, ECHO_PORT, &data(number as usize, len)));
        }
        let echoed = rig.drain().len() as u64;
        let busy = rig.stack.counters().drops[StackDrop::EchoBusy];
        assert_eq!(echoed + busy, COUNT);
        assert!(echoed >= 32, "{echoed} of {len} bytes");
        assert_eq!(rig.stack.counters().drops.sum(), busy);
        rig.finish();
    }
}

#[test]
fn a_long_datagram_waits_for_nobody() {
    let mut rig = acquainted();
    rig.budget.rx = 64;
    // One is being sent and one waits when the fragments come.
    rig.offer(&IPV4.udp(5_000, ECHO_PORT, b"first"));
    rig.offer(&IPV4.udp(5_000, ECHO_PORT, b"second"));
    for piece in fragments(&IPV4.udp(5_000, ECHO_PORT, &data(1, 3_000)), 1_480) {
        rig.offer(&piece);
    }
    assert_eq!(rig.drain().len(), 2);
    assert_eq!(rig.stack.counters().drops[StackDrop::EchoBusy], 3);
    rig.finish();
}

#[test]
fn two_echo_services_are_not_set_on_each_other() {
    let mut rig = acquainted();
    for port in [0, ECHO_PORT] {
        assert!(rig.ask(&IPV4.udp(port, ECHO_PORT, b"again")).is_empty());
    }
    assert_eq!(rig.stack.counters().drops[StackDrop::EchoLoop], 2);
    rig.finish();
}

#[test]
fn a_station_that_never_says_where_it_is_holds_nobody_up_for_long() {
    let mut rig = acquainted();
    let ghost = Route { from: Mac([2, 0, 0, 0, 0, 9]), source: IpAddress::v4(192, 0, 2, 99), ..IPV4 };
    rig.offer(&ghost.udp(5_000, ECHO_PORT, b"boo"));
    rig.step();
    rig.step();
    let handle = rig.peer.open_udp(5_000);
    let mut echoes = 0;
    let end = rig.now + Duration::from_secs(10);
    while rig.now < end {
        let socket = rig.peer.socket::<Socket<'_>>(handle);
        if socket.can_send() && socket.send_queue() == 0 {
            socket.send_slice(b"me", (STACK_IPV4, ECHO_PORT)).expect("room");
        }
        while socket.recv().is_ok() {
            echoes += 1;
        }
        rig.step();
        rig.now = rig.now.max(rig.now + Duration::from_millis(10));
    }
    let counters = rig.stack.counters();
    assert!(counters.unresolved >= 1, "{counters:?}");
    assert!(echoes > 500, "{echoes} echoes in 8 of 10 seconds");
    rig.finish();
}

//! The stack under more than it can take, and without what it needs.

use forwarder::stack::{Budget, Duration, ECHO_PORT, Stack, StackDrop};
use netdrv::device::Mac;
use netdrv::packet::{Burst, Packet};
use netdrv::pool::BULK;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::wire::{ArpOperation, IpAddress};

use crate::craft::{Route, broadcast};
use crate::rig::{PEER_IPV4, PEER_MAC, Rig, STACK_IPV4, STACK_MAC};

const IPV4: Route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };

/// A rig whose stack knows where the peer is.
fn acquainted() -> Rig {
    let mut rig = Rig::settled();
    assert_eq!(rig.ask(&Route { to: broadcast(), ..IPV4 }.arp(ArpOperation::Request)).len(), 1);
    rig
}

fn is_echo_reply(frame: &[u8], number: u16) -> bool {
    frame.len() >= 42 && frame[23] == 1 && frame[34] == 0 && frame[40..42] == number.to_be_bytes()
}

#[test]
fn pings_survive_a_flood_within_the_budget() {
    let mut rig = acquainted();
    let damaged = {
        let mut frame = IPV4.ping(1, &[0; 1_400]);
        frame[100] ^= 1;
        frame
    };
    let garbage = [
        damaged,
        IPV4.udp(1, 9, &[0; 64])[..50].to_vec(),
        Route { target: IpAddress::v4(192, 0, 2, 200), ..IPV4 }.udp(1, 2, &[0; 1_000]),
        vec![0xff; 60],
        IPV4.udp(1, 9, b"a closed port"),
    ];
    for number in 0..200 {
        for index in 0..rig.budget.rx - 1 {
            rig.offer(&garbage[index % garbage.len()]);
        }
        rig.offer(&IPV4.ping(number, b"still there?"));
        rig.poll_stack();
        assert!(rig.sent.iter().any(|frame| is_echo_reply(frame, number)), "ping {number}");
    }
    assert_eq!(rig.queue.overflow(), 0);
    rig.finish();
}

#[test]
fn a_flood_of_pings_leaves_room_for_connections() {
    let mut rig = Rig::new();
    rig.budget = Budget { rx: 16, tx: 16 };
    let handle = rig.peer.connect(STACK_IPV4, ECHO_PORT, 2_000, 16 * 1_024);
    let (mut sent, mut received, mut pings) = (0, 0, 0u64);
    rig.run_until(Duration::from_secs(60), |rig| {
        // As many as a call takes; what the peer sends comes behind them.
        for number in 0..14 {
            rig.offer(&IPV4.ping(number, b"more"));
            pings += 1;
        }
        let socket = rig.peer.socket::<Socket<'_>>(handle);
        while socket.can_send() && sent < 200_000 {
            sent += socket.send_slice(&[0x5a; 1_000]).expect("an open half");
        }
        let _ = socket.recv(|data| (data.len(), received += data.len()));
        received >= 200_000 && socket.state() == State::Established
    });
    assert!(rig.stack.counters().frames_out > pings / 2, "{:?} of {pings} pings", rig.stack);
    rig.finish();
}

#[test]
fn answers_and_connections_have_half_each_of_what_a_call_sends() {
    for tx in [1, 2, 8] {
        let mut rig = Rig::new();
        let connect = |port| rig.peer.connect(STACK_IPV4, ECHO_PORT, port, 1_024);
        let handles: Vec<SocketHandle> = (2_000..2_006).map(connect).collect();
        rig.run_for(Duration::from_secs(1));
        // Six segments on their way back, and twenty echoes, but nobody takes them.
        rig.budget.tx = 0;
        for handle in handles {
            rig.peer.socket::<Socket<'_>>(handle).send_slice(b"back").expect("a connection");
        }
        rig.step();
        for number in 0..20 {
            rig.offer(&IPV4.ping(number, b"x"));
        }
        rig.budget.tx = tx;
        let mut is_segment = Vec::new();
        while is_segment.len() < 24 {
            rig.poll_stack();
            assert_eq!(rig.sent.len(), tx);
            is_segment.extend(rig.sent.iter().map(|frame| frame[23] == 6));
        }
        let segments: Vec<usize> = is_segment
            .chunks(8)
            .map(|eight| eight.iter().filter(|&&is_segment| is_segment).count())
            .collect();
        assert_eq!(segments, [4, 2, 0], "half, while there are any");
        rig.finish();
    }
}

#[test]
fn a_call_takes_and_gives_no_more_than_its_budget_and_the_burst_hold() {
    let mut rig = acquainted();
    for number in 0..200 {
        rig.offer(&IPV4.ping(number, b"x"));
    }
    let mut echoed = 0;
    for budget in
        [Budget { rx: 0, tx: 0 }, Budget { rx: 0, tx: 5 }, Budget { rx: 7, tx: 0 }, Budget { rx: 7, tx: 3 }]
    {
        rig.budget = budget;
        // The rig checks the budget.
        rig.poll_stack();
        echoed += rig.sent.len();
    }
    assert_eq!((echoed, rig.stack.waiting(), rig.queue.len()), (3, 11, 186));
    // A burst with little room gets little, and nothing is lost of the rest.
    let mut out = Burst::new();
    while out.remaining_capacity() > 2 {
        out.push(rig.cache.take().expect("a buffer"));
    }
    rig.stack.poll(rig.now, &mut rig.queue, &mut rig.cache, &mut out, Budget { rx: 64, tx: 64 });
    assert!(out.is_full());
    echoed += 2;
    drop(out);
    rig.budget = Budget::default();
    echoed += rig.drain().len();
    assert_eq!(echoed, 200);
    rig.finish();
}

#[test]
fn a_stack_that_nobody_takes_frames_from_stops_taking_them() {
    let mut rig = acquainted();
    rig.budget = Budget { rx: 256, tx: 0 };
    for number in 0..256 {
        rig.offer(&IPV4.ping(number, b"x"));
    }
    for _ in 0..10 {
        rig.poll_stack();
    }
    let waiting = rig.stack.waiting();
    assert!(waiting <= Stack::MAX_BUFFERS && !rig.queue.is_empty(), "{waiting} wait");
    rig.finish();
}

#[test]
fn without_a_buffer_for_the_answer_a_frame_is_dropped_and_the_next_has_its_buffer() {
    let mut rig = acquainted();
    for number in 0..4 {
        rig.offer(&IPV4.ping(number, b"x"));
    }
    let hoard: Vec<Packet> = std::iter::from_fn(|| rig.cache.take()).collect();
    assert_eq!(hoard.len() + 4, rig.pool.count());
    rig.poll_stack();
    let echoed = rig.sent.len() as u64;
    assert_eq!(rig.stack.counters().drops[StackDrop::NoBuffer] + echoed, 4);
    assert!(echoed >= 2);
    drop(hoard);
    assert_eq!(rig.ask(&IPV4.ping(9, b"x")).len(), 1);
    rig.finish();
}

#[test]
fn a_stack_without_any_buffer_says_so_later() {
    let mut rig = Rig::new();
    let hoard: Vec<Packet> = std::iter::from_fn(|| rig.cache.take()).collect();
    for _ in 0..3 {
        rig.poll_stack();
        assert!(rig.sent.is_empty());
        assert!(rig.stack.poll_at().is_some_and(|at| at <= rig.now), "the probes are still to be sent");
    }
    drop(hoard);
    rig.poll_stack();
    assert_eq!(rig.sent.len(), 2);
    rig.finish();
}

#[test]
fn many_stations_are_served_however_few_the_stack_remembers() {
    let mut rig = acquainted();
    for round in 0..3 {
        for host in 2..=254 {
            let from = Mac([2, 0, 0, 0, 1, host]);
            let route = Route { from, source: IpAddress::v4(192, 0, 2, host), ..IPV4 };
            let answers = rig.ask(&route.ping(round, &[host]));
            assert_eq!(answers.len(), 1, "host {host}");
            assert_eq!(answers[0][..6], from.0);
            assert!(is_echo_reply(&answers[0], round));
        }
    }
    assert!(rig.cache.len() <= 2 * BULK);
    rig.finish();
}

//! Echo on TCP.

use forwarder::stack::{Budget, CONNECTIONS, Duration, ECHO_PORT};
use netdrv::device::Mac;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::wire::{ArpOperation, IpAddress, TcpControl};

use crate::craft::{Route, broadcast};
use crate::rig::{Loss, PEER_IPV4, PEER_MAC, Rig, STACK_IPV4, STACK_IPV6, STACK_MAC};

/// Byte `index` of what connection `seed` sends.
fn pattern(seed: usize, index: usize) -> u8 {
    let word = (index / 8 + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes()[index % 8]
}

/// One connection that sends `total` bytes, closes its half, and compares what comes back.
struct Transfer {
    handle: SocketHandle,
    seed: usize,
    total: usize,
    sent: usize,
    received: usize,
}

impl Transfer {
    fn start(rig: &mut Rig, address: IpAddress, seed: usize, total: usize) -> Transfer {
        let handle = rig.peer.connect(address, ECHO_PORT, 40_000 + seed as u16, 16 * 1024);
        Transfer { handle, seed, total, sent: 0, received: 0 }
    }

    /// Writes and reads what can be; says whether all has come back and the connection is closed.
    fn advance(&mut self, rig: &mut Rig) -> bool {
        self.write(rig);
        self.read(rig);
        let state = rig.peer.socket::<Socket<'_>>(self.handle).state();
        self.received == self.total && matches!(state, State::TimeWait | State::Closed)
    }

    fn write(&mut self, rig: &mut Rig) {
        let socket = rig.peer.socket::<Socket<'_>>(self.handle);
        while socket.can_send() && self.sent < self.total {
            let end = self.total.min(self.sent + 4_096);
            let chunk: Vec<u8> = (self.sent..end).map(|index| pattern(self.seed, index)).collect();
            self.sent += socket.send_slice(&chunk).expect("an open half");
            if self.sent == self.total {
                socket.close();
            }
        }
    }

    fn read(&mut self, rig: &mut Rig) {
        let socket = rig.peer.socket::<Socket<'_>>(self.handle);
        while socket.can_recv() {
            let bytes = socket.recv(|data| (data.len(), data.to_vec())).expect("data");
            for byte in bytes {
                assert_eq!(
                    byte,
                    pattern(self.seed, self.received),
                    "byte {} of {}",
                    self.received,
                    self.seed
                );
                self.received += 1;
            }
        }
    }
}

fn state(rig: &mut Rig, handle: SocketHandle) -> State {
    rig.peer.socket::<Socket<'_>>(handle).state()
}

#[test]
fn ten_megabytes_come_back_over_a_wire_that_loses_one_frame_in_a_hundred() {
    let mut rig = Rig::new();
    rig.loss = Loss::one_in(100);
    let mut transfer = Transfer::start(&mut rig, STACK_IPV4, 1, 10_000_000);
    rig.run_until(Duration::from_secs(3_600), |rig| transfer.advance(rig));
    rig.finish();
}

#[test]
fn fifty_connections_are_served_at_once() {
    let mut rig = Rig::new();
    let address = |seed| if seed % 2 == 0 { STACK_IPV4 } else { STACK_IPV6 };
    let mut transfers: Vec<Transfer> =
        (0..50).map(|seed| Transfer::start(&mut rig, address(seed), seed, 100_000)).collect();
    rig.run_until(Duration::from_secs(5), |rig| {
        transfers.iter().all(|transfer| state(rig, transfer.handle) == State::Established)
    });
    rig.run_until(Duration::from_secs(60), |rig| {
        transfers.iter_mut().map(|transfer| transfer.advance(rig)).filter(|&done| !done).count() == 0
    });
    rig.finish();
}

#[test]
fn no_connection_starves_behind_the_others() {
    let mut rig = Rig::new();
    // Less than a frame a connection in a call.
    rig.budget = Budget { rx: 32, tx: 8 };
    let mut transfers: Vec<Transfer> =
        (0..CONNECTIONS).map(|seed| Transfer::start(&mut rig, STACK_IPV4, seed, usize::MAX)).collect();
    let received = |transfers: &[Transfer]| transfers.iter().map(|transfer| transfer.received).sum::<usize>();
    rig.run_until(Duration::from_secs(600), |rig| {
        for transfer in &mut transfers {
            transfer.advance(rig);
        }
        received(&transfers) > 5_000_000
    });
    let mean = received(&transfers) / CONNECTIONS;
    for transfer in &transfers {
        assert!(transfer.received >= mean / 2, "{} of {mean} bytes", transfer.received);
    }
    rig.finish();
}

#[test]
fn one_connection_too_many_is_refused() {
    let mut rig = Rig::new();
    let connect = |rig: &mut Rig, local| rig.peer.connect(STACK_IPV4, ECHO_PORT, local, 1_024);
    let handles: Vec<SocketHandle> =
        (0..CONNECTIONS as u16).map(|index| connect(&mut rig, 1_000 + index)).collect();
    rig.run_until(Duration::from_secs(10), |rig| {
        handles.iter().all(|&handle| state(rig, handle) == State::Established)
    });
    let refused = connect(&mut rig, 3_000);
    rig.run_until(Duration::from_secs(1), |rig| state(rig, refused) == State::Closed);
    // A place becomes free when a connection ends, however it does.
    for (index, &handle) in handles.iter().take(2).enumerate() {
        let socket = rig.peer.socket::<Socket<'_>>(handle);
        if index == 0 {
            socket.close();
        } else {
            socket.abort();
        }
        rig.run_until(Duration::from_secs(5), |rig| {
            matches!(state(rig, handle), State::TimeWait | State::Closed)
        });
        // The stack hears the last of it.
        rig.run_for(Duration::from_millis(20));
        let next = connect(&mut rig, 4_000 + index as u16);
        rig.run_until(Duration::from_secs(10), |rig| state(rig, next) == State::Established);
    }
    rig.finish();
}

#[test]
fn places_are_used_again_and_again() {
    let mut rig = Rig::new();
    for seed in 0..3 * CONNECTIONS {
        let mut transfer = Transfer::start(&mut rig, STACK_IPV4, seed, 3_000);
        rig.run_until(Duration::from_secs(10), |rig| transfer.advance(rig));
        // The stack hears the last of it.
        rig.run_for(Duration::from_millis(20));
        rig.peer.sockets.remove(transfer.handle);
    }
    rig.finish();
}

#[test]
fn what_can_not_be_sent_back_yet_is_not_read() {
    let mut rig = Rig::new();
    let mut transfer = Transfer::start(&mut rig, STACK_IPV4, 1, 500_000);
    // The peer writes but does not read: both buffers of both hosts fill, and then nothing moves.
    let end = rig.now + Duration::from_secs(30);
    while rig.now < end {
        transfer.write(&mut rig);
        rig.step();
    }
    let stuck = rig.peer.socket::<Socket<'_>>(transfer.handle).send_queue();
    assert!(stuck > 0 && transfer.sent < 100_000, "{} sent, {stuck} of them stuck", transfer.sent);
    assert_eq!(rig.peer.socket::<Socket<'_>>(transfer.handle).recv_queue(), 16 * 1_024);
    // When it reads again everything comes.
    rig.run_until(Duration::from_secs(300), |rig| transfer.advance(rig));
    rig.finish();
}

#[test]
fn a_half_that_is_closed_early_gets_the_rest() {
    let mut rig = Rig::new();
    let handle = rig.peer.connect(STACK_IPV6, ECHO_PORT, 2_000, 4_096);
    rig.run_until(Duration::from_secs(5), |rig| state(rig, handle) == State::Established);
    let socket = rig.peer.socket::<Socket<'_>>(handle);
    socket.send_slice(&[0x5a; 4_096]).expect("room");
    socket.close();
    let mut received = Vec::new();
    rig.run_until(Duration::from_secs(5), |rig| {
        let socket = rig.peer.socket::<Socket<'_>>(handle);
        let _ = socket.recv(|data| (data.len(), received.extend_from_slice(data)));
        socket.state() == State::TimeWait
    });
    assert_eq!(received, [0x5a; 4_096]);
    rig.finish();
}

#[test]
fn who_only_pretends_to_connect_is_rid_of_soon() {
    let mut rig = Rig::settled();
    let ghosts = |index: u8| Route {
        from: Mac([2, 0, 0, 0, 0, index]),
        to: STACK_MAC,
        source: IpAddress::v4(192, 0, 2, 100 + index),
        target: STACK_IPV4,
    };
    for index in 0..CONNECTIONS as u8 {
        rig.offer(&ghosts(index).tcp((1_000, ECHO_PORT), TcpControl::Syn, (1, None), b""));
        rig.poll_stack();
    }
    let early = rig.peer.connect(STACK_IPV4, ECHO_PORT, 2_000, 1_024);
    rig.run_until(Duration::from_secs(1), |rig| state(rig, early) == State::Closed);
    rig.run_for(Duration::from_secs(6));
    let late = rig.peer.connect(STACK_IPV4, ECHO_PORT, 2_001, 1_024);
    rig.run_until(Duration::from_secs(2), |rig| state(rig, late) == State::Established);
    rig.finish();
}

#[test]
fn a_peer_that_vanishes_gives_its_place_back_and_one_that_is_only_quiet_keeps_it() {
    let mut rig = Rig::new();
    let handle = rig.peer.connect(STACK_IPV4, ECHO_PORT, 2_000, 1_024);
    rig.run_until(Duration::from_secs(5), |rig| state(rig, handle) == State::Established);
    rig.run_for(Duration::from_secs(600));
    assert_eq!(state(&mut rig, handle), State::Established);
    // Nothing of the peer's arrives any more; after a while the stack resets the connection.
    let gone_until = rig.now + Duration::from_secs(120);
    let mut reset = false;
    while rig.now < gone_until {
        let frames = rig.peer.device.sent.len();
        rig.poll_stack();
        reset |= rig.sent.iter().any(|frame| frame.len() == 54 && frame[47] & 0x04 != 0);
        rig.now = rig.stack.poll_at().unwrap_or(gone_until).max(rig.now + Duration::from_millis(1));
        assert_eq!(frames, 0);
    }
    assert!(reset);
    rig.finish();
}

#[test]
fn an_old_segment_of_nobodys_is_reset() {
    let mut rig = Rig::settled();
    let route = Route { from: PEER_MAC, to: STACK_MAC, source: PEER_IPV4, target: STACK_IPV4 };
    rig.ask(&Route { to: broadcast(), ..route }.arp(ArpOperation::Request));
    let answers = rig.ask(&route.tcp((9, ECHO_PORT), TcpControl::None, (1, Some(77)), b"who?"));
    assert_eq!((answers.len(), answers[0][47] & 0x04), (1, 0x04));
    rig.finish();
}

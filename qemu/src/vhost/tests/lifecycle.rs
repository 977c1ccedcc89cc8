//! What a frontend may do to a card in its life: reset it, change its memory, leave, come back.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use super::guest::{Guest, PATIENCE, Refuses, eventually};
use super::{Bench, Kept, silence};
use crate::vhost::{Drive, Faults, TrafficConfig, TrafficPort};

/// One frame each way.
fn ping(bench: &Bench, guest: &mut Guest, kept: &Kept, mark: u8) {
    bench.port.inject([mark; 60]);
    assert_eq!(guest.expect(0), [mark; 60]);
    guest.refill(0, 1);
    assert!(guest.send(0, &[!mark; 60]));
    guest.kick(0);
    let (_, frame) = eventually(|| kept.0.lock().unwrap().pop());
    assert_eq!(frame, [!mark; 60]);
}

fn bench() -> (Bench, Kept) {
    let bench = Bench::new(TrafficConfig { queue_pairs: 2, ..Default::default() });
    let kept = Kept::default();
    bench.port.start(silence, kept.sink());
    (bench, kept)
}

#[test]
fn a_stopped_ring_goes_on_where_it_stopped() {
    let (bench, kept) = bench();
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    for round in 1..=3 {
        ping(&bench, &mut guest, &kept, round);
        let [receive, transmit] = guest.stop_pair(0);
        assert_eq!((receive, transmit), (u32::from(round), u32::from(round)));
        guest.start_ring(0, receive as u16);
        guest.start_ring(1, transmit as u16);
    }
    assert_eq!(bench.port.stop().faults, Faults::default());
}

#[test]
fn a_reset_begins_anew_with_other_features() {
    let (bench, kept) = bench();
    let mut guest = Guest::start(bench.port.path(), 2, 64);
    ping(&bench, &mut guest, &kept, 1);
    for _ in 0..3 {
        for pair in 0..2 {
            guest.stop_pair(pair);
        }
        guest.frontend.set_features(guest.frontend.get_features().unwrap()).unwrap();
        for pair in 0..2 {
            guest.rings[2 * pair..2 * pair + 2].iter_mut().for_each(|ring| ring.reset());
            guest.start_pair(pair);
            guest.refill(pair, 64);
        }
        ping(&bench, &mut guest, &kept, 2);
    }
    assert_eq!(bench.port.stop().faults, Faults::default());
}

#[test]
fn a_disabled_pair_gets_nothing() {
    let bench = Bench::new(TrafficConfig { queue_pairs: 2, drive: Drive::Poll, ..Default::default() });
    let mut guest = Guest::start(bench.port.path(), 2, 64);
    for index in [2, 3] {
        guest.frontend.set_vring_enable(index, false).unwrap();
    }
    bench.port.start(super::numbered(40, 60), |_: u16, _: &[u8]| {});
    for _ in 0..40 {
        guest.expect(0);
    }
    assert_eq!(guest.receive(1), None);
    bench.port.wait_running(1, PATIENCE).unwrap();
    assert_eq!(bench.port.stop().pairs[1].frames_in, 0);
}

#[test]
fn frames_that_waited_for_a_pair_go_to_those_that_are_left() {
    let bench = Bench::new(TrafficConfig {
        queue_pairs: 2,
        steering: crate::vhost::Steering::RoundRobin,
        ..Default::default()
    });
    let mut guest = Guest::connect(bench.port.path(), 2, 64, Refuses::default());
    (0..2).for_each(|pair| guest.start_pair(pair));
    bench.port.wait_running(2, PATIENCE).unwrap();
    guest.refill(0, 64);
    (0..20).for_each(|mark| bench.port.inject([mark; 60]));
    eventually(|| (bench.port.counts().total().frames_in == 10).then_some(()));
    for index in [2, 3] {
        guest.frontend.set_vring_enable(index, false).unwrap();
    }
    for _ in 0..20 {
        guest.expect(0);
    }
}

#[test]
fn memory_may_change_while_frames_move() {
    let (bench, kept) = bench();
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    ping(&bench, &mut guest, &kept, 1);
    guest.share_memory();
    ping(&bench, &mut guest, &kept, 2);

    // One more region, and a frame sent out of it.
    const BASE: u64 = 0x1_0000_0000;
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x1_0000).unwrap();
    let range = (GuestAddress(BASE), 0x1_0000, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
    let more = GuestMemoryMmap::<()>::from_ranges_with_files([range]).unwrap();
    more.write_slice(&[7; 60], GuestAddress(BASE + 12)).unwrap();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE,
        memory_size: 0x1_0000,
        userspace_addr: 0x6f00_0000_0000,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    };
    assert!(guest.frontend.get_max_mem_slots().unwrap() >= 32);
    guest.frontend.add_mem_region(&region).unwrap();
    let send_from_there = |guest: &mut Guest| {
        let ring = &mut guest.rings[1];
        ring.describe(5, GuestAddress(BASE), 72, 0, 0);
        ring.offer(5);
        ring.kick_if_wanted();
        eventually(|| ring.used());
    };
    send_from_there(&mut guest);
    assert_eq!(eventually(|| kept.0.lock().unwrap().pop()), (0, vec![7; 60]));

    guest.frontend.remove_mem_region(&region).unwrap();
    send_from_there(&mut guest);
    let report = bench.port.stop();
    assert_eq!(report.faults, Faults { chain: 1, ..Default::default() });
}

#[test]
fn a_frontend_may_leave_and_the_next_one_come() {
    let (bench, kept) = bench();
    for mark in 1..=3 {
        let mut guest = Guest::start(bench.port.path(), 1, 64);
        bench.port.wait_connected(PATIENCE).unwrap();
        ping(&bench, &mut guest, &kept, mark);
    }
    eventually(|| (bench.port.wait_running(1, std::time::Duration::ZERO).is_err()).then_some(()));
    let report = bench.port.stop();
    assert_eq!(report.faults, Faults::default());
    assert_eq!(report.total().frames_out, 3);
}

/// Sends `SET_VRING_ENABLE` as QEMU does, which the frontend's library would not; returns the reply if one is asked for.
fn enable_as_qemu_does(socket: &mut UnixStream, flags: u32, index: u32, enable: u32) -> Option<[u32; 5]> {
    const NEED_REPLY: u32 = 8;
    let request = [18, 1 | flags, 8, index, enable].map(u32::to_ne_bytes).concat();
    socket.write_all(&request).unwrap();
    (flags & NEED_REPLY != 0).then(|| {
        let mut reply = [0; 20];
        socket.read_exact(&mut reply).unwrap();
        std::array::from_fn(|word| u32::from_ne_bytes(*reply[4 * word..].first_chunk().unwrap()))
    })
}

#[test]
fn a_ring_may_be_enabled_before_features_are_accepted() {
    let (bench, kept) = bench();
    let mut socket = UnixStream::connect(bench.port.path()).unwrap();
    assert_eq!(enable_as_qemu_does(&mut socket, 0, 1, 1), None);
    assert_eq!(enable_as_qemu_does(&mut socket, 8, 0, 0), Some([18, 5, 8, 0, 0]));
    assert_eq!(bench.port.counts().faults, Faults::default());
    // No such ring.
    assert_eq!(enable_as_qemu_does(&mut socket, 8, 9, 1), Some([18, 5, 8, 1, 0]));
    assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the connection is closed");

    ping(&bench, &mut Guest::start(bench.port.path(), 1, 64), &kept, 1);
    assert_eq!(bench.port.stop().faults, Faults { request: 1, ..Default::default() });
}

#[test]
fn what_makes_no_sense_ends_the_connection_and_not_the_port() {
    let (bench, kept) = bench();
    let refused: [fn(&mut Guest) -> bool; 6] = [
        |guest| guest.frontend.set_features(u64::MAX).is_err(),
        |guest| guest.frontend.set_vring_num(0, 100).is_err(),
        |guest| guest.frontend.set_vring_num(0, 0).is_err(),
        |guest| guest.frontend.set_vring_addr(0, &Default::default()).is_err(),
        |guest| {
            let overlapping = VhostUserMemoryRegionInfo { guest_phys_addr: 0x1000, ..guest.region() };
            guest.frontend.set_mem_table(&[guest.region(), overlapping]).is_err()
        },
        |guest| guest.frontend.reset_device().is_err(),
    ];
    let refusals = refused.len() as u64;
    for provoke in refused {
        let mut guest = Guest::connect(bench.port.path(), 1, 64, Refuses::default());
        assert!(provoke(&mut guest));
    }
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    ping(&bench, &mut guest, &kept, 1);
    let report = bench.port.stop();
    assert_eq!(report.faults.total(), report.faults.request);
    // The last was refused by the frontend's own library: nothing was sent.
    assert_eq!(report.faults.request, refusals - 1);
    assert!(report.last_refusal.is_some());
}

#[test]
fn a_path_is_taken_once_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("port");
    let port = TrafficPort::listen(&path, TrafficConfig::default()).unwrap();
    let error = TrafficPort::listen(&path, TrafficConfig::default()).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(port.wait_connected(std::time::Duration::from_millis(1)).is_err());
    port.stop();
    assert!(!path.exists());
    for queue_pairs in [0, 129] {
        let config = TrafficConfig { queue_pairs, ..Default::default() };
        assert!(TrafficPort::listen(&path, config).unwrap_err().to_string().contains("1 to 128"));
    }
}

#[test]
fn a_card_has_up_to_128_pairs() {
    let bench = Bench::new(TrafficConfig { queue_pairs: 128, ..Default::default() });
    let mut guest = Guest::start(bench.port.path(), 128, 4);
    bench.port.wait_running(128, PATIENCE).unwrap();
    assert!(guest.send(127, &[1; 60]));
    guest.kick(127);
    eventually(|| (bench.port.counts().pairs[127].frames_out == 1).then_some(()));
}

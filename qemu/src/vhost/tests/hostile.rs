//! Guests that break the rules: each breach is counted, and what is right still works.

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::driver::{NEXT, STRIDE, WRITE};
use super::guest::{Guest, Refuses, eventually};
use super::{Bench, Kept, silence};
use crate::vhost::{Drive, Faults, TrafficConfig, Window};

/// A chain that is none: a function that describes it, and whether the port can give it back.
type Chain = fn(&Guest) -> u16;

/// Puts `chains` on the transmit ring, then a good frame; returns the faults that the port counted.
fn faults_of(chains: &[Chain]) -> Faults {
    let bench = Bench::new(TrafficConfig::default());
    let kept = Kept::default();
    bench.port.start(silence, kept.sink());
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    for chain in chains {
        let head = chain(&guest);
        guest.rings[1].offer(head);
    }
    assert!(guest.send(0, &[1; 60]));
    guest.kick(0);
    let frame = eventually(|| kept.0.lock().unwrap().pop());
    assert_eq!(frame, (0, vec![1; 60]));
    let report = bench.port.stop();
    assert_eq!(report.total().frames_out, 1);
    report.faults
}

#[test]
fn a_chain_that_is_none_is_counted() {
    let chains: [Chain; 7] = [
        // Outside of memory, and over its end.
        |guest| {
            guest.rings[1].describe(50, GuestAddress(u64::MAX - 10), 100, 0, 0);
            50
        },
        |guest| {
            guest.rings[1].describe(51, GuestAddress(2 * STRIDE - 10), 100, 0, 0);
            51
        },
        // For the device to write.
        |guest| {
            guest.rings[1].describe(52, guest.rings[1].buffer(52), 72, WRITE, 0);
            52
        },
        // Biting its tail.
        |guest| {
            guest.rings[1].describe(53, guest.rings[1].buffer(53), 72, NEXT, 53);
            53
        },
        // Leaving the table.
        |guest| {
            guest.rings[1].describe(54, guest.rings[1].buffer(54), 72, NEXT, 64);
            54
        },
        // Longer than any frame.
        |guest| {
            guest.rings[1].describe(55, guest.rings[1].buffer(0), 80_000, 0, 0);
            55
        },
        // No descriptor of this ring.
        |_| 64,
    ];
    let chain = chains.len() as u64;
    assert_eq!(faults_of(&chains), Faults { chain, ..Default::default() });
}

#[test]
fn a_header_that_asks_for_an_offload_is_counted() {
    let chains: [Chain; 2] = [
        |guest| {
            let buffer = guest.rings[1].buffer(50);
            guest.memory.write_slice(&[1; 72], buffer).unwrap();
            guest.rings[1].describe(50, buffer, 72, 0, 0);
            50
        },
        // Cut short.
        |guest| {
            guest.rings[1].describe(51, guest.rings[1].buffer(51), 11, 0, 0);
            51
        },
    ];
    assert_eq!(faults_of(&chains), Faults { header: 2, ..Default::default() });
}

#[test]
fn the_number_of_buffers_means_nothing_on_the_way_out() {
    let bench = Bench::new(TrafficConfig::default());
    let kept = Kept::default();
    bench.port.start(silence, kept.sink());
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    let buffer = guest.rings[1].buffer(0);
    guest.memory.write_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5, 6, 7], buffer).unwrap();
    guest.rings[1].describe(0, buffer, 15, 0, 0);
    guest.rings[1].offer(0);
    guest.kick(0);
    assert_eq!(eventually(|| kept.0.lock().unwrap().pop()), (0, vec![5, 6, 7]));
}

#[test]
fn a_frame_may_be_scattered_over_a_chain() {
    let bench = Bench::new(TrafficConfig::default());
    let kept = Kept::default();
    bench.port.start(silence, kept.sink());
    let mut guest = Guest::connect(bench.port.path(), 1, 64, Refuses::default());
    guest.start_pair(0);
    let buffers: Vec<_> = (0..3).map(|id| guest.rings[0].buffer(id)).collect();
    // The header's end, the frame's begin and its end lie in three buffers.
    for (index, flags) in [(0, 0), (1, WRITE)] {
        let ring = &mut guest.rings[1 - index];
        ring.describe(0, buffers[0], 5, flags | NEXT, 1);
        ring.describe(1, buffers[1], 17, flags | NEXT, 2);
        ring.describe(2, buffers[2], 50, flags, 0);
    }
    bench.port.inject((0..60).collect::<Vec<u8>>());
    guest.rings[0].offer(0);
    guest.rings[0].kick_if_wanted();
    assert_eq!(eventually(|| guest.rings[0].used()), (0, 72));
    let read = |address, length| {
        let mut bytes = vec![0; length];
        guest.memory.read_slice(&mut bytes, address).unwrap();
        bytes
    };
    assert_eq!(read(buffers[1], 17)[5..], [1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(read(buffers[2], 50), (10..60).collect::<Vec<u8>>());

    guest.memory.write_slice(&[0; 17], buffers[1]).unwrap();
    guest.rings[1].offer(0);
    guest.rings[1].kick_if_wanted();
    let (_, frame) = eventually(|| kept.0.lock().unwrap().pop());
    assert_eq!(frame, [&[0; 10][..], &(10..60).collect::<Vec<u8>>()].concat());
}

#[test]
fn a_receive_buffer_that_is_none_is_counted_and_the_frame_goes_to_the_next() {
    let bench = Bench::new(TrafficConfig::default());
    let mut guest = Guest::connect(bench.port.path(), 1, 64, Refuses::default());
    guest.start_pair(0);
    let ring = &mut guest.rings[0];
    ring.describe(0, ring.buffer(0), 2048, 0, 0);
    ring.describe(1, GuestAddress(1 << 40), 2048, WRITE, 0);
    ring.describe(2, ring.buffer(2), 20, WRITE | NEXT, 2);
    ring.describe(3, ring.buffer(3), 2048, WRITE, 0);
    [0, 1, 2, 3].into_iter().for_each(|id| ring.offer(id));
    bench.port.inject([9; 1400]);
    let used = [(); 4].map(|()| eventually(|| guest.rings[0].used()));
    assert_eq!(used, [(0, 0), (1, 0), (2, 0), (3, 1412)]);
    assert_eq!(bench.port.stop().faults, Faults { chain: 3, ..Default::default() });
}

#[test]
fn a_frame_that_fits_no_buffer_is_counted_and_the_buffer_stays() {
    // A frame that does not go in leaves its place in the window to the next.
    let bench = Bench::new(TrafficConfig { takes: Some(Window::new(1)), ..Default::default() });
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    bench.port.inject([9; 2037]);
    bench.port.inject([8; 60]);
    assert_eq!(guest.expect(0), [8; 60]);
    let report = bench.port.stop();
    assert_eq!(report.faults, Faults { oversize: 1, ..Default::default() });
    assert_eq!(report.total().frames_in, 1);
}

#[test]
fn a_ring_whose_index_jumps_is_left_alone_until_it_is_set_up_anew() {
    for drive in [Drive::Poll, Drive::Event] {
        let bench = Bench::new(TrafficConfig { drive, ..Default::default() });
        let mut guest = Guest::start(bench.port.path(), 1, 64);
        guest.rings[1].set_available_index(1000);
        guest.kick(0);
        eventually(|| (bench.port.counts().faults.ring == 1).then_some(()));
        // The other ring of the pair lives on.
        bench.port.inject([1; 60]);
        guest.expect(0);

        guest.stop_pair(0);
        guest.rings.iter_mut().for_each(|ring| ring.reset());
        guest.start_pair(0);
        guest.send(0, &[1; 60]);
        guest.kick(0);
        eventually(|| (bench.port.counts().total().frames_out == 1).then_some(()));
        assert_eq!(bench.port.stop().faults, Faults { ring: 1, ..Default::default() });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever lies in the rings, the port neither dies nor hangs, and serves the next frontend.
    #[test]
    fn garbage_in_a_ring_is_survived(
        descriptors in prop::collection::vec((0..2 * STRIDE + 4096, 0..4000_u32, 0..8_u16, 0..20_u16), 16),
        heads in prop::collection::vec(0..20_u16, 1..40),
        receives: bool,
    ) {
        let bench = Bench::new(TrafficConfig::default());
        let kept = Kept::default();
        bench.port.start(silence, kept.sink());
        {
            let mut guest = Guest::connect(bench.port.path(), 1, 16, Refuses::default());
            let ring = &mut guest.rings[usize::from(!receives)];
            for (id, &(address, length, flags, next)) in descriptors.iter().enumerate() {
                ring.describe(id as u16, GuestAddress(address), length, flags, next);
            }
            heads.iter().for_each(|&head| ring.offer(head));
            guest.start_pair(0);
            (0..4).for_each(|mark| bench.port.inject(vec![mark; 700]));
            // A request is answered after the garbage has been looked at, or not at all.
            guest.kick(0);
            guest.share_memory();
        }
        let mut guest = Guest::start(bench.port.path(), 1, 64);
        prop_assert!(guest.send(0, b"still there"));
        guest.kick(0);
        eventually(|| kept.frames().iter().any(|(_, frame)| frame == b"still there").then_some(()));
    }
}

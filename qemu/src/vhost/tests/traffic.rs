//! Frames in and out: nothing lost, changed or out of order, on the queue where they belong.

use std::io::Write;

use super::guest::{Guest, Refuses, eventually};
use super::{Bench, Kept, number, numbered, silence};
use crate::vhost::{Drive, Faults, Feature, Offer, PairCounts, Steering, TrafficConfig, Window, flow_queue};

const EVERY_DRIVE: [Drive; 3] = [Drive::Poll, Drive::PollKicked, Drive::Event];

/// Sends `count` frames through a reflecting guest and checks that each comes back once and in order.
fn reflects(config: TrafficConfig, pairs: usize, size: u16, refuses: Refuses, count: u32) -> Vec<PairCounts> {
    let bench = Bench::new(config);
    let mut guest = Guest::start_with(bench.port.path(), pairs, size, refuses);
    let kept = Kept::default();
    bench.port.start(numbered(count, 60), kept.sink());
    guest.reflect_until(|| kept.len() >= count as usize);
    let report = bench.port.stop();
    assert_eq!(report.faults, Faults::default());
    assert_eq!(report.total().frames_in, u64::from(count));
    assert_eq!(report.total().frames_out, u64::from(count));
    assert_eq!(report.total().bytes_out, u64::from(count) * 60);
    for queue in 0..pairs as u16 {
        let numbers: Vec<_> = kept
            .frames()
            .iter()
            .filter(|(from, _)| *from == queue)
            .map(|(_, frame)| {
                assert!(frame.len() == 60 && frame[4..].iter().all(|&byte| byte == number(frame) as u8));
                number(frame)
            })
            .collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "queue {queue} is out of order");
        assert_eq!(numbers.len() as u64, report.pairs[usize::from(queue)].frames_out);
    }
    report.pairs
}

#[test]
fn every_frame_comes_back_in_order() {
    for drive in EVERY_DRIVE {
        for event_index in [false, true] {
            let config = TrafficConfig { drive, ..Default::default() };
            let refuses = Refuses { event_index, ..Default::default() };
            reflects(config, 1, 64, refuses, 2_000);
        }
    }
}

#[test]
fn the_index_wraps_and_nothing_is_lost() {
    for drive in EVERY_DRIVE {
        let config = TrafficConfig { drive, ..Default::default() };
        reflects(config, 1, 256, Refuses::default(), 200_000);
    }
}

#[test]
fn queues_are_used_in_turn() {
    let config = TrafficConfig { queue_pairs: 64, steering: Steering::RoundRobin, ..Default::default() };
    let pairs = reflects(config, 64, 16, Refuses::default(), 6_400);
    assert!(pairs.iter().all(|pair| pair.frames_in == 100), "{pairs:?}");
}

#[test]
fn a_driver_of_before_virtio_1_gets_the_short_header() {
    let refuses = Refuses { version_1: true, ..Default::default() };
    reflects(TrafficConfig::default(), 1, 64, refuses, 500);
}

#[test]
fn in_order_is_offered_when_asked_for() {
    let features = vec![Feature::EventIndex, Feature::InOrder];
    reflects(TrafficConfig { features, ..Default::default() }, 1, 64, Refuses::default(), 500);
    reflects(TrafficConfig { features: vec![], ..Default::default() }, 1, 64, Refuses::default(), 500);
}

#[test]
fn flows_go_to_the_queue_that_the_hash_names_among_those_in_use() {
    let bench = Bench::new(TrafficConfig { queue_pairs: 4, ..Default::default() });
    // A guest that uses fewer pairs than it is offered.
    let mut guest = Guest::start(bench.port.path(), 3, 64);
    bench.port.wait_running(3, super::guest::PATIENCE).unwrap();
    let frames: Vec<_> = (0..90).map(udp).collect();
    frames.iter().for_each(|frame| bench.port.inject(frame.as_slice()));
    for frame in &frames {
        assert_eq!(guest.expect(flow_queue(frame, 3)), *frame);
    }
    let report = bench.port.stop();
    assert!(report.pairs[..3].iter().all(|pair| pair.frames_in > 0), "{report}");
    assert_eq!(report.pairs[3], PairCounts::default());
}

fn udp(flow: u8) -> Vec<u8> {
    let builder =
        etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, flow], [10, 1, 0, 1], 64);
    let mut frame = Vec::new();
    builder.udp(4000, 9).write(&mut frame, &[flow; 18]).unwrap();
    frame
}

#[test]
fn frames_wait_for_buffers() {
    for drive in EVERY_DRIVE {
        let bench = Bench::new(TrafficConfig { drive, ..Default::default() });
        let mut guest = Guest::connect(bench.port.path(), 1, 64, Refuses::default());
        guest.start_pair(0);
        bench.port.start(numbered(100, 60), |_: u16, _: &[u8]| {});
        let mut seen = 0;
        for buffers in [1, 5, 30, 64] {
            guest.refill(0, buffers);
            for _ in 0..buffers {
                assert_eq!(number(&guest.expect(0)), seen);
                seen += 1;
            }
            assert_eq!(guest.receive(0), None, "more frames than buffers");
        }
        assert_eq!(bench.port.stop().total().no_buffer, 0);
    }
}

#[test]
fn a_flood_counts_what_found_no_buffer() {
    let bench = Bench::new(TrafficConfig { offer: Offer::Flood, ..Default::default() });
    let mut guest = Guest::connect(bench.port.path(), 1, 64, Refuses::default());
    guest.start_pair(0);
    guest.refill(0, 10);
    bench.port.start(numbered(1_000, 60), |_: u16, _: &[u8]| {});
    let total = eventually(|| Some(bench.port.counts().total()).filter(|all| all.no_buffer >= 990));
    assert_eq!((total.frames_in, total.no_buffer), (10, 990));
    for expected in 0..10 {
        assert_eq!(number(&guest.expect(0)), expected);
    }
}

#[test]
fn the_window_bounds_what_is_in_the_guest() {
    for drive in EVERY_DRIVE {
        let window = Window::new(8);
        let ends = Some(window.clone());
        let bench =
            Bench::new(TrafficConfig { drive, takes: ends.clone(), gives: ends, ..Default::default() });
        let mut guest = Guest::start(bench.port.path(), 1, 64);
        let kept = Kept::default();
        bench.port.start(numbered(500, 60), kept.sink());
        eventually(|| (window.in_flight() == 8).then_some(()));
        let held: Vec<_> = (0..8).map(|_| guest.expect(0)).collect();
        assert_eq!(guest.receive(0), None, "more frames than the window has room for");
        held.iter().for_each(|frame| assert!(guest.send(0, frame)));
        guest.reflect_until(|| kept.len() >= 500);
        assert_eq!(bench.port.stop().total().frames_out, 500);
        assert_eq!(window.in_flight(), 0);
    }
}

#[test]
fn frames_of_every_length_cross_unchanged() {
    let bench = Bench::new(TrafficConfig::default());
    let mut guest = Guest::start(bench.port.path(), 1, 64);
    let kept = Kept::default();
    bench.port.start(silence, kept.sink());
    for length in [0, 1, 13, 14, 59, 60, 61, 1514, 1518, 2036] {
        let frame: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
        bench.port.inject(frame.as_slice());
        assert_eq!(guest.expect(0), frame, "{length} bytes in");
        assert!(guest.send(0, &frame));
        guest.kick(0);
        let (queue, out) = eventually(|| kept.0.lock().unwrap().pop());
        assert!(queue == 0 && out == frame, "{length} bytes out");
    }
    assert_eq!(bench.port.stop().faults, Faults::default());
}

#[test]
fn the_guest_is_interrupted_only_when_it_asks() {
    for event_index in [false, true] {
        let bench = Bench::new(TrafficConfig::default());
        let refuses = Refuses { event_index: !event_index, ..Default::default() };
        let mut guest = Guest::start_with(bench.port.path(), 1, 64, refuses);
        guest.rings[0].ask_for_no_interrupt();
        bench.port.inject([0; 60]);
        guest.expect(0);
        // The port looks whether it has to interrupt before it takes the next order.
        bench.port.inject([1; 60]);
        guest.expect(0);
        assert!(guest.rings[0].call.read().is_err(), "an interrupt that nobody asked for");
        guest.rings[0].ask_for_interrupt();
        bench.port.inject([2; 60]);
        guest.expect(0);
        eventually(|| guest.rings[0].call.read().ok());
    }
}

#[test]
fn a_polling_port_wants_no_kicks_unless_it_is_to_and_an_idle_one_does() {
    let without_event_index = Refuses { event_index: true, ..Default::default() };
    let bench = Bench::new(TrafficConfig { drive: Drive::Poll, ..Default::default() });
    let guest = Guest::start_with(bench.port.path(), 1, 64, without_event_index);
    bench.port.wait_running(1, super::guest::PATIENCE).unwrap();
    assert_eq!(guest.rings[1].used_flags(), 1, "VIRTQ_USED_F_NO_NOTIFY");
    drop(bench);

    for drive in [Drive::PollKicked, Drive::Event] {
        let bench = Bench::new(TrafficConfig { drive, ..Default::default() });
        let guest = Guest::start_with(bench.port.path(), 1, 64, without_event_index);
        eventually(|| (guest.rings[1].used_flags() == 0).then_some(()));
    }
}

#[test]
fn an_injected_frame_waits_for_a_buffer_in_a_flood() {
    let bench = Bench::new(TrafficConfig { offer: Offer::Flood, ..Default::default() });
    let mut guest = Guest::connect(bench.port.path(), 1, 64, Refuses::default());
    guest.start_pair(0);
    bench.port.start(|frame: &mut Vec<u8>| frame.write_all(&[0xff; 60]).is_ok(), |_: u16, _: &[u8]| {});
    eventually(|| (bench.port.counts().total().no_buffer > 1_000).then_some(()));
    bench.port.inject([7; 60]);
    let before = bench.port.counts().total().no_buffer;
    eventually(|| (bench.port.counts().total().no_buffer > before + 1_000).then_some(()));
    guest.refill(0, 1);
    assert_eq!(guest.expect(0), [7; 60]);
}

#[test]
fn a_slow_wire_loses_nothing() {
    for drive in EVERY_DRIVE {
        let config = TrafficConfig { drive, line_rate: Some(2_000), ..Default::default() };
        reflects(config, 1, 64, Refuses::default(), 300);
    }
}

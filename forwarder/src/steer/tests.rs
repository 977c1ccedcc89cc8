use std::collections::HashMap;
use std::vec::Vec;

use netdrv::pool::Pool;
use proptest::prelude::*;

use super::*;
use crate::stats::{self, Counts, WorkerStats};
use crate::testing::{fill, pool};

pub(super) const PORT: PortId = PortId(0);

/// The workers' parts in steering, without workers.
struct Bench {
    steerings: Vec<Steering>,
    stats: Vec<alloc::sync::Arc<WorkerStats>>,
    /// What the workers count of the packets that they decide on.
    ledgers: Vec<Ledger>,
    pool: &'static Pool,
    cache: PoolCache,
}

impl Bench {
    fn new(workers: usize, receivers: usize) -> Bench {
        Bench::over(pool(4096), workers, receivers)
    }

    fn over(pool: &'static Pool, workers: usize, receivers: usize) -> Bench {
        let stats: Vec<_> = (0..workers).map(|_| alloc::sync::Arc::new(WorkerStats::new(2))).collect();
        let handed = stats.iter().map(|stats| Ledger::new(stats.handed.clone())).collect();
        let ledgers = stats.iter().map(|stats| Ledger::new(stats.decided.clone())).collect();
        let steerings = connect(RxMode::Software, receivers, handed);
        Bench { steerings, stats, ledgers, pool, cache: pool.cache() }
    }

    /// The worker receives these frames at the port; returns those that it keeps.
    fn receive(&mut self, worker: usize, port: PortId, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut kept = Vec::new();
        for frames in frames.chunks(MAX_BURST) {
            let mut burst: Burst = frames.iter().map(|frame| fill(&mut self.cache, frame)).collect();
            let ledger = &mut self.ledgers[worker];
            let roster = Roster::new(worker, alloc::sync::Arc::default(), |_| ());
            ledger.port(port)[Counter::RxPackets] += burst.len() as u64;
            ledger.port(port)[Counter::RxBytes] += total_len(&burst);
            self.steerings[worker].spread(port, &mut burst, &mut self.cache, ledger, &roster);
            ledger.publish();
            kept.extend(burst.iter().map(|packet| packet.bytes().to_vec()));
        }
        kept
    }

    /// What the worker takes from one of its inboxes in one go.
    fn take(&mut self, worker: usize, inbox: usize, limit: usize) -> Option<(PortId, Vec<Vec<u8>>)> {
        let mut burst = Burst::new();
        let port = self.steerings[worker].take(inbox, &mut burst, limit)?;
        self.ledgers[worker].port(port)[Counter::Taken] += burst.len() as u64;
        self.ledgers[worker].publish();
        let frames = burst.iter().map(|packet| packet.bytes().to_vec()).collect();
        burst.drain(..).for_each(|packet| self.cache.put(packet));
        Some((port, frames))
    }

    fn take_all(&mut self, worker: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for inbox in 0..self.steerings[worker].inboxes() {
            while let Some((_, frames)) = self.take(worker, inbox, MAX_BURST) {
                all.extend(frames);
            }
        }
        all
    }

    fn sum(&self) -> Counts {
        stats::sum(&self.stats, PORT)
    }
}

/// A frame of a flow, told by the stations, with its number in the flow.
pub(super) fn frame(flow: u16, number: u16) -> Vec<u8> {
    let mut frame = std::vec![0; 60];
    frame[0..2].copy_from_slice(&flow.to_be_bytes());
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..16].copy_from_slice(&number.to_be_bytes());
    frame
}

pub(super) fn tag(frame: &[u8]) -> (u16, u16) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (word(0), word(14))
}

/// A frame of a UDP datagram's fragment, or of a whole one (RFC 791, 3.1).
fn udp(flags_and_offset: u16, ports: [u8; 4]) -> Vec<u8> {
    let mut frame = std::vec![0; 60];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&ports);
    frame
}

#[test]
fn a_burst_is_spread_over_all_workers_and_each_flow_stays_in_order() {
    let mut bench = Bench::new(4, 1);
    let frames: Vec<_> = (0..10 * 50).map(|index| frame(index % 50, index / 50)).collect();
    let mut by_worker = std::vec![bench.receive(0, PORT, &frames)];
    by_worker.extend((1..4).map(|worker| bench.take_all(worker)));
    let mut worker_of_flow = HashMap::new();
    let mut next = HashMap::new();
    for (worker, frames) in by_worker.iter().enumerate() {
        assert!(frames.len() > 50, "worker {worker} has {}", frames.len());
        for frame in frames {
            let (flow, number) = tag(frame);
            assert_eq!(*worker_of_flow.entry(flow).or_insert(worker), worker, "flow {flow}");
            let next = next.entry(flow).or_insert(0);
            assert_eq!(number, *next, "flow {flow}");
            *next += 1;
        }
    }
    assert!(next.values().all(|&count| count == 10) && next.len() == 50);
}

#[test]
fn whoever_receives_a_flow_its_worker_is_the_same_one_and_so_is_that_of_its_answers() {
    for flow in 0..40 {
        let there = frame(flow, 0);
        let mut back = there.clone();
        back[..12].rotate_left(6);
        let mut bench = Bench::new(3, 3);
        let mut deciders = Vec::new();
        for receiver in 0..3 {
            for frame in [&there, &back] {
                let kept = bench.receive(receiver, PORT, std::slice::from_ref(frame));
                deciders.extend((!kept.is_empty()).then_some(receiver));
                deciders.extend((0..3).filter(|&worker| !bench.take_all(worker).is_empty()));
            }
        }
        assert_eq!(deciders, [deciders[0]; 6]);
    }
}

#[test]
fn all_fragments_of_a_datagram_go_to_one_worker() {
    let mut bench = Bench::new(8, 1);
    let first = udp(0x2000, [1, 2, 3, 4]);
    // What lies where the ports were is payload.
    let others = (1..32).map(|number| udp(0x2000 | (number * 185), [number as u8; 4]));
    let fragments: Vec<_> = core::iter::once(first).chain(others).collect();
    let mut shares = std::vec![bench.receive(0, PORT, &fragments).len()];
    shares.extend((1..8).map(|worker| bench.take_all(worker).len()));
    assert_eq!(shares.iter().filter(|&&share| share > 0).count(), 1, "{shares:?}");
}

#[test]
fn runts_stay_with_whoever_received_them() {
    let mut bench = Bench::new(4, 4);
    for receiver in 0..4 {
        for len in 0..14 {
            assert_eq!(bench.receive(receiver, PORT, &[std::vec![7; len]]).len(), 1, "{len} bytes");
        }
    }
}

#[test]
fn what_the_hardware_steers_stays_where_it_arrived() {
    let stats = WorkerStats::new(1);
    let ledgers = (0..3).map(|_| Ledger::new(stats.handed.clone())).collect();
    for steering in connect(RxMode::Hardware, 3, ledgers) {
        assert!(!steering.spreads() && steering.inboxes() == 0 && steering.is_drained());
    }
}

#[test]
fn what_finds_a_ring_full_is_dropped_and_counted() {
    let mut bench = Bench::new(2, 1);
    let all: Vec<_> = (0..2000).map(|number| frame(number % 100, number)).collect();
    let kept = bench.receive(0, PORT, &all).len() as u64;
    let counts = bench.sum();
    assert_eq!(counts[Counter::Steered], 2000 - kept);
    assert_eq!(counts.in_steering(), 256, "as many as the ring holds");
    assert_eq!(counts[Counter::Drop(DropReason::SteerRingFull)], 2000 - kept - 256);
    assert_eq!(counts[Counter::RxPackets], kept + counts.dropped() + counts[Counter::Waiting]);
    let taken = bench.take_all(1);
    assert_eq!(taken.len(), 256);
    assert!(taken.iter().map(|frame| tag(frame).1).is_sorted(), "the first ones, in their order");
    assert_eq!(bench.sum()[Counter::Waiting], 0);
    bench.receive(0, PORT, &all[..100]);
    assert!(bench.sum().in_steering() > 10, "there is room again");
}

#[test]
fn all_rings_together_hold_no_more_than_the_pool_has_for_them() {
    const WORKERS: usize = 200;
    let mut bench = Bench::new(WORKERS, WORKERS - 1);
    let all: Vec<_> = (0..640).map(|flow| frame(flow, 0)).collect();
    for _ in 0..3 {
        bench.receive(5, PORT, &all);
        assert_eq!(bench.sum().in_steering(), 64, "{:?}", Shape::new(WORKERS, WORKERS - 1));
        let taken: usize = (0..WORKERS).map(|worker| bench.take_all(worker).len()).sum();
        assert_eq!(taken, 64, "and when these are taken, others may follow");
    }
}

#[test]
fn what_one_port_received_is_taken_apart_from_what_another_did() {
    let mut bench = Bench::new(2, 1);
    let away: Vec<_> = (0..100)
        .map(|flow| frame(flow, 0))
        .filter(|frame| bench.steerings[0].distance(frame) == 1)
        .take(10)
        .collect();
    bench.receive(0, PortId(0), &away[..3]);
    bench.receive(0, PortId(1), &away[3..7]);
    bench.receive(0, PortId(0), &away[7..]);
    for (port, range) in [(0, 0..2), (0, 2..3), (1, 3..5), (1, 5..7), (0, 7..9), (0, 9..10)] {
        assert_eq!(bench.take(1, 0, 2), Some((PortId(port), away[range].to_vec())));
    }
    assert_eq!(bench.take(1, 0, 2), None);
}

#[test]
fn what_was_handed_over_before_the_end_is_taken_after_it() {
    let mut bench = Bench::new(2, 2);
    let frames: Vec<_> = (0..50).map(|flow| frame(flow, 0)).collect();
    bench.receive(0, PORT, &frames);
    assert!(!bench.steerings[1].is_drained(), "the other may hand over more");
    bench.steerings[0].close();
    assert!(!bench.steerings[1].is_drained(), "there is something to take");
    assert!(!bench.take_all(1).is_empty());
    assert!(bench.steerings[1].is_drained());
    let Bench { steerings, cache, pool, .. } = bench;
    drop((steerings, cache));
    assert_eq!(pool.in_depot(), pool.count());
}

#[test]
fn no_packet_is_lost_or_overtakes_another_of_its_flow() {
    let pool = pool(8192);
    proptest!(|(
        workers in 1..9usize,
        receivers in 1..9usize,
        steps in prop::collection::vec((0..8usize, 0..200usize, 1..65usize), 1..40),
    )| {
        let mut bench = Bench::over(pool, workers, receivers.min(workers));
        let mut numbers = HashMap::new();
        let mut last = HashMap::new();
        let mut arrived = 0;
        let mut note = |worker: usize, frames: Vec<Vec<u8>>| {
            for frame in frames {
                let (flow, number) = tag(&frame);
                let (of, before) = last.insert(flow, (worker, number)).unwrap_or((worker, 0));
                assert!(of == worker && (before < number || number == 0), "{flow}: {before}, {number}");
                arrived += 1;
            }
        };
        for (who, count, limit) in steps {
            // A flow comes in by one receiver, as from one RX queue.
            let receiver = who % receivers.min(workers);
            let frames: Vec<_> = (0..count)
                .map(|index| {
                    let flow = (index % 30 * 8 + receiver) as u16;
                    let number = numbers.entry(flow).or_insert(0);
                    *number += 1;
                    frame(flow, *number - 1)
                })
                .collect();
            note(receiver, bench.receive(receiver, PORT, &frames));
            let taker = who % workers;
            for inbox in 0..bench.steerings[taker].inboxes() {
                if let Some((_, frames)) = bench.take(taker, inbox, limit) {
                    prop_assert!(frames.len() <= limit);
                    note(taker, frames);
                }
            }
            let counts = bench.sum();
            prop_assert!(counts.in_steering() as usize <= Shape::new(workers, receivers.min(workers)).buffers());
        }
        (0..workers).for_each(|worker| note(worker, bench.take_all(worker)));
        let counts = bench.sum();
        let sent: u64 = numbers.values().map(|&number| u64::from(number)).sum();
        prop_assert_eq!(counts[Counter::RxPackets], sent);
        prop_assert_eq!(counts[Counter::Waiting], 0);
        prop_assert_eq!(arrived + counts[Counter::Drop(DropReason::SteerRingFull)], sent);
    });
}

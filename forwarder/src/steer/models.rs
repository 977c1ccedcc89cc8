//! A worker that hands packets over and one that takes them, at the same time.

use alloc::sync::Arc;
use core::ops::Range;
use std::vec::Vec;

use loom::thread;
use netdrv::pool::{BULK, Pool};
use netdrv::process::ReusedMemory;
use netdrv::sync::spin_loop;

use super::tests::{PORT, frame, tag};
use super::*;
use crate::stats::{self, WorkerStats};
use crate::testing::fill;

/// The two workers' parts in steering, over a ring from the first to the second for so many packets.
struct Scene {
    pool: &'static Pool,
    stats: Vec<Arc<WorkerStats>>,
    from: Handing,
    to: Steering,
}

/// The one who hands over.
struct Handing {
    steering: Steering,
    cache: PoolCache,
    ledger: Ledger,
    /// Of workers that never sleep.
    roster: Roster,
}

impl Scene {
    fn new(ring: usize) -> Scene {
        let pool = Pool::new::<ReusedMemory>(2 * BULK).unwrap();
        let stats: Vec<_> = (0..2).map(|_| Arc::new(WorkerStats::new(1))).collect();
        let (producer, consumer) = RingBuffer::new(ring);
        let part = |worker: usize, rings, inboxes| Steering {
            worker,
            workers: 2,
            outbox: Outbox { rings, in_flight: 0, quota: ring },
            inboxes,
            handed: Ledger::new(stats[worker].handed.clone()),
        };
        let from = Handing {
            steering: part(0, Vec::from([producer]), Vec::new()),
            cache: pool.cache(),
            ledger: Ledger::new(stats[0].decided.clone()),
            roster: Roster::new(0, Arc::default(), |_| {}),
        };
        let to = part(1, Vec::new(), Vec::from([consumer]));
        Scene { pool, stats, from, to }
    }
}

impl Handing {
    /// Receives frames with these numbers, all of one flow, which the other worker is to decide on.
    fn receive(&mut self, numbers: Range<u16>) {
        let flow = (0..).find(|&flow| self.steering.distance(&frame(flow, 0)) == 1).unwrap();
        let mut burst: Burst = numbers.map(|number| fill(&mut self.cache, &frame(flow, number))).collect();
        self.ledger.port(PORT)[Counter::RxPackets] += burst.len() as u64;
        self.ledger.port(PORT)[Counter::RxBytes] += total_len(&burst);
        self.steering.spread(PORT, &mut burst, &mut self.cache, &mut self.ledger, &self.roster);
        assert!(burst.is_empty());
        self.ledger.publish();
    }
}

/// What there is to take: the numbers of the frames.
fn take(steering: &mut Steering) -> Vec<u16> {
    let mut burst = Burst::new();
    steering.take(0, &mut burst, MAX_BURST);
    burst.iter().map(|packet| tag(packet.bytes()).1).collect()
}

#[test]
fn what_a_full_ring_refuses_is_counted_and_the_rest_comes_over_in_order() {
    loom::model(|| {
        let Scene { pool, stats, mut from, mut to } = Scene::new(2);
        let handing = thread::spawn(move || {
            from.receive(0..2);
            from.receive(2..4);
            from
        });
        let mut taken = take(&mut to);
        taken.extend(take(&mut to));
        let from = handing.join().unwrap();
        taken.extend(take(&mut to));

        assert!(taken.is_sorted() && taken.starts_with(&[0, 1]), "{taken:?}");
        let counts = stats::sum(&stats, PORT);
        let refused = counts[Counter::Drop(DropReason::SteerRingFull)];
        assert_eq!((taken.len() as u64 + refused, counts[Counter::RxPackets]), (4, 4));
        assert_eq!(counts.in_steering(), taken.len() as u64, "nobody has counted them as taken");
        drop((from, to));
        assert_eq!(pool.in_depot(), pool.count());
    });
}

#[test]
fn at_the_end_everything_that_was_handed_over_is_taken() {
    loom::model(|| {
        let Scene { pool, mut from, mut to, .. } = Scene::new(4);
        let handing = thread::spawn(move || {
            from.receive(0..1);
            from.receive(1..2);
            from.steering.close();
        });
        let mut taken = Vec::new();
        while !to.is_drained() {
            taken.extend(take(&mut to));
            spin_loop();
        }
        assert_eq!(taken, [0, 1]);
        handing.join().unwrap();
        drop(to);
        assert_eq!(pool.in_depot(), pool.count());
    });
}

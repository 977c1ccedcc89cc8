//! The depot between caches that come to it at the same time.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loom::sync::mpsc;
use loom::thread;

use super::*;
use crate::packet::MAX_BURST;
use crate::process::ReusedMemory;
use crate::sync::{AtomicU64, Ordering, check};

fn pool(count: usize) -> &'static Pool {
    Pool::new::<ReusedMemory>(count).unwrap()
}

/// How often each buffer was held, counted without a locked addition: a count is lost where two have the buffer at a time,
/// and where one who gets it does not see all that the one before did.
struct Holds {
    base: u64,
    counts: Vec<AtomicU64>,
}

impl Holds {
    fn new(pool: &Pool) -> Arc<Holds> {
        let base = pool.memory.base().as_ptr() as u64;
        Arc::new(Holds { base, counts: (0..pool.count).map(|_| AtomicU64::new(0)).collect() })
    }

    /// Counts one more. Returns 1.
    fn count(&self, packet: &Packet) -> u64 {
        let count = &self.counts[((packet.address() - self.base) / STRIDE as u64) as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        1
    }

    fn sum(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Takes up to `count` packets.
fn take(cache: &mut PoolCache, count: usize) -> Vec<Packet> {
    (0..count).map_while(|_| cache.take()).collect()
}

fn assert_all_home(pool: &Pool) {
    assert_eq!(pool.in_depot(), pool.count());
    let depot = pool.depot.lock();
    let buffers: BTreeSet<NonNull<Buffer>> = depot.free.iter().map(|buffer| buffer.0).collect();
    assert_eq!(buffers.len(), depot.opened, "each once");
}

#[test]
fn caches_that_empty_and_fill_the_depot_at_the_same_time_have_each_buffer_once() {
    check(3, || {
        let pool = pool(2 * BULK);
        let holds = Holds::new(pool);
        // The depot has buffers that came home, and others that were never taken.
        drop(take(&mut pool.cache(), 1));
        let core = |holds: Arc<Holds>| {
            let mut cache = pool.cache();
            let packets = take(&mut cache, BULK + 1);
            // Of those that are taken together, one shows how they came here.
            let held = packets.last().map_or(0, |packet| holds.count(packet));
            packets.into_iter().for_each(|packet| cache.put(packet));
            held
        };
        let others = [holds.clone(), holds.clone()].map(|holds| thread::spawn(move || core(holds)));
        let here = core(holds.clone());
        let held: u64 = here + others.map(|other| other.join().unwrap()).iter().sum::<u64>();
        assert_eq!(holds.sum(), held);
        assert_all_home(pool);
    });
}

#[test]
fn buffers_that_one_core_receives_and_another_sends_come_home_in_bulk() {
    loom::model(|| {
        let pool = pool(3 * BULK);
        let holds = Holds::new(pool);
        let (to_sender, sent) = mpsc::channel::<Vec<Packet>>();
        let sender = thread::spawn({
            let holds = holds.clone();
            move || {
                let mut cache = pool.cache();
                let mut held = 0;
                for packets in (0..4).map_while(|_| sent.recv().ok()) {
                    held += packets.first().map_or(0, |packet| holds.count(packet));
                    packets.into_iter().for_each(|packet| cache.put(packet));
                }
                held
            }
        });
        let mut cache = pool.cache();
        let mut held = 0;
        for _ in 0..4 {
            let packets = take(&mut cache, MAX_BURST);
            held += packets.first().map_or(0, |packet| holds.count(packet));
            to_sender.send(packets).unwrap();
        }
        drop(cache);
        held += sender.join().unwrap();
        assert!(held >= 2 * 3, "three bursts are there at once");
        assert_eq!(holds.sum(), held);
        assert_all_home(pool);
    });
}

#[test]
fn a_packet_that_ends_outside_every_cache_goes_home_while_others_come_for_buffers() {
    loom::model(|| {
        let pool = pool(3);
        let holds = Holds::new(pool);
        let stray = take(&mut pool.cache(), 2);
        let dropper = thread::spawn(move || drop(stray));
        let taker = thread::spawn({
            let holds = holds.clone();
            move || {
                let packets = take(&mut pool.cache(), 3);
                packets.iter().map(|packet| holds.count(packet)).sum::<u64>()
            }
        });
        dropper.join().unwrap();
        let held = taker.join().unwrap();
        assert_eq!(holds.sum(), held);
        assert_all_home(pool);
    });
}

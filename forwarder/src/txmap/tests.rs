use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::testing::{FakeTx, fill, pool};

fn wish() -> impl Strategy<Value = Wish> {
    prop::sample::select(std::vec![Wish::Auto, Wish::Dedicated, Wish::Shared])
}

proptest! {
    #[test]
    fn a_plan_is_fair_and_as_wished(workers in 1..=256usize, queues in 0..=128usize, wish in wish()) {
        let plan = match plan(workers, queues, wish) {
            Ok(plan) => plan,
            Err(PlanError::NoQueue) => {
                prop_assert_eq!((wish, queues), (Wish::Shared, 0));
                return Ok(());
            }
            Err(PlanError::TooFewQueues { workers: asked, queues: given }) => {
                prop_assert_eq!((wish, asked, given), (Wish::Dedicated, workers, queues));
                prop_assert!(queues < workers);
                return Ok(());
            }
        };
        prop_assert!(plan.queues() <= queues);
        let loads: Vec<usize> = (0..plan.queues()).map(|queue| plan.cores_of(queue)).collect();
        match plan.mode() {
            Mode::Unavailable => {
                prop_assert_eq!((wish, queues), (Wish::Auto, 0));
                prop_assert!((0..workers).all(|worker| plan.queue_of(worker).is_none()));
                return Ok(());
            }
            Mode::Dedicated => {
                prop_assert_ne!(wish, Wish::Shared);
                prop_assert!(loads.iter().all(|&cores| cores == 1));
            }
            Mode::Shared => prop_assert!(wish == Wish::Shared || queues < workers),
        }
        prop_assert!((0..workers).all(|worker| plan.queue_of(worker).unwrap() < queues));
        prop_assert_eq!(loads.iter().sum::<usize>(), workers);
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        prop_assert!(most - least <= 1);
        prop_assert!(*least >= 1, "no queue lies idle");
    }

    #[test]
    fn every_rx_queue_has_one_worker_and_the_load_is_even(
        workers in 1..=256usize,
        queues in prop::collection::vec(0..=128usize, 0..8),
    ) {
        let assigned: Vec<(usize, usize)> = assign_rx(workers, &queues).collect();
        for (port, &count) in queues.iter().enumerate() {
            prop_assert_eq!(assigned.iter().filter(|entry| entry.0 == port).count(), count);
        }
        let load = |worker| assigned.iter().filter(|entry| entry.1 == worker).count();
        let loads: Vec<usize> = (0..workers).map(load).collect();
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
    }
}

#[test]
fn two_ports_with_one_queue_each_keep_two_workers_busy() {
    assert!(assign_rx(2, &[1, 1]).eq([(0, 0), (1, 1)]));
    assert!(assign_rx(1, &[1, 1]).eq([(0, 0), (1, 0)]));
    assert!(assign_rx(3, &[2, 2]).eq([(0, 0), (0, 1), (1, 2), (1, 0)]));
}

#[test]
fn a_plan_reads_as_in_the_port_line() {
    let text = |workers, queues, wish| plan(workers, queues, wish).unwrap().to_string();
    assert_eq!(text(1, 1, Wish::Auto), "dedicated");
    assert_eq!(text(4, 8, Wish::Auto), "dedicated");
    assert_eq!(text(4, 2, Wish::Auto), "shared(2 cores/queue)");
    assert_eq!(text(72, 8, Wish::Auto), "shared(9 cores/queue)");
    assert_eq!(text(72, 64, Wish::Auto), "shared(1-2 cores/queue)");
    assert_eq!(text(2, 4, Wish::Shared), "shared(1 cores/queue)");
    assert_eq!(text(2, 0, Wish::Auto), "unavailable");
}

#[test]
fn a_wish_that_cannot_be_met_is_answered_with_the_numbers() {
    let error = plan(4, 3, Wish::Dedicated).unwrap_err();
    assert_eq!(error.to_string(), "4 workers need a TX queue each and the device gave 3");
    assert_eq!(plan(4, 0, Wish::Shared), Err(PlanError::NoQueue));
}

/// A burst of frames that hold their number.
fn burst(cache: &mut PoolCache, numbers: core::ops::Range<u8>) -> Burst {
    numbers.map(|number| fill(cache, &[number; 60])).collect()
}

fn sent(queue: &FakeTx) -> Vec<u8> {
    queue.state().sent.iter().map(|frame| frame[0]).collect()
}

#[test]
fn a_full_ring_is_reclaimed_before_anything_is_left_over() {
    let mut cache = pool(256).cache();
    let queue = FakeTx::new(64);
    let mut path = TxPath::Dedicated(queue.clone());
    path.send(&mut burst(&mut cache, 0..64), &mut cache);
    queue.complete(40);
    let mut second = burst(&mut cache, 64..128);
    let progress = path.send(&mut second, &mut cache);
    assert_eq!(progress, Progress { taken: 40, refused: 0, completed: 40 });
    assert_eq!((second.len(), second[0].bytes()[0]), (24, 104), "the rest stays, in order");
    queue.complete(64);
    assert_eq!(sent(&queue), (0..104).collect::<Vec<u8>>());
    assert_eq!(path.reclaim(&mut cache), 64);
    assert_eq!(path.waiting(), 0);
}

#[test]
fn a_burst_that_does_not_fit_rings_the_bell_once_and_one_that_cannot_move_never() {
    let mut cache = pool(256).cache();
    let queue = FakeTx::new(10);
    let mut path = TxPath::Dedicated(queue.clone());
    let mut burst = burst(&mut cache, 0..32);
    path.send(&mut burst, &mut cache);
    assert_eq!(queue.state().flushes, 1);
    path.send(&mut burst, &mut cache);
    assert_eq!(queue.state().flushes, 1);
}

#[test]
fn a_shared_queue_counts_its_lock_by_the_burst() {
    let pool = pool(256);
    let mut cache = pool.cache();
    let queue = FakeTx::new(64);
    let stats = Arc::<LockStats>::default();
    let shared = Arc::new(SharedTx::new(queue.clone(), stats.clone()));
    let mut one = TxPath::Shared(shared.clone());
    let mut other = TxPath::Shared(shared.clone());
    one.send(&mut burst(&mut cache, 0..3), &mut cache);
    other.send(&mut burst(&mut cache, 3..5), &mut cache);
    assert_eq!((stats.acquired.get(), stats.contended.get()), (2, 0));
    assert_eq!((one.waiting(), other.waiting()), (5, 5));

    queue.complete(5);
    assert_eq!(sent(&queue), [0, 1, 2, 3, 4]);
    let held = shared.queue.lock();
    assert_eq!(one.reclaim(&mut cache), 0, "a queue in use is left alone");
    drop(held);
    assert_eq!(one.reclaim(&mut cache), 5);
    assert_eq!((one.waiting(), other.waiting()), (0, 0));
    assert_eq!(stats.acquired.get(), 2, "reclaiming when idle is no burst");
}

#[test]
fn a_burst_that_finds_the_lock_taken_waits_and_is_counted() {
    let pool = pool(256);
    let queue = FakeTx::new(64);
    let stats = Arc::<LockStats>::default();
    let shared = Arc::new(SharedTx::new(queue.clone(), stats.clone()));
    let send = || {
        let mut cache = pool.cache();
        let mut burst = burst(&mut cache, 0..3);
        TxPath::Shared(shared.clone()).send(&mut burst, &mut cache)
    };
    let mut bursts = 0;
    // The second sender can't say that it has just found the lock taken. Where it came too late for that, both try again.
    while stats.contended.get() == 0 {
        assert!(bursts < 1000, "no burst is counted as contended");
        queue.complete(64);
        let device = queue.state(); // Who has the lock now waits inside it for the device.
        std::thread::scope(|scope| {
            let first = scope.spawn(send);
            while !shared.queue.is_locked() {
                std::thread::yield_now();
            }
            let second = scope.spawn(send);
            (0..1000).for_each(|_| std::thread::yield_now());
            assert!(!second.is_finished(), "it sent although another has the lock");
            drop(device);
            assert_eq!(first.join().unwrap().taken, 3);
            assert_eq!(second.join().unwrap().taken, 3);
        });
        bursts += 2;
    }
    assert_eq!((stats.acquired.get(), stats.contended.get()), (bursts, 1));
}

#[test]
fn an_unavailable_path_takes_nothing() {
    let mut cache = pool(64).cache();
    let mut path = TxPath::<FakeTx>::Unavailable;
    let mut burst = burst(&mut cache, 0..3);
    assert_eq!(path.send(&mut burst, &mut cache), Progress::default());
    assert_eq!(burst.len(), 3);
    assert_eq!(path.reclaim(&mut cache), 0);
}

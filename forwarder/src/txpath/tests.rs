use std::vec::Vec;

use super::*;
use crate::testing::{FakeTx, fill, pool};

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
    let held = shared.lent.lock();
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
            while !shared.lent.is_locked() {
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

#[test]
fn borrowers_leave_a_quarter_of_the_ring_and_wait_until_as_much_again_is_free() {
    let mut cache = pool(512).cache();
    let queue = FakeTx::new(64);
    let shared = Arc::new(SharedTx::new(queue.clone(), Arc::default()));
    let mut borrower = TxPath::Borrowed(shared.clone());
    let mut owner = TxPath::Shared(shared);

    let mut packets = burst(&mut cache, 0..60);
    assert_eq!(borrower.send(&mut packets, &mut cache).taken, 48, "16 of 64 are the owner's");
    assert_eq!((packets.len(), packets[0].bytes()[0]), (12, 48), "the rest stays, in order");
    assert_eq!(owner.send(&mut burst(&mut cache, 100..116), &mut cache).taken, 16, "the owner has them");
    assert_eq!(borrower.send(&mut packets, &mut cache).taken, 0);

    queue.complete(31);
    assert_eq!(borrower.send(&mut packets, &mut cache), Progress { completed: 31, ..Progress::default() });
    queue.complete(2);
    let progress = borrower.send(&mut packets, &mut cache);
    assert_eq!((progress.taken, progress.completed), (12, 2), "33 are free: more than twice the reserve");
    queue.complete(64);
    let order: Vec<u8> = (0..48).chain(100..116).chain(48..60).collect();
    assert_eq!(sent(&queue), order);
}

#[test]
fn a_path_says_why_it_takes_no_more() {
    let shared = || Arc::new(SharedTx::new(FakeTx::new(64), Arc::default()));
    assert_eq!(TxPath::Dedicated(FakeTx::new(64)).refusal(), DropReason::TxRingFull);
    assert_eq!(TxPath::Shared(shared()).refusal(), DropReason::TxRingFull);
    assert_eq!(TxPath::Borrowed(shared()).refusal(), DropReason::TxRingReserved);
    assert_eq!(TxPath::<FakeTx>::Unavailable.refusal(), DropReason::TxUnavailable);
}

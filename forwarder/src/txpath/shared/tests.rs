use std::vec::Vec;

use super::*;
use crate::testing::{FakeTx, pool};
use crate::txpath::TxPath;
use crate::txpath::tests::{burst, sent};

#[test]
fn a_shared_queue_counts_its_lock_by_the_burst() {
    let pool = pool(256);
    let mut cache = pool.cache();
    let queue = FakeTx::new(64);
    let stats = Arc::<LockStats>::default();
    let shared = SharedTx::new(queue.clone(), WhenTaken::Wait, stats.clone());
    let mut one = TxPath::Shared(shared.sender());
    let mut other = TxPath::Shared(shared.sender());
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
    let shared = SharedTx::new(queue.clone(), WhenTaken::Wait, stats.clone());
    let send = || {
        let mut cache = pool.cache();
        let mut burst = burst(&mut cache, 0..3);
        TxPath::Shared(shared.sender()).send(&mut burst, &mut cache)
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
fn borrowers_leave_a_quarter_of_the_ring_and_wait_until_as_much_again_is_free() {
    let mut cache = pool(512).cache();
    let queue = FakeTx::new(64);
    let shared = SharedTx::new(queue.clone(), WhenTaken::Wait, Arc::default());
    let mut borrower = TxPath::Borrowed(shared.sender());
    let mut owner = TxPath::Shared(shared.sender());

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
fn a_burst_that_is_kept_goes_first_and_counts_once_as_contended() {
    let mut cache = pool(256).cache();
    let queue = FakeTx::new(64);
    let stats = Arc::<LockStats>::default();
    let shared = SharedTx::<FakeTx>::new(queue.clone(), WhenTaken::Keep { most: 32 }, stats.clone());
    let mut sender = shared.sender();
    let mut packets = burst(&mut cache, 0..20);

    let held = shared.lent.lock();
    for _ in 0..3 {
        assert_eq!(sender.send(&mut packets, &mut cache), Progress::default());
        assert_eq!(packets.len(), 20);
    }
    drop(held);
    assert_eq!((stats.acquired(), stats.contended()), (0, 0), "nothing was sent");

    packets.extend(burst(&mut cache, 20..40));
    assert_eq!(sender.send(&mut packets, &mut cache).taken, 40);
    assert_eq!(queue.state().flushes, 1);
    queue.complete(64);
    assert_eq!(sent(&queue), (0..40).collect::<Vec<u8>>());
    assert_eq!((stats.acquired(), stats.contended()), (1, 1));
    sender.send(&mut burst(&mut cache, 0..1), &mut cache);
    assert_eq!((stats.acquired(), stats.contended()), (2, 1));
}

#[test]
fn more_than_may_be_kept_waits_for_the_lock() {
    let pool = pool(256);
    let queue = FakeTx::new(64);
    let shared = SharedTx::<FakeTx>::new(queue.clone(), WhenTaken::Keep { most: 32 }, Arc::default());
    let held = shared.lent.lock();
    std::thread::scope(|scope| {
        let mut sender = shared.sender();
        let waiting = scope.spawn(move || {
            let mut cache = pool.cache();
            sender.send(&mut burst(&mut cache, 0..33), &mut cache)
        });
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!waiting.is_finished(), "it went on although there is no room for another burst");
        drop(held);
        assert_eq!(waiting.join().unwrap().taken, 33);
    });
}

use std::vec::Vec;

use alloc::sync::Arc;

use super::*;
use crate::testing::{FakeTx, fill, pool};

/// A burst of frames that hold their number.
pub(super) fn burst(cache: &mut PoolCache, numbers: core::ops::Range<u8>) -> Burst {
    numbers.map(|number| fill(cache, &[number; 60])).collect()
}

pub(super) fn sent(queue: &FakeTx) -> Vec<u8> {
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
fn an_unavailable_path_takes_nothing() {
    let mut cache = pool(64).cache();
    let mut path = TxPath::<FakeTx>::Unavailable;
    let mut burst = burst(&mut cache, 0..3);
    assert_eq!(path.send(&mut burst, &mut cache), Progress::default());
    assert_eq!(burst.len(), 3);
    assert_eq!(path.reclaim(&mut cache), 0);
}

#[test]
fn a_path_says_why_it_takes_no_more() {
    let shared = || SharedTx::new(FakeTx::new(64), WhenTaken::Wait, Arc::default()).sender();
    assert_eq!(TxPath::Dedicated(FakeTx::new(64)).refusal(), DropReason::TxRingFull);
    assert_eq!(TxPath::Shared(shared()).refusal(), DropReason::TxRingFull);
    assert_eq!(TxPath::Borrowed(shared()).refusal(), DropReason::TxRingReserved);
    assert_eq!(TxPath::<FakeTx>::Unavailable.refusal(), DropReason::TxUnavailable);
}

//! Counters: each is written by one worker and read by anyone at any time.
//!
//! A worker counts in memory of its own (`Ledger`) and publishes once a batch. What is published carries a version
//! (`Versioned`), so that a reader never sees half a batch: what [`metrics`](crate::metrics) says about the sum of a
//! port's counters holds in every reading, also under load.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{AddAssign, Index, IndexMut};

use netdrv::sync::{AtomicU64, Ordering};

use crate::verdict::{DropReason, PortId, VerdictKind};
use crate::versioned::Versioned;

/// What is counted for a port, by each worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Packets that the port received, with those that were refused at the ring.
    RxPackets,
    /// Bytes of the packets received, without those that were refused at the ring.
    RxBytes,
    /// Packets received here and passed to the local stack.
    Passed,
    /// Packets of the local stack that the port's TX rings took.
    StackSent,
    /// Packets received here that a TX ring took, whichever port's.
    Forwarded,
    /// Packets received here that wait in the worker for room in a TX ring. Goes up and down. In the sum over all workers:
    /// also those that wait to be taken, see [`Counter::Steered`].
    Waiting,
    /// Packets received here that were handed to another worker, which is to decide on them.
    Steered,
    /// Packets received here that a worker took of those that were handed to it.
    Taken,
    /// Packets that the port's TX rings took.
    TxPackets,
    /// Bytes of the packets that the port's TX rings took, with those that the device then refused.
    TxBytes,
    /// Packets that left the port's TX rings because the device was done with them.
    TxCompleted,
    /// Verdicts on packets received here.
    Verdict(VerdictKind),
    /// Packets received here that ended for this reason.
    Drop(DropReason),
}

impl Counter {
    const VERDICTS: usize = VerdictKind::ALL.len();
    const DROPS: usize = DropReason::ALL.len();
    const COUNT: usize = Counter::VERDICTS + Counter::DROPS + 11;

    /// The place among [`Counts`]: verdicts, drops, the rest.
    #[inline(always)]
    const fn index(self) -> usize {
        const REST: usize = Counter::VERDICTS + Counter::DROPS;
        match self {
            Counter::Verdict(kind) => kind as usize,
            Counter::Drop(reason) => Counter::VERDICTS + reason as usize,
            Counter::RxPackets => REST,
            Counter::RxBytes => REST + 1,
            Counter::Passed => REST + 2,
            Counter::Forwarded => REST + 3,
            Counter::Waiting => REST + 4,
            Counter::TxPackets => REST + 5,
            Counter::TxBytes => REST + 6,
            Counter::TxCompleted => REST + 7,
            Counter::StackSent => REST + 8,
            Counter::Steered => REST + 9,
            Counter::Taken => REST + 10,
        }
    }
}

/// The counters of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts([u64; Counter::COUNT]);

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; Counter::COUNT])
    }
}

impl Index<Counter> for Counts {
    type Output = u64;

    #[inline(always)]
    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter.index()]
    }
}

impl IndexMut<Counter> for Counts {
    #[inline(always)]
    fn index_mut(&mut self, counter: Counter) -> &mut u64 {
        &mut self.0[counter.index()]
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        for (sum, word) in self.0.iter_mut().zip(other.0) {
            *sum += word;
        }
    }
}

impl Counts {
    /// Packets that ended here, for whatever reason.
    pub fn dropped(&self) -> u64 {
        DropReason::ALL.iter().map(|&reason| self[Counter::Drop(reason)]).sum()
    }

    /// Packets received here that were handed to another worker and not taken yet. No program has seen them.
    pub fn in_steering(&self) -> u64 {
        self[Counter::Steered] - self[Counter::Taken]
    }
}

/// A number that one core at a time writes and any core reads: an addition is plain, not a locked one.
#[derive(Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        self.set(self.get() + count);
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The published counters of every port.
pub(crate) type Rows = Arc<[Versioned<{ Counter::COUNT }>]>;

fn rows(ports: usize) -> Rows {
    (0..ports).map(|_| Versioned::new()).collect()
}

/// What one worker publishes.
#[repr(align(128))]
pub(crate) struct WorkerStats {
    /// Clock ticks of rounds in which packets moved.
    pub(crate) busy: Gauge,
    /// Clock ticks of rounds in which none did.
    pub(crate) idle: Gauge,
    /// Clock ticks that the core slept.
    pub(crate) asleep: Gauge,
    /// Wake-ups that other cores sent to this one.
    pub(crate) wakeups: Gauge,
    /// Free buffers in the worker's cache.
    pub(crate) cached: Gauge,
    /// About the packets that it decides on.
    pub(crate) decided: Rows,
    /// About those that it hands to other workers; published before they can be taken.
    pub(crate) handed: Rows,
}

impl WorkerStats {
    /// For `ports` ports.
    pub(crate) fn new(ports: usize) -> WorkerStats {
        WorkerStats {
            busy: Gauge::default(),
            idle: Gauge::default(),
            asleep: Gauge::default(),
            wakeups: Gauge::default(),
            cached: Gauge::default(),
            decided: rows(ports),
            handed: rows(ports),
        }
    }

    /// What the worker has published about the packets of `port` that it decides on.
    ///
    /// # Panics
    /// Where there is no such port.
    pub(crate) fn read(&self, port: PortId) -> Counts {
        Counts(self.decided[port.index()].read())
    }
}

/// The counters of `port`, summed over `workers`.
///
/// Both kinds of rows add up on their own. All that says that a packet was taken is read before what says that it was
/// handed over, and was published after it: no reading has more packets taken than handed over.
///
/// # Panics
/// Where there is no such port.
pub(crate) fn sum(workers: &[Arc<WorkerStats>], port: PortId) -> Counts {
    let mut sum = Counts::default();
    workers.iter().for_each(|worker| sum += &worker.read(port));
    workers.iter().for_each(|worker| sum += &Counts(worker.handed[port.index()].read()));
    sum[Counter::Waiting] += sum.in_steering();
    sum
}

/// How often a shared TX queue's lock was taken, written by whoever holds it.
#[derive(Default)]
#[repr(align(128))]
pub struct LockStats {
    pub(crate) acquired: Gauge,
    pub(crate) contended: Gauge,
}

impl LockStats {
    /// Bursts that were sent under the lock.
    pub fn acquired(&self) -> u64 {
        self.acquired.get()
    }

    /// Those of them that had found the lock taken, and waited.
    pub fn contended(&self) -> u64 {
        self.contended.get()
    }
}

/// A worker's own counters, ahead of what it has published by at most a batch.
pub(crate) struct Ledger {
    pages: Vec<Page>,
    rows: Rows,
}

#[derive(Clone, Default)]
struct Page {
    counts: Counts,
    changed: bool,
}

impl Ledger {
    pub(crate) fn new(rows: Rows) -> Ledger {
        Ledger { pages: alloc::vec![Page::default(); rows.len()], rows }
    }

    /// The counters of `port`, to change.
    ///
    /// # Panics
    /// Where there is no such port.
    #[inline(always)]
    pub(crate) fn port(&mut self, port: PortId) -> &mut Counts {
        let page = &mut self.pages[port.index()];
        page.changed = true;
        &mut page.counts
    }

    /// Shows everyone what changed since the last call.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        for (page, row) in self.pages.iter_mut().zip(self.rows.iter()) {
            if page.changed {
                page.changed = false;
                row.publish(&page.counts.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_counter_has_a_place_of_its_own() {
        let mut counters = std::vec![
            Counter::RxPackets,
            Counter::RxBytes,
            Counter::Passed,
            Counter::Forwarded,
            Counter::Waiting,
            Counter::Steered,
            Counter::Taken,
            Counter::TxPackets,
            Counter::TxBytes,
            Counter::TxCompleted,
            Counter::StackSent,
        ];
        counters.extend(VerdictKind::ALL.map(Counter::Verdict));
        counters.extend(DropReason::ALL.map(Counter::Drop));
        let places: HashSet<usize> = counters.iter().map(|counter| counter.index()).collect();
        assert_eq!(places, (0..Counter::COUNT).collect());
        assert_eq!(counters.len(), Counter::COUNT);
    }

    #[test]
    fn only_what_was_published_is_seen() {
        let workers = [Arc::new(WorkerStats::new(2))];
        let mut ledger = Ledger::new(workers[0].decided.clone());
        ledger.port(PortId(1))[Counter::Drop(DropReason::Runt)] += 3;
        assert_eq!(sum(&workers, PortId(1)), Counts::default());
        ledger.publish();
        assert_eq!(sum(&workers, PortId(1)).dropped(), 3);
        assert_eq!(sum(&workers, PortId(0)), Counts::default());
    }

    #[test]
    fn what_was_handed_over_and_not_taken_waits() {
        let workers = [Arc::new(WorkerStats::new(1)), Arc::new(WorkerStats::new(1))];
        let mut handed = Ledger::new(workers[0].handed.clone());
        handed.port(PortId(0))[Counter::RxPackets] += 5;
        handed.port(PortId(0))[Counter::Steered] += 5;
        handed.publish();
        assert_eq!(sum(&workers, PortId(0))[Counter::Waiting], 5);
        let mut taken = Ledger::new(workers[1].decided.clone());
        taken.port(PortId(0))[Counter::Taken] += 3;
        taken.port(PortId(0))[Counter::Forwarded] += 2;
        taken.port(PortId(0))[Counter::Waiting] += 1;
        taken.publish();
        let sum = sum(&workers, PortId(0));
        assert_eq!((sum[Counter::Waiting], sum.in_steering()), (3, 2));
        assert_eq!(sum[Counter::RxPackets], sum[Counter::Forwarded] + sum[Counter::Waiting]);
    }
}

//! A TX queue under a lock, and what its users do when another has it.

use alloc::sync::Arc;
use core::mem;

use netdrv::device::TxQueue;
use netdrv::packet::Burst;
use netdrv::pool::PoolCache;
use netdrv::sync::{Mutex, RawMutex, RawSpinMutex};

use super::{Progress, transmit};
use crate::stats::{Gauge, LockStats};

/// What a sender does that finds the lock taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenTaken {
    /// It waits for the lock.
    Wait,
    /// It keeps what it has, up to so many packets, and sends it together with its next burst; with more it waits.
    Keep {
        /// Packets; at most what leaves room in the burst for all that may be added before the next try.
        most: usize,
    },
}

/// A TX queue under a lock of kind `L`. The lock covers one burst: reclaim, descriptors and doorbell, since the doorbell's value
/// must not overtake another core's descriptors. Nothing else is done under it.
pub struct SharedTx<T, L: RawMutex = RawSpinMutex> {
    lent: Mutex<L, Lent<T>>,
    when_taken: WhenTaken,
    /// Packets in the ring, for those who don't hold the lock.
    waiting: Gauge,
    stats: Arc<LockStats>,
}

/// What the lock protects.
struct Lent<T> {
    queue: T,
    /// Borrowers found only the reserve left, and wait until completions have freed as much again.
    stopped: bool,
}

/// One user of a shared queue.
pub struct Sender<T, L: RawMutex = RawSpinMutex> {
    shared: Arc<SharedTx<T, L>>,
    /// The lock was taken at the last try, and the packets were kept.
    missed: bool,
}

impl<T: TxQueue, L: RawMutex> SharedTx<T, L> {
    /// Puts `queue` under a lock whose uses are counted in `stats`.
    pub fn new(queue: T, when_taken: WhenTaken, stats: Arc<LockStats>) -> Arc<SharedTx<T, L>> {
        let lent = Mutex::new(Lent { queue, stopped: false });
        Arc::new(SharedTx { lent, when_taken, waiting: Gauge::default(), stats })
    }

    /// One more user of the queue.
    pub fn sender(self: &Arc<Self>) -> Sender<T, L> {
        Sender { shared: self.clone(), missed: false }
    }

    /// Takes the lock, as another user does.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.lent.lock()
    }
}

impl<T: TxQueue, L: RawMutex> Sender<T, L> {
    /// Moves packets from the front of `burst` to the device, as many as the ring takes, with one doorbell; none where
    /// another has the queue and the burst can wait.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        self.take_turn(burst.len(), |lent| transmit(&mut lent.queue, burst, cache))
    }

    /// As [`send`](Self::send), but a quarter of the ring is left to the queue's owner.
    #[inline(always)]
    pub(super) fn send_sparing(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        self.take_turn(burst.len(), |lent| lent.transmit_sparing(burst, cache))
    }

    /// Sends so many packets under the lock, or none where another has it and these can be kept.
    #[inline(always)]
    fn take_turn(&mut self, packets: usize, send: impl FnOnce(&mut Lent<T>) -> Progress) -> Progress {
        let SharedTx { lent, when_taken, waiting, stats } = &*self.shared;
        let mut lent = match lent.try_lock() {
            Some(lent) => lent,
            None => {
                self.missed = true;
                match *when_taken {
                    WhenTaken::Keep { most } if packets <= most => return Progress::default(),
                    _ => lent.lock(),
                }
            }
        };
        stats.acquired.add(1);
        stats.contended.add(u64::from(mem::take(&mut self.missed)));
        let progress = send(&mut lent);
        waiting.set(lent.queue.waiting() as u64);
        progress
    }

    pub(super) fn reclaim(&self, cache: &mut PoolCache) -> usize {
        let SharedTx { lent, waiting, .. } = &*self.shared;
        if waiting.get() == 0 {
            return 0;
        }
        let Some(mut lent) = lent.try_lock() else { return 0 };
        let completed = lent.queue.reclaim(cache);
        waiting.set(lent.queue.waiting() as u64);
        completed
    }

    /// The queue.
    #[cfg(test)]
    pub(crate) fn queue(&self) -> Arc<SharedTx<T, L>> {
        self.shared.clone()
    }

    /// Packets in the ring.
    pub(super) fn waiting(&self) -> usize {
        self.shared.waiting.get() as usize
    }
}

impl<T: TxQueue> Lent<T> {
    fn transmit_sparing(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        let mut completed = 0;
        if self.allowance() < burst.len() {
            completed = self.queue.reclaim(cache);
        }
        let allowed = self.allowance().min(burst.len());
        self.stopped = allowed < burst.len();
        let mut head: Burst = burst.drain(..allowed).collect();
        let mut progress = transmit(&mut self.queue, &mut head, cache);
        progress.completed += completed;
        progress
    }

    /// How many packets a borrower may send now: what is free beyond the reserve; and nothing, once that was used up,
    /// until as much again is free.
    fn allowance(&self) -> usize {
        let room = self.queue.room();
        let reserve = (room + self.queue.waiting()) / 4;
        let restart = if self.stopped { reserve } else { 0 };
        let allowed = room.saturating_sub(reserve);
        if allowed > restart { allowed } else { 0 }
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

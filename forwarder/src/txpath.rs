//! A worker's way out of a port: a queue of its own, or one under a lock.
//!
//! Which it is was [planned](crate::txmap) at set-up. A worker with a queue of its own has it by value: neither the type
//! nor the code of that path knows a lock.

use alloc::sync::Arc;

use hermit_sync::{SpinMutex, SpinMutexGuard};
use netdrv::device::TxQueue;
use netdrv::packet::{Burst, MAX_BURST};
use netdrv::pool::PoolCache;

use crate::stats::{Gauge, LockStats};
use crate::verdict::DropReason;

/// What came of sending.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Packets that left the burst.
    pub taken: usize,
    /// Those of them that did not enter the ring, since the device can't send them.
    pub refused: usize,
    /// Packets of earlier sends that the device was done with.
    pub completed: usize,
}

impl Progress {
    /// Packets that entered the ring.
    pub fn sent(&self) -> usize {
        self.taken - self.refused
    }
}

/// A way out of a port.
pub enum TxPath<T> {
    /// A queue of its own.
    Dedicated(T),
    /// A queue that others use as well.
    Shared(Arc<SharedTx<T>>),
    /// The stack's queue, of which a part is left to the stack.
    Borrowed(Arc<SharedTx<T>>),
    /// There is none.
    Unavailable,
}

impl<T: TxQueue> TxPath<T> {
    /// Moves packets from the front of `burst` to the device, as many as the ring takes. One doorbell.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        match self {
            TxPath::Dedicated(queue) => transmit(queue, burst, cache),
            TxPath::Shared(shared) => shared.send(burst, cache),
            TxPath::Borrowed(shared) => shared.send_sparing(burst, cache),
            TxPath::Unavailable => Progress::default(),
        }
    }

    /// Sends home what the device is done with; a shared queue that is in use is left to its user. Returns how many
    /// frames the device has completed.
    pub fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        match self {
            TxPath::Dedicated(queue) if queue.waiting() > 0 => queue.reclaim(cache),
            TxPath::Shared(shared) | TxPath::Borrowed(shared) => shared.reclaim(cache),
            TxPath::Dedicated(_) | TxPath::Unavailable => 0,
        }
    }

    /// Packets that the ring holds.
    pub fn waiting(&self) -> usize {
        match self {
            TxPath::Dedicated(queue) => queue.waiting(),
            TxPath::Shared(shared) | TxPath::Borrowed(shared) => shared.waiting.get() as usize,
            TxPath::Unavailable => 0,
        }
    }

    /// Why a packet that finds no room on this path is dropped.
    pub fn refusal(&self) -> DropReason {
        match self {
            TxPath::Dedicated(_) | TxPath::Shared(_) => DropReason::TxRingFull,
            TxPath::Borrowed(_) => DropReason::TxRingReserved,
            TxPath::Unavailable => DropReason::TxUnavailable,
        }
    }
}

/// Reclaims, enqueues and flushes. It reclaims when a burst's worth of packets is in the ring, so that a buffer goes home
/// for each one that leaves and the cache stays level; earlier would mean to read, for each few packets, a line
/// that the device is writing. A ring without room is reclaimed once more.
#[inline(always)]
fn transmit<T: TxQueue>(queue: &mut T, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
    let mut progress = Progress::default();
    let refused = queue.refused();
    if queue.waiting() >= MAX_BURST {
        progress.completed = queue.reclaim(cache);
    }
    progress.taken = queue.enqueue(burst);
    if !burst.is_empty() {
        progress.completed += queue.reclaim(cache);
        progress.taken += queue.enqueue(burst);
    }
    if progress.taken > 0 {
        queue.flush();
    }
    progress.refused = (queue.refused() - refused) as usize;
    progress
}

/// A TX queue under a lock. The lock covers one burst: reclaim, descriptors and doorbell, since the doorbell's value
/// must not overtake another core's descriptors. Nothing else is done under it.
pub struct SharedTx<T> {
    lent: SpinMutex<Lent<T>>,
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

impl<T: TxQueue> SharedTx<T> {
    pub(crate) fn new(queue: T, stats: Arc<LockStats>) -> SharedTx<T> {
        SharedTx { lent: SpinMutex::new(Lent { queue, stopped: false }), waiting: Gauge::default(), stats }
    }

    #[inline(always)]
    fn send(&self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        let mut lent = self.lock();
        let progress = transmit(&mut lent.queue, burst, cache);
        self.waiting.set(lent.queue.waiting() as u64);
        progress
    }

    /// As [`send`](Self::send), but a quarter of the ring is left to the queue's owner.
    #[inline(always)]
    fn send_sparing(&self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        let mut lent = self.lock();
        let progress = lent.transmit_sparing(burst, cache);
        self.waiting.set(lent.queue.waiting() as u64);
        progress
    }

    #[inline(always)]
    fn lock(&self) -> SpinMutexGuard<'_, Lent<T>> {
        let (lent, contended) = match self.lent.try_lock() {
            Some(lent) => (lent, 0),
            None => (self.lent.lock(), 1),
        };
        self.stats.acquired.add(1);
        self.stats.contended.add(contended);
        lent
    }

    fn reclaim(&self, cache: &mut PoolCache) -> usize {
        if self.waiting.get() == 0 {
            return 0;
        }
        let Some(mut lent) = self.lent.try_lock() else { return 0 };
        let completed = lent.queue.reclaim(cache);
        self.waiting.set(lent.queue.waiting() as u64);
        completed
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

#[cfg(test)]
mod tests;

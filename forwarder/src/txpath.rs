//! A worker's way out of a port: a queue of its own, or one under a lock.
//!
//! Which it is was [planned](crate::txmap) at set-up. A worker with a queue of its own has it by value: neither the type
//! nor the code of that path knows a lock.

mod shared;

use netdrv::device::TxQueue;
use netdrv::packet::{Burst, MAX_BURST};
use netdrv::pool::PoolCache;

pub use self::shared::{Sender, SharedTx, WhenTaken};
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
    Shared(Sender<T>),
    /// The stack's queue, of which a part is left to the stack.
    Borrowed(Sender<T>),
    /// There is none.
    Unavailable,
}

impl<T: TxQueue> TxPath<T> {
    /// Moves packets from the front of `burst` to the device, as many as the ring takes. One doorbell. None where another
    /// has a shared queue and the burst can wait: it goes with the next one.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        match self {
            TxPath::Dedicated(queue) => transmit(queue, burst, cache),
            TxPath::Shared(sender) => sender.send(burst, cache),
            TxPath::Borrowed(sender) => sender.send_sparing(burst, cache),
            TxPath::Unavailable => Progress::default(),
        }
    }

    /// Sends home what the device is done with; a shared queue that is in use is left to its user. Returns how many
    /// frames the device has completed.
    pub fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        match self {
            TxPath::Dedicated(queue) if queue.waiting() > 0 => queue.reclaim(cache),
            TxPath::Shared(sender) | TxPath::Borrowed(sender) => sender.reclaim(cache),
            TxPath::Dedicated(_) | TxPath::Unavailable => 0,
        }
    }

    /// Packets that the ring holds.
    pub fn waiting(&self) -> usize {
        match self {
            TxPath::Dedicated(queue) => queue.waiting(),
            TxPath::Shared(sender) | TxPath::Borrowed(sender) => sender.waiting(),
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

#[cfg(test)]
mod tests;

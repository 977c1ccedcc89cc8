//! From a worker to the TX queue of each port: dedicated, or shared under a lock.
//!
//! [`plan`] decides once, at set-up, from what the device really gave. A worker with a queue of its own has it by
//! value: neither the type nor the code of that path knows a lock.

use alloc::sync::Arc;
use core::fmt;

use hermit_sync::SpinMutex;
use netdrv::device::TxQueue;
use netdrv::packet::{Burst, MAX_BURST};
use netdrv::pool::PoolCache;

use crate::stats::{Gauge, LockStats};

/// What the user wants (`tx=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Dedicated where there are enough queues, else shared; a port without any is left unavailable.
    Auto,
    /// A queue for each worker, or no boot.
    Dedicated,
    /// The lock in any case.
    Shared,
}

/// How the workers reach a port's TX queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each worker has a queue that no other uses.
    Dedicated,
    /// Workers take turns at a queue, under its lock.
    Shared,
    /// The port can't send.
    Unavailable,
}

impl Mode {
    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Mode::Dedicated => "dedicated",
            Mode::Shared => "shared",
            Mode::Unavailable => "unavailable",
        }
    }
}

/// Why a wish can't be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// Fewer queues than `dedicated` takes.
    TooFewQueues {
        /// Workers that each need one.
        workers: usize,
        /// Queues that the device gave.
        queues: usize,
    },
    /// No queue to share.
    NoQueue,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::TooFewQueues { workers, queues } => {
                write!(f, "{workers} workers need a TX queue each and the device gave {queues}")
            }
            PlanError::NoQueue => f.write_str("the device gave no TX queue"),
        }
    }
}

/// Which worker uses which TX queue of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    mode: Mode,
    workers: usize,
    queues: usize,
}

/// Plans one port: `workers` (at least 1) over the `queues` that the device gave.
pub fn plan(workers: usize, queues: usize, wish: Wish) -> Result<Plan, PlanError> {
    let mode = match wish {
        Wish::Auto if queues == 0 => Mode::Unavailable,
        Wish::Auto | Wish::Dedicated if queues >= workers => Mode::Dedicated,
        Wish::Dedicated => return Err(PlanError::TooFewQueues { workers, queues }),
        Wish::Shared if queues == 0 => return Err(PlanError::NoQueue),
        Wish::Auto | Wish::Shared => Mode::Shared,
    };
    Ok(Plan { mode, workers, queues: queues.min(workers) })
}

impl Plan {
    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How many of the port's queues are used: queues 0 up to this.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// The queue of `worker`, or `None` where the port can't send.
    pub fn queue_of(&self, worker: usize) -> Option<usize> {
        worker.checked_rem(self.queues)
    }

    /// How many workers use `queue`.
    pub fn cores_of(&self, queue: usize) -> usize {
        (0..self.workers).filter(|&worker| self.queue_of(worker) == Some(queue)).count()
    }
}

/// As in the port's line at boot: `dedicated`, `shared(2 cores/queue)`, `shared(2-3 cores/queue)`, `unavailable`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode.label())?;
        if self.mode != Mode::Shared {
            return Ok(());
        }
        let (least, most) = (self.workers / self.queues, self.workers.div_ceil(self.queues));
        if least == most {
            write!(f, "({most} cores/queue)")
        } else {
            write!(f, "({least}-{most} cores/queue)")
        }
    }
}

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

/// A worker's way out of a port.
pub enum TxPath<T> {
    /// A queue of its own.
    Dedicated(T),
    /// A queue that other workers use as well.
    Shared(Arc<SharedTx<T>>),
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
            TxPath::Unavailable => Progress::default(),
        }
    }

    /// Sends home what the device is done with; a shared queue that is in use is left to its user. Returns how many
    /// frames the device has completed.
    pub fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        match self {
            TxPath::Dedicated(queue) if queue.waiting() > 0 => queue.reclaim(cache),
            TxPath::Shared(shared) => shared.reclaim(cache),
            TxPath::Dedicated(_) | TxPath::Unavailable => 0,
        }
    }

    /// Packets that the ring holds.
    pub fn waiting(&self) -> usize {
        match self {
            TxPath::Dedicated(queue) => queue.waiting(),
            TxPath::Shared(shared) => shared.waiting.get() as usize,
            TxPath::Unavailable => 0,
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
    queue: SpinMutex<T>,
    /// Packets in the ring, for those who don't hold the lock.
    waiting: Gauge,
    stats: Arc<LockStats>,
}

impl<T: TxQueue> SharedTx<T> {
    pub(crate) fn new(queue: T, stats: Arc<LockStats>) -> SharedTx<T> {
        SharedTx { queue: SpinMutex::new(queue), waiting: Gauge::default(), stats }
    }

    #[inline(always)]
    fn send(&self, burst: &mut Burst, cache: &mut PoolCache) -> Progress {
        let (mut queue, contended) = match self.queue.try_lock() {
            Some(queue) => (queue, 0),
            None => (self.queue.lock(), 1),
        };
        let progress = transmit(&mut *queue, burst, cache);
        self.waiting.set(queue.waiting() as u64);
        self.stats.acquired.add(1);
        self.stats.contended.add(contended);
        progress
    }

    fn reclaim(&self, cache: &mut PoolCache) -> usize {
        if self.waiting.get() == 0 {
            return 0;
        }
        let Some(mut queue) = self.queue.try_lock() else { return 0 };
        let completed = queue.reclaim(cache);
        self.waiting.set(queue.waiting() as u64);
        completed
    }
}

/// Spreads the RX queues over the workers: all queues of port 0, then of port 1, and so on; the k-th goes to worker k
/// modulo `workers`. So two ports with one queue each keep two workers busy.
///
/// `queues` holds the number of RX queues of each port; the answer, for each queue in that order, its port and worker.
pub fn assign_rx(workers: usize, queues: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let ports = queues.iter().enumerate().flat_map(|(port, &count)| core::iter::repeat_n(port, count));
    ports.zip((0..workers).cycle())
}

#[cfg(test)]
mod tests;

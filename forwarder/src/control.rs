//! What the cores share: the wish to stop, what the workers publish, and the queues that they give back.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use netdrv::device::DeviceCounters;
use netdrv::pool::Pool;
use netdrv::sync::{AtomicBool, Ordering, SpinMutex, spin_loop};

use crate::metrics;
use crate::stack::StackStats;
use crate::stats::{self, Counts, LockStats, WorkerStats};
use crate::steer::{RxMode, Steering};
use crate::txmap::Plan;
use crate::txpath::TxPath;
use crate::verdict::PortId;

/// The forwarder as seen from outside its workers: any core may ask it, at any time.
pub struct Control<R, T> {
    stopping: AtomicBool,
    telemetry: Telemetry,
    returned: SpinMutex<Returned<R, T>>,
}

/// Everything that metrics are made of.
pub(crate) struct Telemetry {
    pub(crate) rx: RxMode,
    pub(crate) ports: Vec<PortTelemetry>,
    pub(crate) workers: Vec<Arc<WorkerStats>>,
    pub(crate) pool: &'static Pool,
}

/// One port's TX map, the lock of each shared queue, and the stack's counters if there is one.
pub(crate) struct PortTelemetry {
    pub(crate) plan: Plan,
    pub(crate) locks: Vec<Arc<LockStats>>,
    pub(crate) stack: Option<Arc<StackStats>>,
}

struct Returned<R, T> {
    /// Workers that have ended.
    workers: usize,
    /// Until somebody takes them.
    queues: Option<StoppedQueues<R, T>>,
}

/// The queues of all workers after the end. The devices still own what is in the rings: stop them, then drop this, and
/// every buffer is home.
///
/// The rings of steering are among them, so that one core frees what may be thousands: workers that each freed their
/// own would all wait for the lock of the heap.
pub struct StoppedQueues<R, T> {
    pub(crate) rx: Vec<R>,
    pub(crate) tx: Vec<TxPath<T>>,
    pub(crate) steering: Vec<Steering>,
}

impl<R, T> Control<R, T> {
    /// `spare` are the TX queues that no worker uses.
    pub(crate) fn new(telemetry: Telemetry, spare: Vec<T>) -> Control<R, T> {
        let spare = spare.into_iter().map(TxPath::Dedicated).collect();
        let queues = StoppedQueues { rx: Vec::new(), tx: spare, steering: Vec::new() };
        Control {
            stopping: AtomicBool::new(false),
            telemetry,
            returned: SpinMutex::new(Returned { workers: 0, queues: Some(queues) }),
        }
    }

    /// How worker and TX queue go together on `port`; printed, it is the port line's `tx=`.
    ///
    /// # Panics
    /// Where there is no such port.
    pub fn tx_plan(&self, port: PortId) -> &Plan {
        &self.telemetry.ports[port.index()].plan
    }

    /// The counters of `port`, summed over the workers.
    ///
    /// # Panics
    /// Where there is no such port.
    pub fn counts(&self, port: PortId) -> Counts {
        self.telemetry.counts(port)
    }

    /// Writes all metrics as OpenMetrics text, with what the `devices` of the ports count by themselves.
    pub fn write_metrics(&self, devices: &[DeviceCounters], out: &mut impl fmt::Write) -> fmt::Result {
        metrics::write(&self.telemetry, devices, out)
    }

    /// Tells the workers to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether [`stop`](Self::stop) was called.
    #[inline(always)]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until the last worker has ended, which takes about a second at most, and takes their queues.
    /// `None` to all but the first who asks.
    pub fn wait_stopped(&self) -> Option<StoppedQueues<R, T>> {
        while self.returned.lock().workers < self.telemetry.workers.len() {
            spin_loop();
        }
        self.returned.lock().queues.take()
    }

    pub(crate) fn give_back(&self, remains: StoppedQueues<R, T>) {
        let mut returned = self.returned.lock();
        returned.workers += 1;
        if let Some(queues) = &mut returned.queues {
            queues.rx.extend(remains.rx);
            queues.tx.extend(remains.tx);
            queues.steering.extend(remains.steering);
        }
    }
}

impl Telemetry {
    /// The counters of `port`, summed over the workers.
    pub(crate) fn counts(&self, port: PortId) -> Counts {
        stats::sum(&self.workers, port)
    }

    /// Buffers that hold no packet, in the depot and in the workers' caches.
    pub(crate) fn free_buffers(&self) -> u64 {
        let cached: u64 = self.workers.iter().map(|worker| worker.cached.get()).sum();
        cached + self.pool.in_depot() as u64
    }
}

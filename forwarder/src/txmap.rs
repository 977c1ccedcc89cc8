//! The plan of a port's TX queues: dedicated, shared or borrowed.
//!
//! [`plan`] decides once, at set-up, from what the device really gave. The modes are those of Linux's sfc driver; what
//! they mean for a packet is in [`txpath`](crate::txpath).

use core::fmt;

/// What the user wants (`tx=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Dedicated where there are enough queues, else shared, else borrowed; a port without any is left unavailable.
    Auto,
    /// A queue for each worker, or no boot.
    Dedicated,
    /// The lock in any case, on as many queues as there are.
    Shared,
    /// The lock, and this many workers at each queue.
    SharedBy(usize),
    /// The stack's queue in any case.
    Borrowed,
}

/// What the port's local stack needs of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackNeed {
    /// The port has no stack.
    Nothing,
    /// A queue, of its own if there is a second one.
    Queue,
}

/// How the workers reach a port's TX queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each worker has a queue that no other uses.
    Dedicated,
    /// Workers take turns at a queue, under its lock.
    Shared,
    /// Workers take turns at the stack's queue, and leave a part of it to the stack.
    Borrowed,
    /// The port can't send.
    Unavailable,
}

impl Mode {
    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Mode::Dedicated => "dedicated",
            Mode::Shared => "shared",
            Mode::Borrowed => "borrowed",
            Mode::Unavailable => "unavailable",
        }
    }
}

/// Why a wish can't be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// Fewer queues than `dedicated` takes, or `shared:N`.
    TooFewQueues {
        /// Workers that use them.
        workers: usize,
        /// Queues that they need.
        needed: usize,
        /// Queues that the device gave beside the stack's.
        queues: usize,
    },
    /// No queue to share or to borrow.
    NoQueue,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::TooFewQueues { workers, needed, queues } => {
                write!(f, "{workers} workers need {needed} TX queues and the device has {queues} for them")
            }
            PlanError::NoQueue => f.write_str("the device has no TX queue for that"),
        }
    }
}

impl core::error::Error for PlanError {}

/// Which worker uses which TX queue of a port, and which the stack does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    mode: Mode,
    workers: usize,
    queues: usize,
    stack: Option<usize>,
}

/// Plans one port: `workers` (at least 1) over the `queues` that the device gave.
pub fn plan(workers: usize, queues: usize, stack: StackNeed, wish: Wish) -> Result<Plan, PlanError> {
    let beside = match stack {
        StackNeed::Nothing => queues,
        StackNeed::Queue => queues.saturating_sub(1),
    };
    let need = |needed: usize, mode| {
        let too_few = PlanError::TooFewQueues { workers, needed, queues: beside };
        if needed <= beside { Ok((mode, needed)) } else { Err(too_few) }
    };
    let (mode, used) = match wish {
        Wish::Auto if queues == 0 => (Mode::Unavailable, 0),
        Wish::Auto if beside == 0 => (Mode::Borrowed, 1),
        Wish::Auto if beside >= workers => (Mode::Dedicated, workers),
        Wish::Dedicated => need(workers, Mode::Dedicated)?,
        Wish::SharedBy(cores) => need(workers.div_ceil(cores), Mode::Shared)?,
        Wish::Shared if beside == 0 => return Err(PlanError::NoQueue),
        Wish::Auto | Wish::Shared => (Mode::Shared, beside.min(workers)),
        Wish::Borrowed if queues == 0 => return Err(PlanError::NoQueue),
        Wish::Borrowed => (Mode::Borrowed, 1),
    };
    let own = match mode {
        Mode::Borrowed => Some(0),
        Mode::Dedicated | Mode::Shared => Some(used),
        Mode::Unavailable => None,
    };
    Ok(Plan { mode, workers, queues: used, stack: own.filter(|_| stack == StackNeed::Queue) })
}

impl Plan {
    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How many of the port's queues the workers use: queues 0 up to this.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// The queue of `worker`, or `None` where the port can't send.
    pub fn queue_of(&self, worker: usize) -> Option<usize> {
        worker.checked_rem(self.queues)
    }

    /// The queue of the stack, where the port has one and can send. In mode [`Mode::Borrowed`] the workers use it too.
    pub fn stack_queue(&self) -> Option<usize> {
        self.stack
    }

    /// How many workers use `queue`.
    pub fn cores_of(&self, queue: usize) -> usize {
        (0..self.workers).filter(|&worker| self.queue_of(worker) == Some(queue)).count()
    }
}

/// As in the port's line at boot: `dedicated`, `shared(2 cores/queue)`, `shared(2-3 cores/queue)`, `borrowed(4
/// cores/queue)`, `unavailable`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode.label())?;
        if !matches!(self.mode, Mode::Shared | Mode::Borrowed) {
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

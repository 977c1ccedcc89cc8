//! One cell of the grid, and what the shipped plan says of it.

use std::fmt;
use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use forwarder::steer::{self, RxMode};
use forwarder::txmap::{self, Plan, PlanError, StackNeed, Wish};
use qemu::vhost::flow_queue;
use qemu::{Guest, Machine};

/// The ports of every cell.
pub(crate) const PORTS: usize = 2;
/// Enough for the rings of two ports with 64 queue pairs, and what 72 cores hold.
const MEMORY_MIB: usize = 512;
/// The address of each port's stack, where it has one.
pub(crate) const STACK: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A machine: its cores, its cards, its settings.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    /// Cores, all of which forward.
    pub(crate) workers: usize,
    /// Queue pairs that each card has.
    pub(crate) pairs: u16,
    /// Whether each port has a local stack.
    pub(crate) stack: StackNeed,
    /// `tx=`
    pub(crate) tx: Wish,
    /// `rx=`
    pub(crate) rx: RxMode,
}

impl Cell {
    /// Queue pairs that the image takes of each card: one for each worker, and one for the stack, if there are as many.
    pub(crate) fn given(&self) -> usize {
        let wanted = self.workers + usize::from(self.stack == StackNeed::Queue);
        wanted.min(self.pairs.into())
    }

    /// The plan of each port.
    pub(crate) fn plan(&self) -> Result<Plan, PlanError> {
        txmap::plan(self.workers, self.given(), self.stack, self.tx)
    }

    /// The worker that forwards `frame`, a frame of a flow, which comes in at `port`.
    pub(crate) fn worker_of(&self, port: usize, frame: &[u8]) -> usize {
        match self.rx {
            RxMode::Hardware => self.receiver_of(port, frame),
            RxMode::Software => steer::worker_of(frame, self.workers).expect("a frame of a flow is no runt"),
        }
    }

    /// The worker that receives `frame` at `port`: the owner of the receive queue that its flow goes to.
    fn receiver_of(&self, port: usize, frame: &[u8]) -> usize {
        let queue = port * self.given() + flow_queue(frame, self.given());
        let (_, worker) = txmap::assign_rx(self.workers, &[self.given(); PORTS])
            .nth(queue)
            .expect("the queue is one of those that were handed out");
        worker
    }

    /// The cell as a machine, but for its ports.
    pub(crate) fn describe(&self, machine: Machine) -> Machine {
        let stack = match self.stack {
            StackNeed::Nothing => "none".into(),
            StackNeed::Queue => format!("0@{STACK}/24,1@{STACK}/24"),
        };
        let (tx, rx) = (word(self.tx), self.rx.label());
        let words = format!("program=forward tx={tx} rx={rx} stack={stack} on-panic=exit");
        machine.cpus(self.workers).memory_mib(MEMORY_MIB).words(words)
    }

    /// The image says of each port what the plan says.
    pub(crate) fn check_boot_lines(&self, guest: &Guest, plan: &Plan) -> Result<()> {
        let (given, log) = (self.given(), guest.log());
        let lines: Vec<_> = log.lines().filter(|line| line.starts_with("port ")).collect();
        ensure!(lines.len() == PORTS, "{} lines about ports:\n{log}", lines.len());
        for line in lines {
            for told in [format!(" rx-queues={given} tx-queues={given} "), format!(" tx={plan}")] {
                ensure!(line.contains(&told), "the line has no \"{told}\": {line}");
            }
        }
        Ok(())
    }
}

/// The cell's name among the tests.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stack = match self.stack {
            StackNeed::Nothing => "none",
            StackNeed::Queue => "own",
        };
        let (tx, rx) = (word(self.tx), self.rx.label());
        write!(f, "workers={} pairs={} stack={stack} tx={tx} rx={rx}", self.workers, self.pairs)
    }
}

/// The value of `tx=`.
fn word(wish: Wish) -> String {
    match wish {
        Wish::Auto => "auto".into(),
        Wish::Dedicated => "dedicated".into(),
        Wish::Shared => "shared".into(),
        Wish::SharedBy(cores) => format!("shared:{cores}"),
        Wish::Borrowed => "borrowed".into(),
    }
}

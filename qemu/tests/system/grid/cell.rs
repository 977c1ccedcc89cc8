//! One cell of the grid, and what the shipped plan says of it.

use std::fmt;
use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use forwarder::txmap::{self, Plan, PlanError, StackNeed, Wish};
use qemu::vhost::flow_queue;
use qemu::{Guest, Machine};

/// The ports of every cell.
pub(super) const PORTS: usize = 2;
/// The address of each port's stack, where it has one.
pub(super) const STACK: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A machine: its cores, its cards, its settings.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// Cores, all of which forward.
    pub(super) workers: usize,
    /// Queue pairs that each card has.
    pub(super) pairs: u16,
    /// Whether each port has a local stack.
    pub(super) stack: StackNeed,
    /// `tx=`
    pub(super) tx: Wish,
}

impl Cell {
    /// Queue pairs that the image takes of each card: one for each worker, and one for the stack, if there are as many.
    pub(super) fn given(&self) -> usize {
        let wanted = self.workers + usize::from(self.stack == StackNeed::Queue);
        wanted.min(self.pairs.into())
    }

    /// The plan of each port.
    pub(super) fn plan(&self) -> Result<Plan, PlanError> {
        txmap::plan(self.workers, self.given(), self.stack, self.tx)
    }

    /// The worker that forwards `frame`, which comes in at `port`: the owner of the receive queue that its flow goes to.
    pub(super) fn worker_of(&self, port: usize, frame: &[u8]) -> usize {
        let queue = port * self.given() + flow_queue(frame, self.given());
        let (_, worker) = txmap::assign_rx(self.workers, &[self.given(); PORTS])
            .nth(queue)
            .expect("the queue is one of those that were handed out");
        worker
    }

    /// The cell as a machine, but for its ports.
    pub(super) fn describe(&self, machine: Machine) -> Machine {
        let stack = match self.stack {
            StackNeed::Nothing => "none".into(),
            StackNeed::Queue => format!("0@{STACK}/24,1@{STACK}/24"),
        };
        let words = format!("program=forward tx={} stack={stack} on-panic=exit", word(self.tx));
        machine.cpus(self.workers).memory_mib(256).words(words)
    }

    /// The image says of each port what the plan says.
    pub(super) fn check_boot_lines(&self, guest: &Guest, plan: &Plan) -> Result<()> {
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
        write!(f, "workers={} pairs={} stack={stack} tx={}", self.workers, self.pairs, word(self.tx))
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

//! The grid: so many workers, over so many queue pairs, with and without a local stack, by every wish and steering.
//!
//! A cell of it is either refused at boot, with the numbers, or it forwards 1,000 flows both ways: nothing lost, each
//! flow in order, every frame by the worker and out of the queue that the plan names, and every buffer home. The plan is
//! the one that ships, `forwarder::txmap::plan`, held against what the image prints.
//!
//! The whole grid takes a while, and is run by `SLUICE_GRID=whole cargo test -p qemu --test system -- grid::`. Without
//! that variable there is only a slice of it.

pub(crate) mod cell;
pub(crate) mod forwarding;
pub(crate) mod lane;

use anyhow::{Result, ensure};
use forwarder::steer::RxMode::{self, Hardware, Software};
use forwarder::txmap::StackNeed::{Nothing, Queue};
use forwarder::txmap::{PlanError, StackNeed, Wish};
use libtest_mimic::Trial;
use qemu::Machine;
use qemu::guest::EXIT_REFUSED;
use qemu::vhost::{TrafficConfig, TrafficPort};

use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;

use cell::Cell;
use forwarding::forwards;

const WORKERS: [usize; 5] = [1, 2, 4, 8, 72];
const PAIRS: [u16; 5] = [1, 2, 4, 8, 64];
const STACKS: [StackNeed; 2] = [Nothing, Queue];
const WISHES: [Wish; 5] = [Wish::Auto, Wish::Dedicated, Wish::Shared, Wish::SharedBy(2), Wish::Borrowed];

const STEERINGS: [RxMode; 2] = [Hardware, Software];

/// What runs with all other tests: each mode and each kind of refusal, and the largest machine in each mode that it
/// can have.
const SLICE: [Cell; 17] = [
    Cell { workers: 1, pairs: 1, stack: Nothing, tx: Wish::Auto, rx: Hardware },
    Cell { workers: 1, pairs: 1, stack: Queue, tx: Wish::Auto, rx: Software },
    Cell { workers: 2, pairs: 1, stack: Queue, tx: Wish::Shared, rx: Hardware },
    Cell { workers: 4, pairs: 4, stack: Queue, tx: Wish::Dedicated, rx: Hardware },
    Cell { workers: 4, pairs: 8, stack: Queue, tx: Wish::Dedicated, rx: Hardware },
    Cell { workers: 4, pairs: 4, stack: Nothing, tx: Wish::Dedicated, rx: Software },
    Cell { workers: 8, pairs: 1, stack: Nothing, tx: Wish::Auto, rx: Software },
    Cell { workers: 8, pairs: 1, stack: Queue, tx: Wish::Auto, rx: Software },
    Cell { workers: 8, pairs: 2, stack: Nothing, tx: Wish::SharedBy(2), rx: Software },
    Cell { workers: 8, pairs: 4, stack: Nothing, tx: Wish::SharedBy(2), rx: Hardware },
    Cell { workers: 8, pairs: 8, stack: Queue, tx: Wish::Borrowed, rx: Hardware },
    Cell { workers: 8, pairs: 64, stack: Queue, tx: Wish::Auto, rx: Hardware },
    Cell { workers: 72, pairs: 1, stack: Queue, tx: Wish::Auto, rx: Software },
    Cell { workers: 72, pairs: 8, stack: Nothing, tx: Wish::Auto, rx: Hardware },
    Cell { workers: 72, pairs: 8, stack: Queue, tx: Wish::Auto, rx: Software },
    Cell { workers: 72, pairs: 64, stack: Nothing, tx: Wish::Auto, rx: Hardware },
    Cell { workers: 72, pairs: 64, stack: Queue, tx: Wish::Shared, rx: Software },
];

pub(crate) fn trials() -> Vec<Trial> {
    let cells = match std::env::var("SLUICE_GRID").as_deref() {
        Err(_) => SLICE.to_vec(),
        Ok("whole") => whole(),
        Ok(other) => panic!("SLUICE_GRID={other}; allowed: whole"),
    };
    cells.into_iter().map(|cell| test(format!("grid::{cell}"), move || run(cell))).collect()
}

fn whole() -> Vec<Cell> {
    let mut cells = Vec::new();
    for workers in WORKERS {
        for pairs in PAIRS {
            for stack in STACKS {
                for tx in WISHES {
                    cells.extend(STEERINGS.map(|rx| Cell { workers, pairs, stack, tx, rx }));
                }
            }
        }
    }
    cells
}

fn run(cell: Cell) -> Result<()> {
    match cell.plan() {
        Ok(plan) => forwards(cell, &plan),
        Err(error) => is_refused(cell, error),
    }
}

/// The image stops at boot and says what is missing.
fn is_refused(cell: Cell, error: PlanError) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let config = TrafficConfig { queue_pairs: cell.pairs, ..Default::default() };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let guest = cell.describe(Machine::new(image()?)).port(port.spec()).start()?;
    let exit_code = guest.wait_exit(PATIENCE)?;
    let log = guest.log();
    ensure!(exit_code == Some(EXIT_REFUSED), "exit code {exit_code:?}\n{log}");
    ensure!(!log.contains("sluice ready"), "it forwards all the same:\n{log}");
    let refusal = format!("sluice refused: command line: tx: port 0: {error}; allowed: ");
    ensure!(log.contains(&refusal), "it does not say \"{refusal}\":\n{log}");
    Ok(())
}

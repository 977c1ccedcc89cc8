//! The shipped worker loop before cards that cost next to nothing, in this process.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use forwarder::config::Config;
use forwarder::{Assembly, Clock, Control, Cpu, PortParts, Worker, assemble, buffers_outside_rings};
use netdrv::device::{Mac, Queues};
use netdrv::pool::Pool;
use netdrv::process::ProcessHal;

use super::card::{NullCard, NullRx, NullTx};
use super::cpu;
use super::measure::{Log, Recorder, Window, undisturbed};
use crate::interrupt;

/// Descriptors in a ring.
pub(super) const RING: usize = 256;
/// Packets in a window: at 50 cycles each a sixth of a millisecond or so.
const WINDOW: u64 = 8 * 1024;
/// Undisturbed windows of each thread that suffice.
const WANTED: usize = 21;
/// How long to try for them.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at what there is.
const LOOK: Duration = Duration::from_millis(20);

/// Workers that reflect what comes in at a port: each has a receive queue of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) workers: usize,
    pub(super) way: Way,
    pub(super) batch: usize,
}

/// A worker's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// A queue of its own.
    Dedicated,
    /// A queue under a lock that no other worker uses.
    Locked,
    /// One queue under a lock for all workers.
    Shared,
}

impl Setup {
    /// The settings of the image that lead to this.
    fn words(&self) -> String {
        let Setup { workers, way, batch } = self;
        let tx = match way {
            Way::Dedicated => "dedicated".into(),
            Way::Locked => "shared:1".into(),
            Way::Shared => format!("shared:{workers}"),
        };
        format!("program=reflect idle=poll workers={workers} batch={batch} tx={tx}")
    }
}

/// The workers at work on a core each, until there are enough windows in which all of them had their cores: those windows,
/// by worker. There may be none, where other programs leave the cores no peace.
///
/// # Errors
/// When there are too few cores, and when driver or forwarder refuse the set-up.
pub(super) fn measure(setup: Setup) -> Result<Vec<Vec<Window>>> {
    let cores = cpu::cores()?;
    ensure!(
        cores.len() >= setup.workers,
        "{} cores are needed, and there are {}",
        setup.workers,
        cores.len()
    );
    let clock = Clock { now: cpu::ticks, hz: cpu::hz() };
    let Walk { cards, assembly: Assembly { control, workers }, logs } = Walk::new(setup, clock, WINDOW)?;
    thread::scope(|scope| {
        for (worker, core) in workers.into_iter().zip(cores) {
            let control = &control;
            scope.spawn(move || {
                cpu::pin(core).expect("the core may be used");
                run(worker, control, None);
            });
        }
        let begin = Instant::now();
        while !is_enough(&counted(&logs)) && begin.elapsed() < PATIENCE && !interrupt::happened() {
            thread::sleep(LOOK);
        }
        control.stop();
    });
    end(&control, cards)?;
    Ok(counted(&logs))
}

/// One worker for exactly so many bursts more or less than any other call of this: for those who count instructions.
///
/// # Errors
/// As [`measure`].
pub(super) fn walk(setup: Setup, bursts: u64) -> Result<()> {
    ensure!(setup.workers == 1, "one worker walks alone");
    thread_local! {
        static ROUNDS: Cell<u64> = const { Cell::new(0) };
    }
    // A clock that counts rounds, and chores that are due after so many of them.
    let clock = Clock { now: || ROUNDS.replace(ROUNDS.get() + 1), hz: bursts / CHORES_MS * 1000 };
    let walk = Walk::new(setup, clock, u64::MAX)?;
    let Walk { cards, assembly: Assembly { control, mut workers }, .. } = walk;
    let worker = workers.pop().context("there is a worker")?;
    run(worker, &control, Some(&mut || control.stop()));
    end(&control, cards)
}

/// How often a worker does its chores, in milliseconds of its clock.
pub(super) const CHORES_MS: u64 = 5;

fn run(worker: Worker<NullRx, NullTx>, control: &Control<NullRx, NullTx>, chores: Option<&mut dyn FnMut()>) {
    worker.run(control, chores);
}

/// The windows so far in which everyone had a core.
fn counted(logs: &[Log]) -> Vec<Vec<Window>> {
    let all: Vec<Vec<Window>> = logs.iter().map(|log| log.windows().clone()).collect();
    undisturbed(&all)
}

fn is_enough(counted: &[Vec<Window>]) -> bool {
    counted.iter().all(|windows| windows.len() >= WANTED)
}

/// Every buffer comes home.
fn end(control: &Control<NullRx, NullTx>, mut cards: Vec<NullCard>) -> Result<()> {
    let queues = control.wait_stopped().context("the queues are taken once")?;
    cards.iter_mut().for_each(NullCard::stop);
    drop(queues);
    Ok(())
}

/// Workers with their cards.
struct Walk {
    cards: Vec<NullCard>,
    assembly: Assembly<NullRx, NullTx>,
    logs: Vec<Log>,
}

impl Walk {
    fn new(setup: Setup, clock: Clock, window: u64) -> Result<Walk> {
        let workers = setup.workers;
        let config = Config::read(&setup.words(), None).map_err(|refused| anyhow!("{}", refused.refusal))?;
        let mut cards: Vec<_> = (0..workers).map(|_| NullCard::new(RING)).collect::<Result<_>>()?;
        let in_rings: usize = cards.iter().map(NullCard::buffers).sum();
        let pool = Pool::new::<ProcessHal>(in_rings + buffers_outside_rings(&config, workers, workers, 1));
        let pool = pool.map_err(|error| anyhow!("{error}"))?;
        let logs: Vec<Log> = cards.iter().map(|_| Log::default()).collect();
        // A port whose queues are those of as many cards: each is worked by the core that receives on it.
        let mut queues = Queues { rx: Vec::new(), tx: Vec::new() };
        for (card, log) in cards.iter_mut().zip(&logs) {
            let (rx, tx) = card.take_queues(pool, Recorder::new(log.clone(), window))?;
            queues.rx.push(rx);
            queues.tx.push(tx);
        }
        let port = PortParts { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: 1500, rx_interrupts: 0, queues };
        // Nobody sleeps here, so nobody is woken.
        let cpu = Cpu { clock, sleep: |_, _| {}, wake: |_| {} };
        let assembly = assemble(vec![port], &config, workers, pool, cpu);
        Ok(Walk { cards, assembly: assembly.map_err(|refusal| anyhow!("{refusal}"))?, logs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_forwards_and_every_buffer_comes_home() {
        for way in [Way::Dedicated, Way::Locked, Way::Shared] {
            walk(Setup { workers: 1, way, batch: 32 }, 1000).unwrap();
        }
    }
}

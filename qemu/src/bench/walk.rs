//! The shipped worker loop before cards that cost next to nothing, in this process.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use forwarder::config::Config;
use forwarder::stats::Counter;
use forwarder::steer::RxMode;
use forwarder::verdict::PortId;
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

/// Workers that reflect what comes in at a port, or forward it to the next where there are several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) workers: usize,
    pub(super) way: Way,
    pub(super) batch: usize,
    pub(super) ports: usize,
    /// Descriptors in a ring.
    pub(super) ring: usize,
    /// Flows at each receive queue.
    pub(super) flows: u32,
    pub(super) rx: RxMode,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            workers: 1,
            way: Way::Dedicated,
            batch: 32,
            ports: 1,
            ring: RING,
            flows: 1,
            rx: RxMode::Hardware,
        }
    }
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
        let Setup { workers, way, batch, ports, .. } = self;
        let program = if *ports == 1 { "reflect" } else { "forward" };
        let tx = match way {
            Way::Dedicated => "dedicated".into(),
            Way::Locked => "shared:1".into(),
            Way::Shared => format!("shared:{workers}"),
        };
        let rx = self.rx.label();
        format!("program={program} idle=poll workers={workers} batch={batch} tx={tx} rx={rx}")
    }

    /// Receive queues of each port: one for each worker, or one that feeds all of them.
    pub(super) fn rx_queues(&self) -> usize {
        match self.rx {
            RxMode::Hardware => self.workers,
            RxMode::Software => 1,
        }
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
    let mut walk = Walk::new(setup, clock, WINDOW)?;
    let Walk { assembly: Assembly { control, workers }, logs, .. } = &mut walk;
    thread::scope(|scope| {
        for (worker, core) in workers.drain(..).zip(cores) {
            let control = &*control;
            scope.spawn(move || {
                cpu::pin(core).expect("the core may be used");
                run(worker, control, None);
            });
        }
        let begin = Instant::now();
        while !is_enough(&counted(logs)) && begin.elapsed() < PATIENCE && !interrupt::happened() {
            thread::sleep(LOOK);
        }
        control.stop();
    });
    let counted = counted(&walk.logs);
    walk.end()?;
    Ok(counted)
}

/// Exactly so many bursts at each receive queue more or less than in any other call of this: for those who count
/// instructions. A lone worker runs as it does on its core; several have their rounds in turn. Prints how many packets came.
///
/// # Errors
/// As [`measure`].
pub(super) fn walk(setup: Setup, bursts: u64) -> Result<()> {
    if setup.workers > 1 {
        return walk_in_turn(setup, bursts);
    }
    thread_local! {
        static ROUNDS: Cell<u64> = const { Cell::new(0) };
    }
    // A clock that counts rounds, and chores that are due after so many of them.
    let clock = Clock { now: || ROUNDS.replace(ROUNDS.get() + 1), hz: bursts / CHORES_MS * 1000 };
    let mut walk = Walk::new(setup, clock, u64::MAX)?;
    let worker = walk.assembly.workers.pop().context("there is a worker")?;
    let control = &walk.assembly.control;
    run(worker, control, Some(&mut || control.stop()));
    walk.tell(setup);
    walk.end()
}

fn walk_in_turn(setup: Setup, bursts: u64) -> Result<()> {
    let mut walk = Walk::new(setup, Clock { now: || 0, hz: 1000 }, u64::MAX)?;
    let Assembly { control, workers } = &mut walk.assembly;
    for _ in 0..bursts {
        workers.iter_mut().for_each(Worker::step);
    }
    workers.drain(..).for_each(|worker| worker.retire(control));
    walk.tell(setup);
    walk.end()
}

/// Before the number of packets of a [`walk`].
pub(super) const PACKETS: &str = "packets ";

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

/// Workers with their cards.
struct Walk {
    cards: Vec<NullCard>,
    assembly: Assembly<NullRx, NullTx>,
    /// Receive queues that nobody uses.
    unused: Vec<NullRx>,
    logs: Vec<Log>,
    pool: &'static Pool,
}

impl Walk {
    fn new(setup: Setup, clock: Clock, window: u64) -> Result<Walk> {
        let Setup { workers, ports, ring, flows, .. } = setup;
        let config = Config::read(&setup.words(), None).map_err(|refused| anyhow!("{}", refused.refusal))?;
        let mut cards: Vec<_> = (0..ports * workers).map(|_| NullCard::new(ring)).collect::<Result<_>>()?;
        let in_rings: usize = cards.iter().map(NullCard::buffers).sum();
        let outside = buffers_outside_rings(&config, workers, ports * setup.rx_queues(), ports);
        let pool = Pool::new::<ProcessHal>(in_rings + outside).map_err(|error| anyhow!("{error}"))?;
        let (mut parts, mut unused, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        // A port whose queues are those of as many cards: each is worked by the core that has its queues.
        for cards in cards.chunks_mut(workers) {
            let mut queues = Queues { rx: Vec::new(), tx: Vec::new() };
            for card in cards {
                let log = Log::default();
                let (rx, tx) = card.take_queues(pool, Recorder::new(log.clone(), window), flows)?;
                queues.rx.push(rx);
                queues.tx.push(tx);
                logs.push(log);
            }
            unused.extend(queues.rx.split_off(setup.rx_queues()));
            parts.push(PortParts { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: 1500, rx_interrupts: 0, queues });
        }
        // Nobody sleeps here, so nobody is woken.
        let cpu = Cpu { clock, sleep: |_, _| {}, wake: |_| {} };
        let assembly =
            assemble(parts, &config, workers, pool, cpu).map_err(|refusal| anyhow!("{refusal}"))?;
        Ok(Walk { cards, assembly, unused, logs, pool })
    }

    /// Prints how many packets came.
    fn tell(&self, setup: Setup) {
        let counts = (0..setup.ports).map(|port| self.assembly.control.counts(PortId(port as u16)));
        println!("{PACKETS}{}", counts.map(|counts| counts[Counter::RxPackets]).sum::<u64>());
    }

    /// Every buffer comes home.
    fn end(mut self) -> Result<()> {
        let queues = self.assembly.control.wait_stopped().context("the queues are taken once")?;
        self.cards.iter_mut().for_each(NullCard::stop);
        drop((queues, self.unused));
        ensure!(self.pool.in_depot() == self.pool.count(), "buffers have not come home: {:?}", self.pool);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_forwards_and_every_buffer_comes_home() {
        for way in [Way::Dedicated, Way::Locked, Way::Shared] {
            walk(Setup { way, ..Setup::default() }, 1000).unwrap();
        }
    }

    #[test]
    fn it_walks_at_every_size() {
        let setups = [
            Setup { ports: 16, ..Setup::default() },
            Setup { ring: 4096, ..Setup::default() },
            Setup { workers: 72, ..Setup::default() },
            Setup { workers: 72, way: Way::Shared, ..Setup::default() },
            Setup { workers: 8, rx: RxMode::Software, flows: 1_000_000, ..Setup::default() },
        ];
        setups.into_iter().for_each(|setup| walk(setup, 200).unwrap());
    }
}

//! `sluice bench locks`: kinds of locks, and what to do when one is taken, compared around the shipped
//! [`SharedTx`].
//!
//! Every thread receives bursts of 32 on a card of its own, and sends them by the one transmit queue of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use forwarder::stats::LockStats;
use forwarder::txpath::{Sender, SharedTx, WhenTaken};
use hermit_sync::RawTicketMutex;

use netdrv::device::RxQueue;
use netdrv::packet::{Burst, MAX_BURST};
use netdrv::pool::{CACHE_CAPACITY, Pool};
use netdrv::process::ProcessHal;
use netdrv::sync::{RawMutex, RawSpinMutex};

use super::card::{NullCard, NullRx, NullTx};
use super::cpu;
use super::measure::{Log, Recorder, Spread, Window, undisturbed};
use super::sheet::{Entry, Sheet};
use super::walk::RING;
use crate::interrupt;

/// Packets in a burst: the default of the image.
const BATCH: usize = 32;
/// What leaves room for one more burst.
const KEEP: WhenTaken = WhenTaken::Keep { most: MAX_BURST - BATCH };

/// How often the contestants take turns: what else the machine does, and where its cores happen to be, meets all.
const TURNS: usize = 6;

/// How many threads, and what is looked at.
#[derive(Clone, Copy)]
struct Crowd {
    threads: usize,
    /// Packets in a window.
    window: u64,
    /// How long a turn goes on.
    time: Duration,
}

/// Two threads with a core each.
const PAIR: Crowd = Crowd { threads: 2, window: 4 * 1024, time: Duration::from_millis(800) };
/// More threads than cores, so that the one that has the lock is often not running: virtual cores of a busy host.
const CROWD: Crowd = Crowd { threads: 8, window: 8 * 1024, time: Duration::from_millis(1500) };

/// A lock and what its users do when it is taken.
type Contestant = (&'static str, fn(Crowd) -> Result<Outcome>);

const CONTESTANTS: [Contestant; 4] = [
    ("ticket, waits", |crowd| run::<RawTicketMutex>(crowd, WhenTaken::Wait)),
    ("test and set, waits", |crowd| run::<RawSpinMutex>(crowd, WhenTaken::Wait)),
    ("ticket, keeps a burst", |crowd| run::<RawTicketMutex>(crowd, KEEP)),
    ("test and set, keeps a burst (shipped)", |crowd| run::<RawSpinMutex>(crowd, KEEP)),
];

/// Compares them; the tables.
///
/// # Errors
/// When there are fewer than two cores.
pub(super) fn compare() -> Result<Vec<Sheet>> {
    Ok(vec![compare_pair()?, compare_crowd()?])
}

/// The outcomes of each contestant's turns.
fn contest(crowd: Crowd) -> Result<[Vec<Outcome>; CONTESTANTS.len()]> {
    let mut outcomes: [Vec<Outcome>; CONTESTANTS.len()] = Default::default();
    for _ in 0..TURNS {
        for ((_, run), outcomes) in CONTESTANTS.iter().zip(&mut outcomes) {
            outcomes.push(run(crowd)?);
        }
    }
    Ok(outcomes)
}

/// The spread of a figure over the turns.
fn spread(outcomes: &[Outcome], of: impl FnMut(&Outcome) -> f64) -> Spread {
    Spread::of(outcomes.iter().map(of))
}

fn compare_pair() -> Result<Sheet> {
    let title =
        "Two threads on two cores, one TX queue, bursts of 32 × 64 B (windows in which both had their cores)";
    let mut sheet = Sheet::new(
        title,
        ["lock", "Mpps a thread", "slowest/mean", "contended %", "worst burst µs", "windows"],
    );
    for ((name, _), outcomes) in CONTESTANTS.iter().zip(contest(PAIR)?) {
        let windows: Vec<Window> =
            outcomes.iter().flat_map(|outcome| undisturbed(&outcome.threads)).flatten().collect();
        sheet.row([
            Entry::text(*name),
            Entry::Spread(Spread::of(windows.iter().map(Window::mpps)), 2),
            Entry::Spread(spread(&outcomes, Outcome::fairness), 2),
            Entry::Spread(spread(&outcomes, |outcome| outcome.contended), 1),
            Entry::Spread(Spread::of(windows.iter().map(|window| micros(window.slowest))), 1),
            Entry::Number(windows.len() as f64, 0),
        ]);
    }
    Ok(sheet)
}

fn compare_crowd() -> Result<Sheet> {
    let title = "Eight threads on two cores, one TX queue, bursts of 32 × 64 B";
    let mut sheet = Sheet::new(
        title,
        ["lock", "Mpps together", "packets a CPU µs", "slowest/mean", "contended %", "worst burst ms"],
    );
    for ((name, _), outcomes) in CONTESTANTS.iter().zip(contest(CROWD)?) {
        let together = |outcome: &Outcome| outcome.packets() / CROWD.time.as_secs_f64() / 1e6;
        sheet.row([
            Entry::text(*name),
            Entry::Spread(spread(&outcomes, together), 2),
            Entry::Spread(spread(&outcomes, |outcome| outcome.packets() / outcome.cpu().max(1e-9) / 1e6), 2),
            Entry::Spread(spread(&outcomes, Outcome::fairness), 2),
            Entry::Spread(spread(&outcomes, |outcome| outcome.contended), 1),
            Entry::Spread(spread(&outcomes, |outcome| micros(outcome.slowest()) / 1e3), 1),
        ]);
    }
    Ok(sheet)
}

/// What a lock led to.
struct Outcome {
    /// The windows of each thread.
    threads: Vec<Vec<Window>>,
    /// Bursts that found the lock taken, of a hundred.
    contended: f64,
}

impl Outcome {
    fn windows(&self) -> impl Iterator<Item = &Window> {
        self.threads.iter().flatten()
    }

    fn packets(&self) -> f64 {
        self.windows().map(|window| window.packets).sum::<u64>() as f64
    }

    /// CPU time of all threads, in seconds.
    fn cpu(&self) -> f64 {
        self.windows().map(|window| window.cpu).sum::<Duration>().as_secs_f64()
    }

    /// The longest that a burst took, in ticks.
    fn slowest(&self) -> u64 {
        self.windows().map(|window| window.slowest).max().unwrap_or_default()
    }

    /// The slowest thread's share of the mean.
    fn fairness(&self) -> f64 {
        let packets = |windows: &Vec<Window>| windows.iter().map(|window| window.packets).sum::<u64>();
        let least = self.threads.iter().map(packets).min().unwrap_or_default();
        least as f64 * self.threads.len() as f64 / self.packets().max(1.0)
    }
}

fn micros(ticks: u64) -> f64 {
    cpu::duration(ticks).as_secs_f64() * 1e6
}

fn run<L: RawMutex + Send + Sync>(crowd: Crowd, when_taken: WhenTaken) -> Result<Outcome>
where
    Sender<NullTx, L>: Send,
{
    let cores = cpu::two_cores()?;
    let mut cards: Vec<_> = (0..crowd.threads).map(|_| NullCard::new(RING)).collect::<Result<_>>()?;
    let in_rings: usize = cards.iter().map(NullCard::buffers).sum();
    let pool = Pool::new::<ProcessHal>(in_rings + crowd.threads * (CACHE_CAPACITY + MAX_BURST));
    let pool = pool.map_err(|error| anyhow!("{error}"))?;
    let logs: Vec<Log> = cards.iter().map(|_| Log::default()).collect();
    let (mut receivers, mut transmitters) = (Vec::new(), Vec::new());
    for (card, log) in cards.iter_mut().zip(&logs) {
        let (rx, tx) = card.take_queues(pool, Recorder::new(log.clone(), crowd.window), 1)?;
        receivers.push(rx);
        transmitters.push(tx);
    }
    let stats = Arc::<LockStats>::default();
    let shared = SharedTx::<NullTx, L>::new(transmitters.swap_remove(0), when_taken, stats.clone());
    let stopping = AtomicBool::new(false);
    thread::scope(|scope| {
        for (index, rx) in receivers.iter_mut().enumerate() {
            let (sender, stopping) = (shared.sender(), &stopping);
            let core = cores[index % cores.len()];
            scope.spawn(move || {
                cpu::pin(core).expect("the core may be used");
                reflect(rx, sender, pool, stopping);
            });
        }
        let begin = Instant::now();
        while begin.elapsed() < crowd.time && !interrupt::happened() {
            thread::sleep(Duration::from_millis(20));
        }
        stopping.store(true, Ordering::Relaxed);
    });
    // The cards end before their queues, so that every buffer goes home.
    cards.iter_mut().for_each(NullCard::stop);
    let contended = 100.0 * stats.contended() as f64 / stats.acquired().max(1) as f64;
    Ok(Outcome { threads: logs.iter().map(|log| log.windows().clone()).collect(), contended })
}

/// What a worker does, without verdicts and counters: it receives while there is room for a burst, and sends.
fn reflect<L: RawMutex>(
    rx: &mut NullRx,
    mut sender: Sender<NullTx, L>,
    pool: &'static Pool,
    stopping: &AtomicBool,
) {
    let mut cache = pool.cache();
    let mut burst = Burst::new();
    let mut born = cpu::ticks();
    while !stopping.load(Ordering::Relaxed) {
        if burst.is_empty() {
            born = cpu::ticks();
        }
        if burst.remaining_capacity() >= BATCH {
            let before = burst.len();
            rx.receive(&mut cache, &mut burst, BATCH);
            burst[before..].iter_mut().for_each(|packet| packet.bytes_mut()[..12].rotate_left(6));
        }
        sender.send(&mut burst, &mut cache);
        if burst.is_empty() {
            rx.recorder().note_time(cpu::ticks() - born);
        }
    }
    burst.drain(..).for_each(|packet| cache.put(packet));
}

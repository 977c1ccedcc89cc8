//! One or two workers as shipped, with an 82599 in shared memory before each.
//!
//! A card is never worked by the core of its driver, so what both write travels between cores as it does between a core and a
//! card. With one worker the card has a core of its own. With two, each core also works the card of the other, whenever its
//! worker has finished a round.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use forwarder::config::Config;
use forwarder::stats::Counter;
use forwarder::verdict::PortId;
use forwarder::{Assembly, Clock, Control, Cpu, PortParts, assemble, buffers_outside_rings};
use netdrv::device::{Mac, NetDevice, QueueWish, Queues};
use netdrv::ixgbe::{Ixgbe, model};
use netdrv::pool::Pool;

use super::queues::{Input, MeasuredRx, MeasuredTx, TailBar};
use crate::bench::cpu;
use crate::bench::ixgbe::card::{SharedCard, Sink, Source};
use crate::bench::ixgbe::platform::LargePages;
use crate::bench::measure::{Log, Recorder, Window, undisturbed};
use crate::interrupt;

/// Descriptors in a ring, and packets in a burst: as shipped.
pub(super) const RING: usize = 256;
pub(super) const BATCH: usize = 32;
/// The PCI device id of an 82599 with a cage for a module.
const SFP: u16 = 0x10fb;
/// Packets in a window: at 50 cycles each a sixth of a millisecond or so.
const WINDOW: u64 = 8 * 1024;
/// Undisturbed windows of each thread that suffice.
const WANTED: usize = 21;
/// Between two looks at what there is.
const LOOK: Duration = Duration::from_millis(5);
/// How long it may take until the first packet moves.
const START: Duration = Duration::from_secs(60);
/// Frames that a card moves at a time, in each direction.
const TURN: usize = 32;
/// The most ports.
const PORTS: usize = 2;

/// What a worker does, by the names of the AF_XDP sample program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Receives and drops.
    Rxdrop,
    /// Sends frames from nowhere.
    Txonly,
    /// Sends what it receives back, addresses swapped.
    L2fwd,
}

impl Work {
    pub(super) fn name(self) -> &'static str {
        match self {
            Work::Rxdrop => "rxdrop",
            Work::Txonly => "txonly",
            Work::L2fwd => "l2fwd",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Work::Rxdrop => "drop",
            Work::Txonly => "forward",
            Work::L2fwd => "reflect",
        }
    }
}

/// What the driver does without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Without {
    /// One report and one tail for what is sent together.
    pub(super) tx_batching: bool,
    /// A report every so many descriptors, by the length of the ring.
    pub(super) report_distance: bool,
    /// One receive tail for several buffers.
    pub(super) rx_tail: bool,
    /// Receiving several frames at a time.
    pub(super) rx_batching: bool,
}

impl Without {
    /// As shipped.
    pub(super) const NOTHING: Without =
        Without { tx_batching: false, report_distance: false, rx_tail: false, rx_batching: false };
    pub(super) const EVERYTHING: Without =
        Without { tx_batching: true, report_distance: true, rx_tail: true, rx_batching: true };
}

/// What came of it.
#[derive(Default)]
pub(super) struct Outcome {
    /// The workers' windows in which every thread had its core.
    pub(super) windows: Vec<Window>,
    /// Tails that were written, and packets that were moved.
    pub(super) tails: u64,
    pub(super) packets: u64,
}

/// Cards and buffers for so many workers, one run after the other.
pub(super) struct Rig {
    cards: Vec<SharedCard>,
    pool: &'static Pool,
}

impl Rig {
    /// For one worker, or two.
    ///
    /// # Errors
    /// When there is no memory.
    pub(super) fn new(workers: usize) -> Result<Rig> {
        let outside = buffers_outside_rings(&Config::default(), workers, workers, PORTS);
        let pool =
            Pool::new::<LargePages>(workers * 2 * RING + outside).map_err(|error| anyhow!("{error}"))?;
        let cards = (0..workers).map(|_| SharedCard::new()).collect::<Result<_>>()?;
        Ok(Rig { cards, pool })
    }

    pub(super) fn workers(&self) -> usize {
        self.cards.len()
    }

    /// Works until there are enough windows, for so long at most once packets move. There may be none, where other programs leave the cores no
    /// peace.
    ///
    /// # Errors
    /// When there are too few cores, when driver or forwarder refuse the set-up, and when what comes out is not what should.
    pub(super) fn measure(&self, work: Work, without: Without, patience: Duration) -> Result<Outcome> {
        let cores = cpu::two_cores()?;
        let logs: [Log; 2] = Default::default();
        let mut lane = Lane::new(self, work, without, &logs)?;
        let counted = || undisturbed(&[logs[0].windows().clone(), logs[1].windows().clone()]);
        let Lane { drivers, assembly: Assembly { control, workers }, cards, .. } = &mut lane;
        // The last core works the first card, and the first core the last one, where there are two.
        let workers = pad(workers.drain(..));
        let mut others_cards = pad(cards.drain(..));
        others_cards.reverse();
        let mut attend = Some(|| drivers.iter_mut().for_each(NetDevice::attend));
        let busy = AtomicUsize::new(self.workers());
        let returned = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (((worker, card), core), log) in workers.into_iter().zip(others_cards).zip(cores).zip(&logs) {
                let (control, busy, mut chores) = (&*control, &busy, attend.take());
                threads.push(scope.spawn(move || {
                    cpu::pin(core).expect("the core may be used");
                    CARD.set(card);
                    // Who has no worker is measured by what the card moves.
                    let mut recorder = worker.is_none().then(|| Recorder::new(log.clone(), WINDOW));
                    if let Some(worker) = worker {
                        worker.run(control, chores.as_mut().map(|chores| chores as &mut dyn FnMut()));
                        busy.fetch_sub(1, Ordering::Relaxed);
                    }
                    while busy.load(Ordering::Relaxed) > 0 {
                        let moved = turn();
                        recorder.iter_mut().for_each(|recorder| recorder.note(moved));
                    }
                    CARD.take()
                }));
            }
            // Whoever gets no core at all still has to begin.
            wait_for(START, || packets(control, work) > 0);
            wait_for(patience, || counted().iter().all(|windows| windows.len() >= WANTED));
            control.stop();
            threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect::<Vec<_>>()
        });
        lane.cards = returned.into_iter().flatten().collect();
        let (tails, packets) = lane.end(self.pool, work)?;
        let windows = counted().into_iter().take(self.workers()).flatten().collect();
        Ok(Outcome { windows, tails, packets })
    }
}

/// One for each of two cores, as far as there are as many.
fn pad<T>(things: impl Iterator<Item = T>) -> Vec<Option<T>> {
    things.map(Some).chain([None, None]).take(2).collect()
}

thread_local! {
    /// The card that this thread works beside its other duties.
    static CARD: RefCell<Option<Card>> = const { RefCell::new(None) };
}

/// Gives this thread's card a turn. Returns how many frames that moved.
#[inline(always)]
fn turn() -> usize {
    CARD.with_borrow_mut(|card| card.as_mut().map_or(0, Card::turn))
}

/// The clock of a worker, who looks at it once a round.
fn now() -> u64 {
    turn();
    cpu::ticks()
}

/// Both sides of a card.
struct Card {
    source: Source,
    sink: Sink,
    /// Nobody receives.
    is_mute: bool,
}

impl Card {
    #[inline(always)]
    fn turn(&mut self) -> usize {
        let delivered = if self.is_mute { 0 } else { self.source.deliver(TURN) };
        delivered + self.sink.take(TURN)
    }
}

/// Workers before their cards.
struct Lane {
    drivers: Vec<Ixgbe<TailBar>>,
    assembly: Assembly<MeasuredRx, MeasuredTx>,
    cards: Vec<Card>,
    /// What was written to the tails, by card.
    tails: Vec<Arc<AtomicU64>>,
    /// Receive queues of cards, where frames come from nowhere.
    unused: Vec<MeasuredRx>,
}

impl Lane {
    fn new(rig: &Rig, work: Work, without: Without, logs: &[Log]) -> Result<Lane> {
        let workers = rig.workers();
        let words = format!("program={} idle=poll workers={workers} batch={BATCH}", work.program());
        let config = Config::read(&words, None).map_err(|refused| anyhow!("{}", refused.refusal))?;
        let wish = QueueWish { pairs: 1, ring: RING, interrupts: 0, tx_needed: 0 };
        let model = model(SFP).context("the driver knows an 82599")?;
        let (mut drivers, mut cards, mut tails) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rx, mut tx, mut unused) = (Vec::new(), Vec::new(), Vec::new());
        for (registers, log) in rig.cards.iter().zip(logs) {
            registers.reset();
            let written = Arc::default();
            tails.push(Arc::clone(&written));
            let single_steps = without.rx_tail.then_some(RING as u32 - 1);
            let bar = TailBar { bar: registers.bar(), single_steps, written };
            let driver = Ixgbe::new::<LargePages>(bar, model, wish);
            let mut driver = driver.map_err(|error| anyhow!("{error}"))?;
            let queues = driver.take_queues(rig.pool).context("the queues are taken once")?;
            cards.push(Card {
                source: registers.source(),
                sink: registers.sink(),
                is_mute: work == Work::Txonly,
            });
            drivers.push(driver);

            let recorder = |is_wanted: bool| is_wanted.then(|| Recorder::new(log.clone(), WINDOW));
            let input = |input, recorder| MeasuredRx { input, one_by_one: without.rx_batching, recorder };
            for queue in queues.rx {
                let recorder = recorder(work == Work::Rxdrop);
                match work {
                    Work::Rxdrop | Work::L2fwd => rx.push(input(Input::Card(queue), recorder)),
                    Work::Txonly => {
                        unused.push(input(Input::Card(queue), None));
                        rx.push(input(Input::Nowhere(0), None));
                    }
                }
            }
            for mut queue in queues.tx {
                if without.report_distance {
                    queue.shorten_groups(1);
                }
                let recorder = recorder(work != Work::Rxdrop);
                tx.push(MeasuredTx { queue, one_by_one: without.tx_batching, recorder });
            }
        }
        // A port whose queues are those of both cards. To send only, frames come in at a port of their own.
        let port = |rx, tx| PortParts {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            rx_interrupts: 0,
            queues: Queues { rx, tx },
        };
        let ports = match work {
            Work::Rxdrop | Work::L2fwd => vec![port(rx, tx)],
            Work::Txonly => vec![port(rx, Vec::new()), port(Vec::new(), tx)],
        };
        // Nobody sleeps here, so nobody is woken.
        let cpu = Cpu { clock: Clock { now, hz: cpu::hz() }, sleep: |_, _| {}, wake: |_| {} };
        let assembly = assemble(ports, &config, workers, rig.pool, cpu);
        let assembly = assembly.map_err(|refusal| anyhow!("{refusal}"))?;
        Ok(Lane { drivers, assembly, cards, tails, unused })
    }

    /// Ends the cards after the workers. Every buffer comes home, and what came out is what went in. Returns the tails that
    /// were written, and the packets that were moved.
    fn end(self, pool: &Pool, work: Work) -> Result<(u64, u64)> {
        let Lane { mut drivers, assembly, cards, tails, unused } = self;
        let control = assembly.control;
        let queues = control.wait_stopped().context("the queues are taken once")?;
        drivers.iter_mut().for_each(NetDevice::stop);
        drop((queues, unused));
        ensure!(pool.in_depot() == pool.count(), "buffers have not come home: {pool:?}");

        let taken: u64 = cards.iter().map(|card| card.sink.taken()).sum();
        let wrong: u64 = cards.iter().map(|card| card.sink.wrong()).sum();
        let delivered: u64 = cards.iter().map(|card| card.source.delivered()).sum();
        let [received, sent] = moved(&control, work);
        ensure!(wrong == 0, "{wrong} of {taken} frames are not as they should be");
        ensure!(sent == taken, "the workers have sent {sent} frames, the cards {taken}");
        let in_rings = (cards.len() * RING) as u64;
        ensure!(
            work == Work::Txonly || (received..=received + in_rings).contains(&delivered),
            "the cards have delivered {delivered} frames, the workers have had {received}"
        );
        let tails = tails.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        Ok((tails, packets(&control, work)))
    }
}

/// Waits until `has_happened`, for so long at most.
fn wait_for(limit: Duration, has_happened: impl Fn() -> bool) {
    let begin = Instant::now();
    while !has_happened() && begin.elapsed() < limit && !interrupt::happened() {
        thread::sleep(LOOK);
    }
}

/// Packets with which the workers did what they should.
fn packets(control: &Control<MeasuredRx, MeasuredTx>, work: Work) -> u64 {
    let [received, sent] = moved(control, work);
    if work == Work::Rxdrop { received } else { sent }
}

/// Packets that were received, and those that were sent.
fn moved(control: &Control<MeasuredRx, MeasuredTx>, work: Work) -> [u64; 2] {
    let ports = if work == Work::Txonly { PORTS } else { 1 };
    [Counter::RxPackets, Counter::TxPackets]
        .map(|counter| (0..ports).map(|port| control.counts(PortId(port as u16))[counter]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_moves_every_frame_and_who_does_without_writes_more_tails() {
        for workers in [1, 2] {
            let rig = Rig::new(workers).unwrap();
            let measure = |work, without| rig.measure(work, without, Duration::from_millis(100)).unwrap();
            for (work, tails_a_packet) in [(Work::Rxdrop, 1), (Work::Txonly, 1), (Work::L2fwd, 2)] {
                assert!(measure(work, Without::NOTHING).packets > 0, "{work:?}");
                let Outcome { tails, packets, .. } = measure(work, Without::EVERYTHING);
                assert!(packets > 0 && tails >= tails_a_packet * packets, "{work:?}: {tails}, {packets}");
            }
        }
    }
}

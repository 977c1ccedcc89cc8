//! The driver of Intel's cards and one worker, as shipped, with the card before them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use forwarder::config::Config;
use forwarder::stats::Counter;
use forwarder::verdict::PortId;
use forwarder::{Assembly, Clock, Control, Cpu, PortParts, Worker, assemble, buffers_outside_rings};
use netdrv::device::{NetDevice, QueueWish, Queues, RxDrops, RxQueue};
use netdrv::ixgbe::{Ixgbe, IxgbeRx, IxgbeTx, model};
use netdrv::packet::Burst;
use netdrv::pool::{Pool, PoolCache};

use super::card::{SharedBar, SharedCard, Sink, Source};
use super::platform::LargePages;
use crate::bench::cpu;
use crate::bench::measure::{Log, Recorder, Window, undisturbed};
use crate::bench::walk::CHORES_MS;
use crate::interrupt;

/// The PCI device id of an 82599 with a cage for a module.
const SFP: u16 = 0x10fb;
/// Packets in a window: at 50 cycles each a sixth of a millisecond or so.
pub(super) const WINDOW: u64 = 8 * 1024;
/// Undisturbed windows of worker and card that suffice.
const WANTED: usize = 21;
/// How long to try for them.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at what there is.
const LOOK: Duration = Duration::from_millis(10);
/// Frames that the card moves at a time, in each direction.
const TURN: usize = 32;
/// One turn of the card in so many is timed: often enough, and a look at the clock is nothing beside them.
const TIMED: u64 = 16;

/// What reflects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Descriptors in a ring.
    pub(super) ring: usize,
    /// Packets in a burst.
    pub(super) batch: usize,
}

/// What a worker on one core and a card on another have done: the windows in which both had their cores. There may be none, where
/// other programs leave the cores no peace.
pub(super) struct Measured {
    pub(super) windows: Vec<Window>,
    pub(super) card: Vec<Window>,
}

impl Measured {
    /// The share of its time in which the card had something to move.
    pub(super) fn card_busy(&self) -> Option<f64> {
        let sum = |of: fn(&Window) -> u64| self.card.iter().map(of).sum::<u64>() as f64;
        let idle = sum(|window| window.idle) / sum(|window| window.end - window.begin);
        (!self.card.is_empty()).then_some(1.0 - idle)
    }
}

/// The worker on one core and the card on another.
///
/// # Errors
/// When there are too few cores, when driver or forwarder refuse the set-up, and when what comes out is not what went in.
pub(super) fn measure(setup: Setup) -> Result<Measured> {
    let log = Log::default();
    let clock = Clock { now: cpu::ticks, hz: cpu::hz() };
    let mut lane = Lane::new(setup, clock, Recorder::new(log.clone(), WINDOW))?;
    let worker = lane.assembly.workers.pop().context("there is a worker")?;
    let Lane { driver, assembly, card } = &mut lane;
    let control = &assembly.control;
    let measured =
        side_by_side(card, log, || worker.run(control, Some(&mut || driver.attend())), || control.stop())?;
    lane.end()?;
    Ok(measured)
}

/// Whoever drives the card on one core, with `log` for what it moves, and the card on another, until there are enough windows.
///
/// # Errors
/// When there are too few cores.
pub(super) fn side_by_side(
    card: &mut Card,
    log: Log,
    driver: impl FnOnce() + Send,
    stop: impl FnOnce(),
) -> Result<Measured> {
    let [drivers_core, cards_core] = cpu::two_cores()?;
    let card_log = Log::default();
    let counted = || undisturbed(&[log.windows().clone(), card_log.windows().clone()]);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let has_ended = &has_ended;
        scope.spawn(move || {
            cpu::pin(drivers_core).expect("the core may be used");
            driver();
            has_ended.store(true, Ordering::Relaxed);
        });
        let recorder = Recorder::new(card_log.clone(), WINDOW);
        scope.spawn(move || {
            cpu::pin(cards_core).expect("the core may be used");
            card.work(recorder, has_ended);
        });
        let begin = Instant::now();
        while counted()[0].len() < WANTED && begin.elapsed() < PATIENCE && !interrupt::happened() {
            thread::sleep(LOOK);
        }
        stop();
    });
    let [windows, card] = <[_; 2]>::try_from(counted()).map_err(|_| anyhow!("two threads have worked"))?;
    Ok(Measured { windows, card })
}

/// The worker alone for exactly so many bursts more or less than any other call of this, for those who count instructions.
/// The card takes its turns on the same thread, in [`card_turn`]. Returns the cycles that the worker took for each packet, with
/// all that both have in one core's caches.
///
/// # Errors
/// As [`measure`].
pub(super) fn walk(setup: Setup, bursts: u64) -> Result<f64> {
    // Chores are due after so many rounds.
    let clock = Clock { now: card_turn, hz: bursts / CHORES_MS * 1000 };
    let mut lane = Lane::new(setup, clock, Recorder::new(Log::default(), u64::MAX))?;
    let worker = lane.assembly.workers.pop().context("there is a worker")?;
    CARD.set(Some(LoneCard { card: lane.card, batch: setup.batch, turns: 0, left: 0, away: 0 }));
    let control = &lane.assembly.control;
    work(worker, control);
    let LoneCard { card, away, .. } = CARD.take().context("the card was there all the time")?;
    let packets = card.sink.taken();
    lane.card = card;
    lane.end()?;
    Ok(away as f64 / packets as f64)
}

/// What callgrind is to count of a [`walk`]: from here on, without the card.
pub(in crate::bench) const TOGGLES: [&str; 2] = ["*ixgbe::lane::work*", "*ixgbe::lane::card_turn*"];

/// The worker's life.
#[inline(never)]
fn work(worker: Worker<RecordedRx, IxgbeTx<SharedBar>>, control: &Control<RecordedRx, IxgbeTx<SharedBar>>) {
    worker.run(control, Some(&mut || control.stop()));
}

/// A card that is worked by its driver's thread.
struct LoneCard {
    card: Card,
    batch: usize,
    turns: u64,
    /// When its last turn ended, and how long others had the thread between its turns, in ticks.
    left: u64,
    away: u64,
}

thread_local! {
    static CARD: RefCell<Option<LoneCard>> = const { RefCell::new(None) };
}

/// A clock for the worker, who looks at it once a round: it counts the rounds, and before each of them the card brings a
/// burst and sends all that it was given. A function of its own, so that a profile tells it from the worker.
#[inline(never)]
fn card_turn() -> u64 {
    CARD.with_borrow_mut(|card| {
        card.as_mut().map_or(0, |LoneCard { card, batch, turns, left, away }| {
            *away += if *turns > 0 { cpu::ticks() - *left } else { 0 };
            card.turn(*batch);
            *turns += 1;
            *left = cpu::ticks();
            *turns
        })
    })
}

/// Both sides of the card.
pub(super) struct Card {
    pub(super) source: Source,
    pub(super) sink: Sink,
}

impl Card {
    /// Until the end. Notes what is sent, and how long there was nothing to do.
    fn work(&mut self, mut recorder: Recorder, has_ended: &AtomicBool) {
        let mut turns = 0u64;
        while !has_ended.load(Ordering::Relaxed) {
            let begin = turns.is_multiple_of(TIMED).then(cpu::ticks);
            let [delivered, sent] = self.turn(TURN);
            if let Some(begin) = begin
                && delivered + sent == 0
            {
                recorder.note_idle(TIMED * (cpu::ticks() - begin));
            }
            recorder.note(sent);
            turns += 1;
        }
    }

    /// Brings up to `most` frames, and sends as many. Returns how many it brought and sent.
    #[inline(always)]
    fn turn(&mut self, most: usize) -> [usize; 2] {
        [self.source.deliver(most), self.sink.take(most)]
    }
}

/// A worker that reflects before a card.
struct Lane {
    driver: Ixgbe<SharedBar>,
    assembly: Assembly<RecordedRx, IxgbeTx<SharedBar>>,
    card: Card,
}

impl Lane {
    fn new(setup: Setup, clock: Clock, recorder: Recorder) -> Result<Lane> {
        let Setup { ring, batch } = setup;
        let words = format!("program=reflect idle=poll workers=1 tx=dedicated ring={ring} batch={batch}");
        let config = Config::read(&words, None).map_err(|refused| anyhow!("{}", refused.refusal))?;
        let registers = SharedCard::new()?;
        let wish = QueueWish { pairs: 1, ring, interrupts: 0, tx_needed: 0 };
        let model = model(SFP).context("the driver knows an 82599")?;
        let driver = Ixgbe::new::<LargePages>(registers.bar(), model, wish);
        let mut driver = driver.map_err(|error| anyhow!("{error}"))?;
        let buffers = driver.shape().buffers() + buffers_outside_rings(&config, 1, 1, 1);
        let pool = Pool::new::<LargePages>(buffers).map_err(|error| anyhow!("{error}"))?;
        let Queues { mut rx, tx } = driver.take_queues(pool).context("the queues are taken once")?;
        let queue = rx.pop().context("the card has a receive queue")?;
        let queues = Queues { rx: vec![RecordedRx { queue, recorder }], tx };
        let port = PortParts { mac: driver.mac(), mtu: driver.mtu(), rx_interrupts: 0, queues };
        // Nobody sleeps here, so nobody is woken.
        let cpu = Cpu { clock, sleep: |_, _| {}, wake: |_| {} };
        let assembly = assemble(vec![port], &config, 1, pool, cpu);
        let assembly = assembly.map_err(|refusal| anyhow!("{refusal}"))?;
        Ok(Lane { driver, assembly, card: Card { source: registers.source(), sink: registers.sink() } })
    }

    /// Ends the card after the worker. Every buffer comes home, and what came out is what went in.
    fn end(mut self) -> Result<()> {
        let Card { source, sink } = &self.card;
        let control = &self.assembly.control;
        let queues = control.wait_stopped().context("the queues are taken once")?;
        self.driver.stop();
        drop(queues);
        let counts = control.counts(PortId(0));
        let [received, forwarded, sent] =
            [Counter::RxPackets, Counter::Forwarded, Counter::TxPackets].map(|counter| counts[counter]);
        ensure!(sink.wrong() == 0, "{} of {} frames are not as they should be", sink.wrong(), sink.taken());
        ensure!(sent == sink.taken(), "the worker has sent {sent} frames, the card {}", sink.taken());
        ensure!(received == forwarded + counts.dropped(), "frames are unaccounted for: {counts:?}");
        ensure!(
            (received..=received + self.driver.shape().rx_ring as u64).contains(&source.delivered()),
            "the card has delivered {} frames, the worker has had {received}",
            source.delivered()
        );
        Ok(())
    }
}

/// A receive queue that notes what it brings.
struct RecordedRx {
    queue: IxgbeRx<SharedBar>,
    recorder: Recorder,
}

impl RxQueue for RecordedRx {
    #[inline(always)]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        let received = self.queue.receive(cache, burst, limit);
        self.recorder.note(received);
        received
    }

    fn leave_unread(&mut self) {
        self.queue.leave_unread();
    }

    fn keep_full(&mut self) {
        self.queue.keep_full();
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn drops(&self) -> RxDrops {
        self.queue.drops()
    }
}

//! The bench of the ixgbe driver, against a model of the cards that is strict: it keeps every mistake that silicon would
//! punish, and a bench that finds one fails.

#![allow(unsafe_code)] // Hands the test's DMA memory over to the model.

mod bar;
mod faults;
mod frames;
mod init;
mod interrupts;
mod loaded;
mod models;
mod suite;
mod vf;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ixgbe_model::{CardOptions, Corruption, Fault, InProcess, Rule, Wire};
use netdrv::device::{NetDevice, QueueShape, QueueWish};
use netdrv::ixgbe::{Ixgbe, IxgbeError, model};
use netdrv::mmio::Bar;
use netdrv::packet::FRAME_CAPACITY;

use self::bar::{CardBar, RDH, RDT};
use crate::bench::{Bench, Misdeed};
use crate::hal::{self, TICK_NS, TestHal};

/// A kind of function, by the driver's way to its registers.
pub(crate) trait Function: Bar {
    /// The driver of such a function.
    type Driver: NetDevice;

    /// The longest frame that comes in.
    const LONGEST: usize;

    /// From now on nothing that is to stop does.
    fn never_stop(&self);
}

/// A function of a card, and its driver.
pub(crate) struct CardBench<F: Function> {
    driver: F::Driver,
    bar: F,
    card: Card,
}

/// A whole card: its physical function.
pub(crate) type IxgbeBench = CardBench<CardBar>;

/// A card with a cable, and the test's memory as far as it has been handed over.
#[derive(Clone)]
struct Card {
    bar: CardBar,
    cable: Arc<Mutex<Cable>>,
    memory: Arc<Mutex<Vec<(u64, usize)>>>,
    has_reset_itself: Arc<AtomicBool>,
}

/// What a driver can't but do that does not know yet that the card has reset itself.
const UNAWARE: [Rule; 2] = [Rule::TailBeforeEnable, Rule::AccessDuringReset];

/// What is on the cable, either way.
#[derive(Default)]
struct Cable {
    inbound: VecDeque<Vec<u8>>,
    /// Frames that may go in now: a good test partner sends no more than the rings take.
    permits: usize,
    /// Frames that came out, with their queues.
    outbound: Vec<(u16, Vec<u8>)>,
}

struct CardEnd(Arc<Mutex<Cable>>);

impl Wire for CardEnd {
    fn transmit(&mut self, queue: u16, frame: &[u8]) {
        lock(&self.0).outbound.push((queue, frame.to_vec()));
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let mut cable = lock(&self.0);
        if cable.permits == 0 {
            return false;
        }
        let Some(next) = cable.inbound.pop_front() else { return false };
        cable.permits -= 1;
        *frame = next;
        true
    }
}

/// After a failed test the driver still stops the card as it is dropped: one report is enough.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Card {
    fn new(options: CardOptions) -> Card {
        let cable = Arc::<Mutex<Cable>>::default();
        let bar = CardBar::new(InProcess::with_manual_time(options, CardEnd(cable.clone())));
        let card = Card { bar, cable, memory: Arc::default(), has_reset_itself: Arc::default() };
        let ticking = card.clone();
        // Time passes for the card as for the driver that waits for it.
        hal::on_tick(move || {
            ticking.hand_over();
            ticking.bar.model.pass(Duration::from_nanos(TICK_NS));
        });
        card
    }

    /// Brings what the card may reach up to what is allocated.
    fn hand_over(&self) {
        let now = hal::allocations();
        let mut before = lock(&self.memory);
        let range = |(base, len): (u64, usize)| base..base + len as u64;
        for gone in before.iter().filter(|known| !now.contains(known)) {
            self.bar.model.withdraw(range(*gone));
        }
        for new in now.iter().filter(|allocation| !before.contains(allocation)) {
            // SAFETY: the allocation lives until it leaves the list, which withdraws it before anyone else can have
            // it: tests have a thread each. The driver reads and writes it as memory shared with a device.
            unsafe { self.bar.model.hand_over(range(*new)) };
        }
        *before = now;
    }

    /// Lets the card work until nothing moves; frames go in as long as every ring has descriptors.
    fn work(&self, shape: QueueShape) {
        self.hand_over();
        let room = |queue| self.room(queue, shape.rx_ring);
        loop {
            lock(&self.cable).permits = (0..shape.rx as u32).map(room).min().unwrap_or(0);
            if self.bar.model.step() == 0 {
                return;
            }
        }
    }

    /// Descriptors of receive queue `queue` that the card may fill.
    fn room(&self, queue: u32, ring: usize) -> usize {
        let (head, tail) = (self.bar.peek(RDH + 0x40 * queue), self.bar.peek(RDT + 0x40 * queue));
        tail.wrapping_sub(head) as usize & (ring - 1)
    }

    /// What has left through transmit queue `queue` since the last call.
    fn collect(&self, queue: usize) -> Vec<Vec<u8>> {
        let outbound = &mut lock(&self.cable).outbound;
        outbound.extract_if(.., |(from, _)| usize::from(*from) == queue).map(|(_, frame)| frame).collect()
    }

    /// Has the card damage the write-back of the next frame, and sends it one. False where the ring has no descriptor.
    fn corrupt(&self, corruption: Corruption, shape: QueueShape) -> bool {
        if self.room(0, shape.rx_ring) == 0 {
            return false;
        }
        lock(&self.cable).inbound.push_front(vec![0xee; 60]);
        self.inject(Fault::CorruptWriteBack { queue: 0, count: 1, corruption });
        self.work(shape);
        true
    }

    /// What a driver can't but do wrong that has not heard of a reset yet is no mistake from now on.
    fn expect_accesses_in_reset(&self) {
        self.has_reset_itself.store(true, Ordering::Relaxed);
    }

    fn inject(&self, fault: Fault) {
        if fault == Fault::SpontaneousReset {
            self.expect_accesses_in_reset();
        }
        self.bar.model.with_card(|card| card.inject(fault));
    }

    /// Fails where the driver broke a rule of the card, or used what the model does not have.
    fn check(&self) {
        self.bar.model.with_card(|card| {
            let is_known = |rule| !self.has_reset_itself.load(Ordering::Relaxed) || !UNAWARE.contains(&rule);
            let violations = card.violations().iter().filter(|violation| is_known(violation.rule));
            let violations: Vec<String> = violations.map(ToString::to_string).collect();
            assert!(violations.is_empty(), "silicon punishes {violations:#?}");
            assert!(
                card.unknown().is_empty(),
                "registers that the model does not have: {:x?}",
                card.unknown()
            );
        });
    }
}

impl<F: Function> CardBench<F> {
    /// Lets `millis` pass, with the driver looked after and the card at work every five of them.
    fn live(&mut self, millis: u64) {
        for _ in 0..millis / 5 {
            self.card.bar.model.pass(Duration::from_millis(4));
            hal::advance(Duration::from_millis(4));
            self.driver.attend();
            self.run();
        }
    }
}

impl IxgbeBench {
    /// A driver before a card of this kind.
    fn new(options: CardOptions, wish: QueueWish) -> Result<IxgbeBench, IxgbeError> {
        let model = model(options.model.device_id()).expect("a card that the driver knows");
        let card = Card::new(options);
        let bar = card.bar.clone();
        let driver = Ixgbe::new::<TestHal>(bar.clone(), model, wish)?;
        Ok(CardBench { driver, bar, card })
    }

    /// The same with one queue pair, and with link.
    fn with_ring(ring: usize) -> IxgbeBench {
        let wish = QueueWish { pairs: 1, ring, interrupts: 0, tx_needed: 0 };
        let mut bench = IxgbeBench::new(CardOptions::default(), wish).expect("a sane card");
        bench.live(20);
        bench
    }
}

impl Function for CardBar {
    type Driver = Ixgbe<CardBar>;

    /// Four bytes are kept for a VLAN tag.
    const LONGEST: usize = FRAME_CAPACITY - 4;

    fn never_stop(&self) {
        self.never_reset();
    }
}

impl<F: Function> Bench for CardBench<F> {
    type Device = F::Driver;
    const SPARE: usize = 1;
    const SHORTEST: usize = 60;
    const LONGEST: usize = F::LONGEST;
    const SENDS_EMPTY: bool = false;
    const SENDS_WHOLE_BUFFERS: bool = true;

    fn device(&mut self) -> &mut F::Driver {
        &mut self.driver
    }

    /// Which queue it comes to is decided by the card.
    fn feed(&mut self, _queue: usize, frame: Vec<u8>) {
        lock(&self.card.cable).inbound.push_back(frame);
    }

    fn pending(&self, _queue: usize) -> usize {
        lock(&self.card.cable).inbound.len()
    }

    fn run(&mut self) {
        self.card.work(self.driver.shape());
    }

    fn collect(&mut self, queue: usize) -> Vec<Vec<u8>> {
        self.card.collect(queue)
    }

    /// A card names no descriptors and keeps no indices in memory, so there is less that it can do wrong.
    fn misbehave(&mut self, misdeed: Misdeed) -> bool {
        let corruption = match misdeed {
            Misdeed::Truncated => Corruption::LengthZero,
            Misdeed::Oversize => Corruption::LengthTooLong,
            Misdeed::NeverStops => {
                self.bar.never_stop();
                return true;
            }
            _ => return false,
        };
        self.card.corrupt(corruption, self.driver.shape())
    }
}

impl<F: Function> Drop for CardBench<F> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.card.check();
        }
    }
}

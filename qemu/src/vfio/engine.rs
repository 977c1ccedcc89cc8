//! The card at work: one thread that lets it move frames, and sleeps when there is nothing to do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use ixgbe_model::Card;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::cable::{Cable, Plug};
use super::config_space::{ConfigSpace, Layout};
use super::function::Function;
use super::interrupts::Interrupts;
use super::memory::DmaMap;

/// How long the card sleeps at most, in milliseconds: its timers, and frames that nobody tells it of, those of a source,
/// are looked at so often.
const TICK: u8 = 1;
/// Rounds at the end: what a guest has handed over by then still counts as sent.
const LAST_ROUNDS: usize = 64;

/// The card with everything that it is plugged into.
pub(super) struct Slot {
    pub(super) card: Card,
    pub(super) function: Function,
    pub(super) config: ConfigSpace,
    pub(super) interrupts: Interrupts,
    pub(super) memory: DmaMap,
    pub(super) plug: Plug,
}

impl Slot {
    fn new(card: Card, function: Function, cable: Cable) -> Result<Self> {
        let layout = function.layout();
        Ok(Self {
            config: ConfigSpace::new(function.ids(&card), layout),
            card,
            function,
            interrupts: Interrupts::new(layout.vectors),
            memory: DmaMap::default(),
            plug: Plug::new(cable)?,
        })
    }

    pub(super) fn layout(&self) -> Layout {
        self.function.layout()
    }

    pub(super) fn read(&mut self, register: u32) -> u32 {
        self.function.read(&mut self.card, register)
    }

    pub(super) fn write(&mut self, register: u32, value: u32) {
        self.function.write(&mut self.card, register, value);
    }

    /// QEMU has gone, and all that it had set up.
    pub(super) fn unplug(&mut self) {
        self.memory = DmaMap::default();
        self.interrupts.disconnect_all();
        self.reset();
    }

    /// The reset of the bus, which takes everything back to its beginning (4.2.1).
    pub(super) fn reset(&mut self) {
        self.config = ConfigSpace::new(self.function.ids(&self.card), self.layout());
        self.function.reset(&mut self.card);
    }

    /// Lets the card move frames; returns how many did. One that is no bus master cannot.
    fn round(&mut self) -> usize {
        self.function.serve(&mut self.card);
        if !self.config.is_bus_master() || !self.plug.is_clear() {
            return 0;
        }
        let moved = self.card.run(&self.memory, &mut self.plug);
        self.interrupts.send(self.function.take_interrupts(&mut self.card));
        moved
    }
}

/// What the threads of a card and its handle share.
pub(super) struct Engine {
    slot: Mutex<Slot>,
    /// Tells when the cable has something; none for a source and a sink.
    cable: Option<OwnedFd>,
    /// How many threads want the slot that are not the engine's own, which has it most of the time.
    waiting: AtomicUsize,
    /// Wakes the engine.
    bell: EventFd,
    stopping: AtomicBool,
    plugged_in: Instant,
}

impl Engine {
    pub(super) fn new(card: Card, function: Function, cable: Cable) -> Result<Arc<Self>> {
        let slot = Slot::new(card, function, cable)?;
        Ok(Arc::new(Self {
            cable: slot.plug.file()?,
            slot: Mutex::new(slot),
            waiting: AtomicUsize::new(0),
            bell: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
            stopping: AtomicBool::new(false),
            plugged_in: Instant::now(),
        }))
    }

    /// The slot, for anybody but the engine's own thread. The card knows what time it is.
    pub(super) fn slot(&self) -> MutexGuard<'_, Slot> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let slot = self.timely_slot();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        slot
    }

    fn timely_slot(&self) -> MutexGuard<'_, Slot> {
        let mut slot = self.slot.lock().expect("no thread panics while it has the card");
        slot.card.advance(self.plugged_in.elapsed());
        slot
    }

    /// There may be something to do.
    pub(super) fn wake(&self) {
        // A bell that cannot ring any louder has not been heard yet.
        let _ = self.bell.write(1);
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Moves frames until it is told to stop.
    pub(super) fn run(&self) {
        while !self.is_stopping() {
            self.give_way();
            let mut slot = self.timely_slot();
            if slot.round() == 0 {
                self.rest(slot);
            }
        }
        let mut slot = self.timely_slot();
        for _ in 0..LAST_ROUNDS {
            slot.round();
        }
    }

    /// A lock that is taken again at once is seldom given to anybody else.
    fn give_way(&self) {
        while self.waiting.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }

    /// Sleeps until the guest, the cable or the clock may have something for the card.
    fn rest(&self, slot: MutexGuard<'_, Slot>) {
        let wanted = slot.plug.waits_for();
        drop(slot);
        let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
        let cable = self.cable.as_ref().map(|file| PollFd::new(file.as_fd(), wanted));
        // Whatever woke it, an interrupt included: the next round finds out what there is to do.
        let _ = match cable {
            Some(cable) if !wanted.is_empty() => poll(&mut [bell, cable], PollTimeout::from(TICK)),
            _ => poll(&mut [bell], PollTimeout::from(TICK)),
        };
        // Only this thread listens.
        let _ = self.bell.read();
    }
}

//! Intel's 10-gigabit cards of the ixgbe family: 82599, X540, X550. Sections in this folder are those of the *Intel 82599
//! 10 GbE Controller Datasheet* (331520).
//!
//! The driver wants frames in and frames out, and nothing computed for it: no offload, no stripped VLAN tag, no flow
//! control. `rx.rs` and `tx.rs` move packets, `ring.rs` keeps them while the card has them, `gate.rs` keeps queues off a
//! card that is being reset; `queues.rs` makes them all and hands them out. Control is `reset.rs`, `init.rs` and
//! `enable.rs`, which bring a card to life, and `watch.rs`, which notices when it has lost it; `registers.rs` is all that
//! they say to it. `vf/` is a function of such a card that a host has lent to this machine.

mod access;
mod descriptor;
mod enable;
mod error;
mod gate;
mod i2c;
mod init;
mod interrupt;
mod models;
mod progress;
mod queues;
mod registers;
mod reset;
mod ring;
mod rx;
mod sfp;
mod tx;
mod tx_mode;
mod vf;
mod wait;
mod watch;

use self::access::{Readable, WINDOW_LEN};
use self::init::Setup;
use self::interrupt::Entry;
use self::models::Medium;
use self::queues::{QueueSet, Wiring};
use self::registers::*;
use self::reset::{Depth, Stage};
use self::tx_mode::TxMode;
use self::wait::SECOND;
use self::watch::{Finding, Watch};
use crate::device::{DeviceCounters, DeviceFault, Link, Mac, NetDevice, QueueShape, QueueWish, Queues};
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::packet::HEADROOM;
use crate::pool::Pool;

pub use self::error::IxgbeError;
pub use self::models::{Model, VENDOR, VirtualModel, model, virtual_model};
pub use self::rx::IxgbeRx;
pub use self::sfp::{Identity, Module};
pub use self::tx::IxgbeTx;
pub use self::vf::{IxgbeVf, VF_BAR_LEN};

/// Bytes that BAR 0 must have.
pub const BAR_LEN: usize = WINDOW_LEN;

/// The smallest and largest rings that the driver makes. Their lengths in bytes are multiples of 128, as they must be.
const RINGS: (usize, usize) = (64, 4096);
/// How long after a reset that failed the next one is tried.
const RETRY: u64 = 2 * SECOND;
/// The largest payload of a frame on plain Ethernet.
const MTU: u16 = 1500;

fn ring_length(wish: QueueWish) -> usize {
    wish.ring.clamp(RINGS.0, RINGS.1).next_power_of_two()
}

/// Receive queue `i` has entry `i`. The MAC keeps frames out that would go beyond a buffer's end.
const fn wiring(tx_mode: TxMode) -> Wiring {
    Wiring {
        tx_rings: &TX_RINGS,
        tx_mode,
        entry: |queue| Entry {
            unmask: EIMS_EX.row(queue / 32),
            mask: EIMC_EX.row(queue / 32),
            bit: 1 << (queue % 32),
        },
        headroom: HEADROOM,
    }
}

/// One port of a card.
pub struct Ixgbe<B: Bar> {
    setup: Setup<B>,
    mac: Mac,
    shape: QueueShape,
    queues: QueueSet<B>,
    state: State,
    watch: Watch,
}

/// What the card is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It runs, since then.
    Running { since: u64 },
    /// It is being reset.
    Between(Stage, Depth),
    /// A reset failed, at that time.
    Failed { since: u64 },
    /// It was stopped for good.
    Stopped,
}

impl<B: Bar> Ixgbe<B> {
    /// Sets up the card behind `bar` with as many of the wished queues as it has. It receives nothing until the
    /// queues are taken.
    ///
    /// # Errors
    /// See [`IxgbeError`]; the card is left reset as far as it can be.
    pub fn new<H: Hal>(bar: B, model: &'static Model, wish: QueueWish) -> Result<Self, IxgbeError> {
        if STATUS.read(&bar) == u32::MAX {
            return Err(IxgbeError::Gone);
        }
        let rx = wish.pairs.clamp(1, model.family.rss_queues());
        let (tx_mode, tx) = TxMode::choose(wish.pairs, wish.tx_needed);
        let ring = ring_length(wish);
        let interrupts = rx.min(wish.interrupts.into());
        let shape = QueueShape { rx, tx, rx_ring: ring, tx_ring: ring };
        let queues = QueueSet::new::<H>(&bar, shape, &wiring(tx_mode), interrupts)?;
        let (rx_rings, tx_rings) = (queues.rx.clone(), queues.tx.clone());
        let setup = Setup { bar, clock: H::now_ns, model, rx: rx_rings, tx: tx_rings, tx_mode, interrupts };
        let mut device = Ixgbe {
            setup,
            mac: Mac([0; 6]),
            shape,
            queues,
            state: State::Between(Stage::Closing, Depth::Device),
            watch: Watch::new(rx, tx, tx_mode),
        };
        while !matches!(device.state, State::Running { .. }) {
            device.step()?;
        }
        device.mac = device.read_mac()?;
        Ok(device)
    }

    /// What is plugged in; `None` for a port without a cage.
    ///
    /// # Errors
    /// Where the wires to the module are not to be had, or hang.
    pub fn module(&self) -> Option<Result<Module, IxgbeError>> {
        let has_cage = self.setup.model.medium == Medium::Sfp;
        has_cage.then(|| sfp::identify(&self.setup.bar, self.setup.clock))
    }

    /// The station address, which the card has read from its EEPROM (8.2.3.7.9).
    fn read_mac(&self) -> Result<Mac, IxgbeError> {
        let bar = &self.setup.bar;
        let [a, b, c, d] = RAL.row(0).read(bar).to_le_bytes();
        let high = RAH.row(0).read(bar);
        let [e, f, ..] = high.to_le_bytes();
        if high & rah::VALID != 0 { Ok(Mac([a, b, c, d, e, f])) } else { Err(IxgbeError::NoAddress) }
    }

    /// One step of a reset, or of a running card's life. Never waits for long.
    fn step(&mut self) -> Result<(), IxgbeError> {
        let now = (self.setup.clock)();
        match self.state {
            State::Running { since } => self.look_after(since, now),
            State::Between(Stage::Closing, _) if !self.queues.gates.are_free() => {}
            State::Between(Stage::Blank, _) => self.begin_life()?,
            State::Between(stage, depth) => {
                if matches!(stage, Stage::Draining { .. }) {
                    // No frame comes in any more, and the reset will clear what was counted.
                    self.watch.read_counters(&self.setup.bar);
                }
                self.state = State::Between(self.setup.advance(stage, depth)?, depth);
            }
            State::Failed { since } if now.saturating_sub(since) >= RETRY => self.reset(Depth::Link),
            State::Failed { .. } | State::Stopped => {}
        }
        Ok(())
    }

    /// The card is blank: it is told everything anew, and queues may use it again.
    fn begin_life(&mut self) -> Result<(), IxgbeError> {
        self.setup.mask_interrupts();
        self.setup.configure()?;
        if self.queues.are_taken() {
            self.setup.start_receiving()?;
        }
        let now = (self.setup.clock)();
        self.watch.begin(now);
        self.state = State::Running { since: now };
        self.queues.gates.open();
        if self.queues.are_taken() {
            self.wake_queues();
        }
        Ok(())
    }

    /// Ends the sleep of every core that waits for a frame: the rings are empty until their owners have posted buffers.
    fn wake_queues(&self) {
        let bar = &self.setup.bar;
        let entries = u64::MAX.checked_shr(64 - self.setup.interrupts as u32).unwrap_or(0);
        for (half, entries) in [entries as u32, (entries >> 32) as u32].into_iter().enumerate() {
            EIMS_EX.row(half).write(bar, entries);
            EICS_EX.row(half).write(bar, entries);
        }
    }

    fn look_after(&mut self, since: u64, now: u64) {
        match self.watch.look(&self.setup.bar, &self.queues.gates, now) {
            Finding::Nothing => {}
            Finding::LinkIs(Link::Up, speed) => log::info!("ixgbe {}: link up, {speed} Mb/s", self.mac),
            Finding::LinkIs(Link::Down, _) => log::info!("ixgbe {}: link down", self.mac),
            Finding::TxHung(queue) => {
                log::warn!("ixgbe {}: transmit queue {queue} hangs; the port is reset", self.mac);
                return self.reset(Depth::Device);
            }
            Finding::RxStalled(queue) => {
                log::warn!("ixgbe {}: receive queue {queue} takes no frames; the port is reset", self.mac);
                return self.reset(Depth::Device);
            }
            Finding::Forgetful => {
                log::warn!("ixgbe {}: the card has reset itself, and is set up anew", self.mac);
                return self.reset(Depth::Device);
            }
        }
        // Some cards just don't come up the first time: they are reset again, the link's logic too.
        let patience = self.setup.model.medium.link_patience();
        if self.watch.never_had_link() && now.saturating_sub(since) >= patience {
            log::debug!("ixgbe {}: no link yet; the port is reset", self.mac);
            self.reset(Depth::Link);
        }
    }

    /// Begins a reset. Frames that the card has and has not reported are lost, and counted.
    fn reset(&mut self, depth: Depth) {
        self.watch.counters.resets += 1;
        self.queues.gates.close();
        self.state = State::Between(Stage::Closing, depth);
    }

    /// Resets the card for good, or waits for the end of the reset that is under way.
    fn reset_and_wait(&mut self) -> Result<(), IxgbeError> {
        self.queues.keep_off(self.setup.clock);
        let mut stage = match self.state {
            State::Between(stage, _) => stage,
            _ => Stage::Closing,
        };
        while stage != Stage::Blank {
            stage = self.setup.advance(stage, Depth::Device)?;
        }
        CTRL_EXT.clear(&self.setup.bar, ctrl_ext::DRIVER_LOADED);
        Ok(())
    }
}

impl<B: Bar> NetDevice for Ixgbe<B> {
    type Rx = IxgbeRx<B>;
    type Tx = IxgbeTx<B>;

    fn driver(&self) -> &'static str {
        "ixgbe"
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn link(&self) -> Link {
        match self.state {
            State::Running { .. } => self.watch.link_now(&self.setup.bar),
            _ => Link::Down,
        }
    }

    fn mtu(&self) -> u16 {
        MTU
    }

    fn shape(&self) -> QueueShape {
        self.shape
    }

    fn rx_interrupts(&self) -> usize {
        self.setup.interrupts
    }

    fn take_queues(&mut self, pool: &'static Pool) -> Option<Queues<IxgbeRx<B>, IxgbeTx<B>>> {
        if !matches!(self.state, State::Running { .. }) {
            return None;
        }
        let queues = self.queues.take(pool)?;
        if let Err(error) = self.setup.start_receiving() {
            log::warn!("ixgbe {}: {error}; the port is reset", self.mac);
            self.reset(Depth::Device);
        }
        Some(queues)
    }

    fn attend(&mut self) {
        if let Err(error) = self.step() {
            log::error!("ixgbe {}: {error}; tried again in {} s", self.mac, RETRY / SECOND);
            self.state = State::Failed { since: (self.setup.clock)() };
        }
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { lost: self.queues.lost(), ..self.watch.counters }
    }

    fn fault(&self) -> Option<DeviceFault> {
        matches!(self.state, State::Failed { .. }).then_some(DeviceFault::NeedsReset)
    }

    fn stop(&mut self) {
        if self.state == State::Stopped {
            return;
        }
        match self.reset_and_wait() {
            Ok(()) => self.queues.confirm_stopped(),
            Err(error) => log::error!("ixgbe {}: {error}; its buffers are lost", self.mac),
        }
        self.state = State::Stopped;
    }
}

impl<B: Bar> Drop for Ixgbe<B> {
    fn drop(&mut self) {
        self.stop();
    }
}

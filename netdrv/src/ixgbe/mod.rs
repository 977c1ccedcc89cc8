//! Intel's 10-gigabit cards of the ixgbe family: 82599, X540, X550. Sections in this folder are those of the *Intel 82599
//! 10 GbE Controller Datasheet* (331520).
//!
//! The driver wants frames in and frames out, and nothing computed for it: no offload, no stripped VLAN tag, no flow
//! control. `rx.rs` and `tx.rs` move packets, `ring.rs` keeps them while the card has them, `gate.rs` keeps queues off a
//! card that is being reset. Control is `reset.rs` and `init.rs`, which bring a card to life, and `watch.rs`, which
//! notices when it has lost it; `registers.rs` is all that they say to it.

mod access;
mod descriptor;
mod error;
mod gate;
mod i2c;
mod init;
mod interrupt;
mod models;
mod registers;
mod reset;
mod ring;
mod rx;
mod sfp;
mod tx;
mod wait;
mod watch;

use alloc::vec::Vec;

use self::access::{ReadWrite, Readable, WINDOW_LEN};
use self::descriptor::DESCRIPTOR_SIZE;
use self::gate::Gates;
use self::init::{RingPlace, Setup};
use self::interrupt::Interrupt;
use self::models::{Medium, TX_QUEUES};
use self::registers::*;
use self::reset::{Depth, Stage};
use self::ring::PacketRing;
use self::wait::{MILLISECOND, SECOND};
use self::watch::{Finding, Watch};
use crate::device::{
    DeviceCounters, DeviceFault, Link, Mac, NetDevice, QueueShape, QueueWish, Queues, Quiesced,
};
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::pool::Pool;

pub use self::error::IxgbeError;
pub use self::models::{Model, VENDOR, model};
pub use self::rx::IxgbeRx;
pub use self::sfp::{Identity, Module};
pub use self::tx::IxgbeTx;

/// Bytes that BAR 0 must have.
pub const BAR_LEN: usize = WINDOW_LEN;

/// The smallest and largest rings that the driver makes. Their lengths in bytes are multiples of 128, as they must be.
const RINGS: (usize, usize) = (64, 4096);
/// How long after a reset that failed the next one is tried.
const RETRY: u64 = 2 * SECOND;
/// How long a stop waits for queues to leave their registers: they are there for some instructions.
const LEAVE_PATIENCE: u64 = 100 * MILLISECOND;
/// The largest payload of a frame on plain Ethernet.
const MTU: u16 = 1500;

/// One port of a card.
pub struct Ixgbe<B: Bar> {
    setup: Setup<B>,
    mac: Mac,
    shape: QueueShape,
    /// Queues that are set up and not handed out.
    rx: Vec<IxgbeRx<B>>,
    tx: Vec<IxgbeTx<B>>,
    taken: bool,
    state: State,
    gates: Gates,
    watch: Watch,
    quiesced: Quiesced,
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
        let tx = wish.pairs.clamp(1, TX_QUEUES);
        let ring = wish.ring.clamp(RINGS.0, RINGS.1).next_power_of_two();
        let interrupts = rx.min(wish.interrupts.into());
        let setup = Setup { bar, clock: H::now_ns, model, rx: Vec::new(), tx: Vec::new(), interrupts };
        let mut device = Ixgbe {
            setup,
            mac: Mac([0; 6]),
            shape: QueueShape { rx, tx, rx_ring: ring, tx_ring: ring },
            rx: Vec::new(),
            tx: Vec::new(),
            taken: false,
            state: State::Between(Stage::Closing, Depth::Device),
            gates: Gates::default(),
            watch: Watch::new(rx, tx),
            quiesced: Quiesced::default(),
        };
        device.gates.close();
        device.create_queues::<H>()?;
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

    fn create_queues<H: Hal>(&mut self) -> Result<(), IxgbeError> {
        for queue in 0..self.shape.rx {
            let (ring, place) = self.create_ring::<H>(self.shape.rx_ring, RDT.row(queue))?;
            let entry = (queue < self.setup.interrupts).then_some(queue as u16);
            let interrupt = Interrupt::new(self.setup.bar.clone(), entry);
            self.setup.rx.push(place);
            self.rx.push(IxgbeRx::new(ring, interrupt));
        }
        for queue in 0..self.shape.tx {
            let (ring, place) = self.create_ring::<H>(self.shape.tx_ring, TDT.row(queue))?;
            self.setup.tx.push(place);
            self.tx.push(IxgbeTx::new(ring));
        }
        Ok(())
    }

    fn create_ring<H: Hal>(
        &mut self,
        size: usize,
        tail: ReadWrite,
    ) -> Result<(PacketRing<B>, RingPlace), IxgbeError> {
        let (bar, gate) = (self.setup.bar.clone(), self.gates.add());
        let ring = PacketRing::new::<H>(size, bar, tail, gate, self.quiesced.clone())?;
        let place = RingPlace { address: ring.address(), len: (size * DESCRIPTOR_SIZE) as u32 };
        Ok((ring, place))
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
            State::Between(Stage::Closing, _) if !self.gates.are_free() => {}
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
        if self.taken {
            self.setup.start_receiving()?;
        }
        let now = (self.setup.clock)();
        self.watch.begin(now);
        self.state = State::Running { since: now };
        self.gates.open();
        if self.taken {
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
        match self.watch.look(&self.setup.bar, &self.gates, now) {
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
        self.gates.close();
        self.state = State::Between(Stage::Closing, depth);
    }

    /// Resets the card for good, or waits for the end of the reset that is under way.
    fn reset_and_wait(&mut self) -> Result<(), IxgbeError> {
        let clock = self.setup.clock;
        self.gates.close();
        let started = clock();
        while !self.gates.are_free() && clock().saturating_sub(started) < LEAVE_PATIENCE {
            core::hint::spin_loop();
        }
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
        if self.taken || !matches!(self.state, State::Running { .. }) {
            return None;
        }
        let mut rx = core::mem::take(&mut self.rx);
        let mut cache = pool.cache();
        rx.iter_mut().for_each(|queue| queue.fill(&mut cache));
        self.taken = true;
        if let Err(error) = self.setup.start_receiving() {
            log::warn!("ixgbe {}: {error}; the port is reset", self.mac);
            self.reset(Depth::Device);
        }
        Some(Queues { rx, tx: core::mem::take(&mut self.tx) })
    }

    fn attend(&mut self) {
        if let Err(error) = self.step() {
            log::error!("ixgbe {}: {error}; tried again in {} s", self.mac, RETRY / SECOND);
            self.state = State::Failed { since: (self.setup.clock)() };
        }
    }

    fn counters(&self) -> DeviceCounters {
        let lost = self.gates.notices().map(|notice| notice.lost()).sum();
        DeviceCounters { lost, ..self.watch.counters }
    }

    fn fault(&self) -> Option<DeviceFault> {
        matches!(self.state, State::Failed { .. }).then_some(DeviceFault::NeedsReset)
    }

    fn stop(&mut self) {
        if self.state == State::Stopped {
            return;
        }
        match self.reset_and_wait() {
            Ok(()) => self.quiesced.confirm(),
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

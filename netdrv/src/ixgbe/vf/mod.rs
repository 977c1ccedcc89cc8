//! A virtual function of an 82599, X540 or X550: the way in which clouds and other hosts with SR-IOV hand out these cards
//! (7.10, 8.3).
//!
//! It moves packets as a physical function does, over the same `rx.rs` and `tx.rs`. Everything else is up to the driver of the
//! physical function, with whom it talks through a mailbox: `mailbox.rs` has the words' way, `host.rs` their sense, `reset.rs`
//! and `init.rs` the way to a function that runs, `watch.rs` what the physical function does meanwhile.
//!
//! Which frames come in is not the function's to decide. The driver asks for all; what it gets is logged. Frames with a VLAN
//! tag never come in, unless the host says so for a VLAN of the function's own. What found no buffer, or was damaged, the
//! physical function counts.

mod host;
mod init;
mod mailbox;
mod registers;
mod reset;
mod watch;

use alloc::vec::Vec;

use self::host::{Reach, Terms};
use self::init::Setup;
use self::mailbox::Mailbox;
use self::registers::*;
use self::reset::Stage;
use self::watch::{Finding, Watch};
use super::access::Readable;
use super::error::IxgbeError;
use super::interrupt::Entry;
use super::models::VirtualModel;
use super::queues::{QueueSet, Wiring};
use super::rx::IxgbeRx;
use super::tx::IxgbeTx;
use super::tx_mode::TxMode;
use super::wait::SECOND;
use super::{MTU, RETRY, ring_length};
use crate::device::{DeviceCounters, DeviceFault, Link, Mac, NetDevice, QueueShape, QueueWish, Queues};
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::packet::BUFFER_SIZE;
use crate::pool::Pool;

/// Bytes that BAR 0 of a virtual function must have.
pub const VF_BAR_LEN: usize = 0x4000;

/// Receive queue `i` has entry `i`. How long frames may be is the physical function's to say, and a function of the 82599 has
/// no limit of its own: so all that the device believes to be a buffer has to be one, without headroom before the frame. Longer
/// frames go on in the next buffer, and are dropped.
const WIRING: Wiring = Wiring {
    tx_rings: &TX_RINGS,
    tx_mode: TxMode::Plain,
    entry: |queue| Entry { unmask: VTEIMS, mask: VTEIMC, bit: 1 << queue },
    headroom: 0,
};
const _: () = assert!(BUFFER_SIZE >= super::enable::BUFFER_KILOBYTES as usize * 1024);

/// One virtual function.
pub struct IxgbeVf<B: Bar> {
    setup: Setup<B>,
    /// What the physical function has granted.
    terms: Terms,
    shape: QueueShape,
    queues: QueueSet<B>,
    state: State,
    /// Why the last reset failed, if it did.
    failure: Option<IxgbeError>,
    watch: Watch,
}

/// What the function is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It runs.
    Running,
    /// It is being reset.
    Between(Stage),
    /// A reset failed, at that time.
    Failed { since: u64 },
    /// It was stopped for good.
    Stopped,
}

impl<B: Bar> IxgbeVf<B> {
    /// Sets up the function behind `bar` with as many of the wished queues as the physical function grants. It receives
    /// nothing until the queues are taken.
    ///
    /// # Errors
    /// See [`IxgbeError`]; the function is left reset as far as it can be.
    pub fn new<H: Hal>(bar: B, model: &'static VirtualModel, wish: QueueWish) -> Result<Self, IxgbeError> {
        if VFSTATUS.read(&bar) == u32::MAX {
            return Err(IxgbeError::Gone);
        }
        let mut setup = Setup {
            bar,
            clock: H::now_ns,
            family: model.family,
            mailbox: Mailbox::default(),
            own_mac: any_address(H::now_ns()),
            rx: Vec::new(),
            tx: Vec::new(),
            interrupts: 0,
        };
        let mut stage = Stage::Closing;
        let terms = loop {
            match stage {
                Stage::Settled(terms) => break terms,
                _ => stage = setup.advance(stage)?,
            }
        };
        let shape = shape(&terms, wish);
        setup.interrupts = shape.rx.min(wish.interrupts.into()).min(VECTORS);
        let queues = QueueSet::new::<H>(&setup.bar, shape, &WIRING, setup.interrupts)?;
        (setup.rx, setup.tx) = (queues.rx.clone(), queues.tx.clone());
        let state = State::Between(stage);
        let watch = Watch::new(shape.rx, shape.tx);
        let mut device = IxgbeVf { setup, terms, shape, queues, state, failure: None, watch };
        device.begin_life(terms)?;
        device.describe();
        Ok(device)
    }

    /// One step of a reset, or of a running function's life. Never waits for long.
    fn step(&mut self) -> Result<(), IxgbeError> {
        let now = (self.setup.clock)();
        match self.state {
            State::Running => self.look_after(now),
            State::Between(Stage::Closing) if !self.queues.gates.are_free() => {}
            State::Between(Stage::Settled(terms)) => self.begin_life(terms)?,
            State::Between(stage) => self.state = State::Between(self.setup.advance(stage)?),
            State::Failed { since } if now.saturating_sub(since) >= RETRY => self.reset(),
            State::Failed { .. } | State::Stopped => {}
        }
        Ok(())
    }

    /// The function is blank: it is told everything anew, and queues may use it again.
    fn begin_life(&mut self, terms: Terms) -> Result<(), IxgbeError> {
        if terms.rx_queues < self.shape.rx || terms.tx_queues < self.shape.tx {
            return Err(IxgbeError::FewerQueues);
        }
        self.setup.mask_interrupts();
        self.setup.configure()?;
        self.watch.begin((self.setup.clock)(), terms.has_link);
        let before = core::mem::replace(&mut self.terms, terms);
        if (before.mac, before.reach) != (terms.mac, terms.reach) {
            self.describe();
        }
        (self.state, self.failure) = (State::Running, None);
        self.queues.gates.open();
        if self.queues.are_taken() {
            self.wake_queues();
        }
        Ok(())
    }

    /// Says which frames pass, as far as the physical function tells. What it throws away nobody here can count.
    fn describe(&self) {
        let mac = self.terms.mac;
        match self.terms.reach {
            Reach::Everything => log::info!("ixgbevf {mac}: every frame without a VLAN tag comes in"),
            Reach::Multicasts => log::warn!(
                "ixgbevf {mac}: the physical function lets in only frames to this address, and multicasts"
            ),
            Reach::Broadcasts | Reach::ListedMulticasts => log::warn!(
                "ixgbevf {mac}: the physical function lets in only frames to this address, and broadcasts"
            ),
        }
        log::info!("ixgbevf {mac}: frames from other addresses go out where the host checks for no spoofing");
    }

    /// Ends the sleep of every core that waits for a frame: the rings are empty until their owners have posted buffers.
    fn wake_queues(&self) {
        let entries = (1 << self.setup.interrupts) - 1;
        VTEIMS.write(&self.setup.bar, entries);
        VTEICS.write(&self.setup.bar, entries);
    }

    fn look_after(&mut self, now: u64) {
        let Setup { bar, mailbox, .. } = &mut self.setup;
        let mac = self.terms.mac;
        match self.watch.look(bar, mailbox, &self.queues.gates, now) {
            Finding::Nothing => return,
            Finding::LinkIs(Link::Up, speed) => return log::info!("ixgbevf {mac}: link up, {speed} Mb/s"),
            Finding::LinkIs(Link::Down, _) => return log::info!("ixgbevf {mac}: link down"),
            Finding::TxHung(queue) => {
                log::warn!("ixgbevf {mac}: transmit queue {queue} hangs; the function is reset");
            }
            Finding::HostWasReset => log::warn!("ixgbevf {mac}: the physical function was reset"),
            Finding::Unwelcome => log::info!("ixgbevf {mac}: the physical function wants to begin anew"),
            Finding::Forgetful => {
                log::warn!("ixgbevf {mac}: the function was reset by another, and is set up anew");
            }
        }
        self.reset();
    }

    /// Begins a reset. Frames that the function has and has not reported are lost, and counted.
    fn reset(&mut self) {
        self.watch.counters.resets += 1;
        self.queues.gates.close();
        self.state = State::Between(Stage::Closing);
    }

    /// Resets the function for good, or waits for the end of the reset that is under way.
    fn reset_and_wait(&mut self) -> Result<(), IxgbeError> {
        self.queues.keep_off(self.setup.clock);
        let mut stage = match self.state {
            State::Between(stage) => stage,
            _ => Stage::Closing,
        };
        while !stage.is_silent() {
            stage = self.setup.advance(stage)?;
        }
        Ok(())
    }
}

/// As many queues as are granted and wished. The hash chooses among a power of two of them.
fn shape(terms: &Terms, wish: QueueWish) -> QueueShape {
    let rx = wish.pairs.clamp(1, terms.rx_queues);
    let ring = ring_length(wish);
    QueueShape { rx: 1 << rx.ilog2(), tx: wish.pairs.clamp(1, terms.tx_queues), rx_ring: ring, tx_ring: ring }
}

/// An address of the kind that anybody may give to anything (IEEE 802, 8.4), as random as the clock.
fn any_address(now: u64) -> Mac {
    // Spreads what changes fast over all bits (splitmix64).
    let mut bits = now.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let [a, b, c, d, e, ..] = (bits ^ bits >> 31).to_le_bytes();
    Mac([0x02, a, b, c, d, e])
}

impl<B: Bar> NetDevice for IxgbeVf<B> {
    type Rx = IxgbeRx<B>;
    type Tx = IxgbeTx<B>;

    fn driver(&self) -> &'static str {
        "ixgbevf"
    }

    fn mac(&self) -> Mac {
        self.terms.mac
    }

    fn link(&self) -> Link {
        match self.state {
            State::Running => self.watch.link_now(&self.setup.bar),
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
        match self.state {
            State::Running => self.queues.take(pool),
            _ => None,
        }
    }

    fn attend(&mut self) {
        let Err(error) = self.step() else { return };
        self.state = State::Failed { since: (self.setup.clock)() };
        // A physical function may well stay down for days.
        if self.failure.replace(error) != Some(error) {
            log::error!("ixgbevf {}: {error}; tried again every {} s", self.terms.mac, RETRY / SECOND);
        }
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { lost: self.queues.lost(), ..self.watch.counters }
    }

    fn fault(&self) -> Option<DeviceFault> {
        self.failure.map(|_| DeviceFault::NeedsReset)
    }

    fn stop(&mut self) {
        if self.state == State::Stopped {
            return;
        }
        match self.reset_and_wait() {
            Ok(()) => self.queues.confirm_stopped(),
            Err(error) => log::error!("ixgbevf {}: {error}; its buffers are lost", self.terms.mac),
        }
        self.state = State::Stopped;
    }
}

impl<B: Bar> Drop for IxgbeVf<B> {
    fn drop(&mut self) {
        self.stop();
    }
}

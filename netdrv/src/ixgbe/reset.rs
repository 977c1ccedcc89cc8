//! The way from any state to a card that runs, in steps that never wait: the core that takes them forwards packets as well.

use super::access::Readable;
use super::error::IxgbeError;
use super::init::Setup;
use super::registers::*;
use super::wait::{self, MICROSECOND, MILLISECOND, SECOND};
use crate::mmio::Bar;

/// How long accesses to memory may be outstanding when no more are started (5.2.5.3.2), and what then follows.
const DRAIN_PATIENCE: u64 = 100 * MILLISECOND;
/// A reset takes 10 ms at least (4.6.3.2).
const RESET_TIME: u64 = 10 * MILLISECOND;
/// How long the card may take to come back: its EEPROM is read, its memory initialised.
const RESET_PATIENCE: u64 = SECOND;

/// Where a card is between two lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Queues may still be at their registers.
    Closing,
    /// Accesses to memory may be outstanding.
    Draining { since: u64 },
    /// The reset was triggered.
    Resetting { since: u64, depth: Depth },
    /// The card is reset and knows nothing.
    Blank,
}

/// How much is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// The device; a link that is up stays so.
    Device,
    /// The link's logic as well.
    Link,
}

impl<B: Bar> Setup<B> {
    /// The next stage, which may be the same one. Nobody else is at the registers from `Draining` on.
    pub(super) fn advance(&self, stage: Stage, depth: Depth) -> Result<Stage, IxgbeError> {
        let now = (self.clock)();
        match stage {
            Stage::Closing => {
                self.silence();
                Ok(Stage::Draining { since: now })
            }
            Stage::Draining { since } => {
                let is_drained = STATUS.read(&self.bar) & status::MASTER_ENABLE == 0;
                if !is_drained && now.saturating_sub(since) < DRAIN_PATIENCE {
                    return Ok(stage);
                }
                if !is_drained {
                    self.discard_accesses();
                }
                self.trigger(depth);
                Ok(Stage::Resetting { since: (self.clock)(), depth })
            }
            Stage::Resetting { since, .. } => {
                let elapsed = now.saturating_sub(since);
                if elapsed < RESET_TIME {
                    return Ok(stage);
                }
                match self.awaited_after_reset() {
                    None => Ok(Stage::Blank),
                    Some(missing) if elapsed > RESET_PATIENCE => Err(missing),
                    Some(_) => Ok(stage),
                }
            }
            Stage::Blank => Ok(stage),
        }
    }

    /// Interrupts masked (4.6.3.1), no more frames in, no more accesses started (5.2.5.3.2).
    fn silence(&self) {
        self.mask_interrupts();
        RXCTRL.clear(&self.bar, rxctrl::ENABLE);
        CTRL.set(&self.bar, ctrl::MASTER_DISABLE);
    }

    pub(super) fn mask_interrupts(&self) {
        EIMC.write(&self.bar, eimc::ALL);
        EIMC_EX.all().for_each(|register| register.write(&self.bar, u32::MAX));
        EICR.take(&self.bar);
    }

    /// Where accesses are outstanding that never end, they are thrown away, and the card is reset once more than else, with
    /// at least 1 µs in between (82599 specification update, "master disable may not clear").
    fn discard_accesses(&self) {
        let bar = &self.bar;
        let hlreg0 = HLREG0.read(bar);
        HLREG0.write(bar, hlreg0 | hlreg0::LOOPBACK);
        GCR_EXT.set(bar, gcr_ext::BUFFERS_CLEAR);
        wait::pause(self.clock, 20 * MICROSECOND);
        GCR_EXT.clear(bar, gcr_ext::BUFFERS_CLEAR);
        HLREG0.write(bar, hlreg0);
        self.trigger(Depth::Device);
        wait::pause(self.clock, 2 * MICROSECOND);
    }

    /// Triggers the reset. No other register is to be accessed before it is over; a read makes sure that it has begun.
    fn trigger(&self, depth: Depth) {
        let reset = match depth {
            Depth::Device => ctrl::RESET,
            Depth::Link => ctrl::RESET | ctrl::LINK_RESET,
        };
        CTRL.set(&self.bar, reset);
        CTRL.read(&self.bar);
    }

    /// What is still missing after a reset (4.6.3), if anything.
    fn awaited_after_reset(&self) -> Option<IxgbeError> {
        let missing = |register, awaited| Some(IxgbeError::Timeout { register, awaited });
        let ctrl = CTRL.read(&self.bar);
        match () {
            () if ctrl == u32::MAX => Some(IxgbeError::Gone),
            () if ctrl & (ctrl::RESET | ctrl::LINK_RESET) != 0 => missing("CTRL", "the reset to end"),
            () if EEC.read(&self.bar) & eec::AUTO_READ_DONE == 0 => missing("EEC", "the EEPROM to be read"),
            () if RDRXCTL.read(&self.bar) & rdrxctl::DMA_INIT_DONE == 0 => {
                missing("RDRXCTL", "DMA to be initialised")
            }
            () => None,
        }
    }
}

//! The way from any state to a function whose terms are settled, in steps that never wait: the core that takes them forwards
//! packets as well.

use super::host::{Outcome, Talk, Terms};
use super::init::Setup;
use super::registers::*;
use crate::ixgbe::access::{ReadWrite, Readable};
use crate::ixgbe::error::IxgbeError;
use crate::ixgbe::registers::{RXDCTL, rxdctl, txdctl};
use crate::ixgbe::wait::{MILLISECOND, SECOND};
use crate::mmio::Bar;

/// How long queues may take to stop by themselves; a reset stops them then.
const DRAIN_PATIENCE: u64 = 100 * MILLISECOND;
/// A reset takes as long as a physical function's (4.6.3.2).
const RESET_TIME: u64 = 10 * MILLISECOND;
/// How long the queues may take to be off after a reset, and the physical function to be up: a link of its own that comes up
/// first is the slowest part of that.
const RESET_PATIENCE: u64 = SECOND;
const HOST_PATIENCE: u64 = 5 * SECOND;

/// Where a function is between two lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Owners of queues may still be at their registers.
    Closing,
    /// Queues were told to stop.
    Draining { since: u64 },
    /// The reset was triggered.
    Resetting { since: u64 },
    /// No queue is on any more. The physical function may be in a reset of its own.
    Silent { since: u64 },
    /// The physical function is asked what it grants.
    Talking(Talk),
    /// It has answered, and the function knows nothing of its rings.
    Settled(Terms),
}

impl Stage {
    /// Whether the function is sure to have let go of its rings.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Stage::Silent { .. } | Stage::Talking(_) | Stage::Settled(_))
    }
}

impl<B: Bar> Setup<B> {
    /// The next stage, which may be the same one. Nobody else is at the registers from `Draining` on.
    pub(super) fn advance(&mut self, stage: Stage) -> Result<Stage, IxgbeError> {
        let now = (self.clock)();
        match stage {
            Stage::Closing => {
                self.mask_interrupts();
                self.controls().for_each(|(control, enable)| control.clear(&self.bar, enable));
                Ok(Stage::Draining { since: now })
            }
            Stage::Draining { since } => {
                if !self.are_queues_off() && now.saturating_sub(since) < DRAIN_PATIENCE {
                    return Ok(stage);
                }
                VFCTRL.write(&self.bar, vfctrl::RESET);
                // A read makes sure that it has begun.
                VFSTATUS.read(&self.bar);
                Ok(Stage::Resetting { since: now })
            }
            Stage::Resetting { since } => {
                let elapsed = now.saturating_sub(since);
                match () {
                    () if elapsed < RESET_TIME => Ok(stage),
                    () if VFSTATUS.read(&self.bar) == u32::MAX => Err(IxgbeError::Gone),
                    () if self.are_queues_off() => Ok(Stage::Silent { since: now }),
                    () if elapsed < RESET_PATIENCE => Ok(stage),
                    () => Err(timeout("VFRXDCTL", "the queues to be off")),
                }
            }
            Stage::Silent { since } => self.await_host(since, now),
            Stage::Talking(talk) => match talk.step(&self.bar, &mut self.mailbox, now)? {
                Outcome::Goes(talk) => Ok(Stage::Talking(talk)),
                Outcome::Settled(terms) => Ok(Stage::Settled(terms)),
            },
            Stage::Settled(_) => Ok(stage),
        }
    }

    /// The conversation begins when the physical function is up.
    fn await_host(&mut self, since: u64, now: u64) -> Result<Stage, IxgbeError> {
        self.mailbox.forget();
        let flags = self.mailbox.look(&self.bar);
        match () {
            () if flags == u32::MAX => Err(IxgbeError::Gone),
            () if flags & (vfmailbox::HOST_IN_RESET | vfmailbox::HOST_WAS_RESET) == 0 => {
                Ok(Stage::Talking(Talk::new(now, self.own_mac)))
            }
            () if now.saturating_sub(since) < HOST_PATIENCE => Ok(Stage::Silent { since }),
            () => Err(timeout("VFMAILBOX", "the physical function to be up")),
        }
    }

    pub(super) fn mask_interrupts(&self) {
        VTEIMC.write(&self.bar, EVERY_VECTOR);
        VTEICR.take(&self.bar);
    }

    /// Whether the device has switched every queue off; a device that is gone has.
    fn are_queues_off(&self) -> bool {
        self.controls().all(|(control, enable)| {
            let value = control.read(&self.bar);
            value & enable == 0 || value == u32::MAX
        })
    }

    /// The control register of each queue, and the bit that switches it on.
    fn controls(&self) -> impl Iterator<Item = (ReadWrite, u32)> {
        let rx = (0..self.rx.len()).map(|queue| (RXDCTL.row(queue), rxdctl::ENABLE));
        let tx = (0..self.tx.len()).map(|queue| (TX_RINGS.txdctl.row(queue), txdctl::ENABLE));
        rx.chain(tx)
    }
}

fn timeout(register: &'static str, awaited: &'static str) -> IxgbeError {
    IxgbeError::Timeout { register, awaited }
}

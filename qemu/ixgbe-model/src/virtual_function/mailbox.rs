//! The mailbox between a virtual function and the physical one: sixteen words and a flag for each direction
//! (datasheet 7.10.2.9, 8.2.3.27.13, 8.3.5.1).

use crate::core::Core;
use crate::registers::*;

/// The function's side: bits of VFMAILBOX.
const REQ: u32 = 1 << 0;
const ACK: u32 = 1 << 1;
const VFU: u32 = 1 << 2;
const PFU: u32 = 1 << 3;
const PFSTS: u32 = 1 << 4;
const PFACK: u32 = 1 << 5;
const RSTI: u32 = 1 << 6;
const RSTD: u32 = 1 << 7;
/// What a read clears.
const READ_TO_CLEAR: u32 = PFSTS | PFACK | RSTD;

/// The physical function's side: bits of PFMAILBOX.
const PF_STS: u32 = 1 << 0;
const PF_ACK: u32 = 1 << 1;
const PF_RVFU: u32 = 1 << 4;

/// The flags, as VFMAILBOX shows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mailbox {
    flags: u32,
}

impl Default for Mailbox {
    /// The physical function is in reset until its driver says that it is not.
    fn default() -> Mailbox {
        Mailbox { flags: RSTI }
    }
}

impl Mailbox {
    /// VFMAILBOX is read.
    pub(super) fn read_virtual(&mut self) -> u32 {
        let flags = self.flags;
        self.flags &= !READ_TO_CLEAR;
        flags
    }

    /// VFMAILBOX is written; the causes of EICR that follow.
    pub(super) fn write_virtual(&mut self, core: &mut Core, function: usize, value: u32) -> u32 {
        // Who comes first owns the memory.
        if value & VFU == 0 {
            self.flags &= !VFU;
        } else if self.flags & PFU == 0 {
            self.flags |= VFU;
        }
        let requests = (value & REQ) << (function % 16);
        let acknowledgements = if value & ACK != 0 { 1 << (16 + function % 16) } else { 0 };
        let causes = core.values.at(Register::PFMBICR, function / 16);
        core.values.set_at(Register::PFMBICR, function / 16, causes | requests | acknowledgements);
        if requests | acknowledgements != 0 { EICR_MAILBOX } else { 0 }
    }

    /// PFMAILBOX as it reads.
    pub(crate) fn read_physical(&self) -> u32 {
        self.flags & (VFU | PFU)
    }

    /// PFMAILBOX is written; whether the function is to be interrupted.
    #[must_use]
    pub(crate) fn write_physical(&mut self, value: u32) -> bool {
        if value & PF_RVFU != 0 {
            self.flags &= !VFU;
        }
        if value & PFU == 0 {
            self.flags &= !PFU;
        } else if self.flags & VFU == 0 {
            self.flags |= PFU;
        }
        if value & PF_STS != 0 {
            self.flags |= PFSTS;
        }
        if value & PF_ACK != 0 {
            self.flags |= PFACK;
        }
        value & (PF_STS | PF_ACK) != 0
    }

    /// The physical function is in reset.
    pub(crate) fn reset_begins(&mut self) {
        self.flags = RSTI;
    }

    /// The driver of the physical function says that the reset is over (CTRL_EXT.PFRSTD).
    pub(crate) fn reset_is_done(&mut self) {
        if self.flags & RSTI != 0 {
            self.flags = self.flags & !RSTI | RSTD;
        }
    }

    /// The virtual function is reset: the physical one is told.
    pub(super) fn reset_virtual(&mut self, core: &mut Core, function: usize) {
        self.flags &= !(VFU | PFSTS | PFACK);
        let resets = core.values.at(Register::PFVFLRE, function / 32);
        core.values.set_at(Register::PFVFLRE, function / 32, resets | 1 << (function % 32));
    }
}

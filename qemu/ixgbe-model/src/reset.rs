//! Reset: what it takes, how long, and what it spares (datasheet 4.2).

use std::time::Duration;

use crate::core::Core;
use crate::registers::*;
use crate::strict::Rule;
use crate::virtual_function::PoolHash;

/// Memories that a reset leaves as they are, and that hold anything at all after power-up: software has to clear
/// them (4.6.4). Semaphores and the mailbox survive as well.
const SPARED: &[Register] = &[
    Register::MTA,
    Register::VFTA,
    Register::RETA,
    Register::RSSRK,
    Register::MPSAR,
    Register::UTA,
    Register::VLVF,
    Register::VLVFB,
    Register::FHFT,
    Register::PFMBMEM,
    Register::SWSM,
    Register::SW_FW_SYNC,
    Register::FWSM,
];

/// Those of them that are random after power-up, and that the model looks at.
const RANDOM: &[Register] = &[Register::MTA, Register::VFTA, Register::RETA, Register::RSSRK];

/// The reset that is under way.
#[derive(Default)]
pub(crate) struct Reset {
    begun: Option<Duration>,
}

impl Reset {
    /// The registers of a card that is powered up.
    pub(crate) fn power_up(core: &mut Core) {
        let mut noise = 0x9e37_79b9u32;
        for register in RANDOM {
            for index in 0..register.row().count() {
                // xorshift: any fixed disorder does.
                noise ^= noise << 13;
                noise ^= noise >> 17;
                noise ^= noise << 5;
                core.values.set_at(*register, index, noise);
            }
        }
        load_address(core);
    }

    /// CTRL.RST, CTRL.LRST, or an internal error: all registers go back, except for what is spared.
    pub(crate) fn begin(&mut self, core: &mut Core, ctrl: u32) {
        Register::all()
            .filter(|register| !SPARED.contains(register))
            .for_each(|register| core.values.reset(register));
        core.values.set(Register::CTRL, ctrl & (CTRL_RST | CTRL_LRST));
        core.values.remove(Register::EEC, EEC_AUTO_RD);
        core.values.remove(Register::RDRXCTL, RDRXCTL_DMAIDONE);
        core.values.set(Register::EEMNGCTL, 0);
        core.faults.reset();
        core.pool_hashes.fill(PoolHash::default());
        core.paused_until = core.now;
        self.begun = Some(core.now);
        load_address(core);
    }

    /// Ends what has lasted long enough.
    pub(crate) fn update(&mut self, core: &mut Core) {
        let Some(begun) = self.begun else { return };
        if core.now >= begun + core.options.reset_time {
            core.values.remove(Register::CTRL, CTRL_RST | CTRL_LRST);
        }
        if core.now >= begun + core.options.settle_time.max(core.options.reset_time) {
            self.end(core);
        }
    }

    /// The card is ready.
    pub(crate) fn end(&mut self, core: &mut Core) {
        core.values.remove(Register::CTRL, CTRL_RST | CTRL_LRST);
        core.values.insert(Register::EEC, EEC_AUTO_RD);
        core.values.insert(Register::RDRXCTL, RDRXCTL_DMAIDONE);
        core.values.reset(Register::EEMNGCTL);
        self.begun = None;
    }

    /// Whether a write is lost because the card is in reset; it is a mistake until the card has settled.
    pub(crate) fn swallows(&self, core: &mut Core, register: Register, index: usize, value: u32) -> bool {
        if self.begun.is_none() || register == Register::CTRL {
            return false;
        }
        core.report(Rule::AccessDuringReset, register, index, u64::from(value));
        core.values.has(Register::CTRL, CTRL_RST | CTRL_LRST)
    }
}

/// The EEPROM's address goes to the first receive address register (6.2.4).
fn load_address(core: &mut Core) {
    let [a, b, c, d, e, f] = core.options.mac;
    core.values.set_at(Register::RAL, 0, u32::from_le_bytes([a, b, c, d]));
    core.values.set_at(Register::RAH, 0, RAH_AV | u32::from(u16::from_le_bytes([e, f])));
}

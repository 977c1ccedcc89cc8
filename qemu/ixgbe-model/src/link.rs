//! The link: whether it is up, and how long that takes (datasheet 3.7).

use std::time::Duration;

use crate::core::Core;
use crate::fault::LinkFault;
use crate::interrupt::Interrupts;
use crate::options::{Model, Module, Speed};
use crate::registers::*;

/// The cable, and what is under way on it.
pub(crate) struct Link {
    cable: bool,
    /// When the partners have found each other.
    ready: Duration,
}

impl Link {
    pub(crate) fn new(core: &Core) -> Link {
        Link { cable: core.options.cable, ready: core.options.link_time }
    }

    /// The cable is plugged in or pulled.
    pub(crate) fn set_cable(&mut self, core: &Core, plugged: bool) {
        if plugged && !self.cable {
            self.restart(core);
        }
        self.cable = plugged;
    }

    /// The partners begin anew to find each other.
    pub(crate) fn restart(&mut self, core: &Core) {
        self.ready = core.now + core.options.link_time;
    }

    /// AUTOC is written: the restart bit clears itself (8.2.3.22.19).
    pub(crate) fn write_autoc(&mut self, core: &mut Core, value: u32) {
        core.values.set(Register::AUTOC, value & !AUTOC_RESTART_AN);
        if value & AUTOC_RESTART_AN != 0 {
            self.restart(core);
        }
    }

    /// Brings LINKS up to date, and tells of a change.
    pub(crate) fn update(&self, core: &mut Core, interrupts: &mut Interrupts) {
        let was = core.values.has(Register::LINKS, LINKS_UP);
        let is = self.is_up(core);
        if was != is {
            let speed = match core.options.speed {
                Speed::TenGigabit => LINKS_SPEED_10G,
                Speed::OneGigabit => LINKS_SPEED_1G,
            };
            core.values.set(Register::LINKS, if is { LINKS_UP | speed } else { 0 });
            interrupts.other(EICR_LSC);
        }
    }

    fn is_up(&self, core: &Core) -> bool {
        if core.values.has(Register::AUTOC, AUTOC_FLU) {
            return true;
        }
        let sfp = core.options.model == Model::Sfp82599;
        let dark =
            sfp && (core.options.module == Module::Empty || core.values.has(Register::ESDP, ESDP_SDP3));
        self.cable && !dark && core.faults.link != LinkFault::UntilReset && core.now >= self.ready
    }
}

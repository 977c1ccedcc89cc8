//! The driver's way to the model's registers, which can be watched and lied about.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ixgbe_model::InProcess;
use netdrv::mmio::Bar;

use super::lock;

pub(super) const CTRL: u32 = 0x0_0000;
pub(super) const RDH: u32 = 0x0_1010;
pub(super) const RDT: u32 = 0x0_1018;

/// CTRL.RST and CTRL.LRST.
const RESET: u32 = 1 << 26 | 1 << 3;

/// A write to a register: its offset, and the value.
pub(super) type Write = (u32, u32);

#[derive(Clone)]
pub(crate) struct CardBar {
    pub(super) model: InProcess,
    writes: Arc<Mutex<Vec<Write>>>,
    never_resets: Arc<AtomicBool>,
}

impl CardBar {
    pub(super) fn new(model: InProcess) -> CardBar {
        CardBar { model, writes: Arc::default(), never_resets: Arc::default() }
    }

    /// From now on a reset does nothing and never ends.
    pub(super) fn never_reset(&self) {
        self.never_resets.store(true, Ordering::Relaxed);
    }

    /// Takes that back.
    pub(super) fn reset_again(&self) {
        self.never_resets.store(false, Ordering::Relaxed);
    }

    /// What the driver has written since the last call.
    pub(super) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut lock(&self.writes))
    }

    /// A register as the model has it.
    pub(super) fn peek(&self, offset: u32) -> u32 {
        self.model.read(offset)
    }
}

impl Bar for CardBar {
    fn read(&self, offset: u32) -> u32 {
        let value = self.model.read(offset);
        let is_stuck = offset == CTRL && self.never_resets.load(Ordering::Relaxed);
        if is_stuck { value | RESET } else { value }
    }

    fn write(&self, offset: u32, value: u32) {
        lock(&self.writes).push((offset, value));
        let is_stuck = offset == CTRL && self.never_resets.load(Ordering::Relaxed);
        self.model.write(offset, if is_stuck { value & !RESET } else { value });
    }
}

//! The three vectors of a virtual function (datasheet 8.3.5.2).

use std::time::Duration;

use crate::interrupt::{Half, interval};
use crate::registers::{EITR_CNT_WDIS, IVAR_INT_ALLOC_VAL};

const VTEICR: u32 = 0x0100;
const VTEICS: u32 = 0x0104;
const VTEIMS: u32 = 0x0108;
const VTEIMC: u32 = 0x010c;
const VTEIAC: u32 = 0x0110;
const VTEIAM: u32 = 0x0114;
const VTIVAR: u32 = 0x0120;
const VTIVAR_END: u32 = 0x0130;
const VTIVAR_MISC: u32 = 0x0140;
const VTEITR: u32 = 0x0820;
const VTEITR_END: u32 = 0x082c;

/// One bit a vector.
const VECTORS: u32 = 0b111;

/// Whether an offset in the function's BAR is a register of this file.
pub(super) fn is_register(offset: u32) -> bool {
    let known = matches!(
        offset,
        VTEICR | VTEICS | VTEIMS | VTEIMC | VTEIAC | VTEIAM | VTIVAR_MISC | VTIVAR..VTIVAR_END | VTEITR..VTEITR_END
    );
    known && offset.is_multiple_of(4)
}

/// What waits to be told to the function's driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionInterrupts {
    causes: u32,
    unsent: u32,
    mask: u32,
    auto_clear: u32,
    auto_mask: u32,
    /// Vectors of two queue pairs a register, as IVAR has them.
    queues: [u32; 4],
    mailbox: u32,
    moderation: [u32; 3],
    ready: [Duration; 3],
}

impl FunctionInterrupts {
    /// Something happened on a queue of the function.
    pub(crate) fn queue(&mut self, queue: usize, half: Half) {
        let entry = self.queues.get(queue / 2).map_or(0, |register| register >> half.shift(queue));
        self.trigger(entry);
    }

    /// The physical function wrote to the mailbox, acknowledged, or was reset.
    pub(crate) fn mailbox(&mut self) {
        self.trigger(self.mailbox);
    }

    fn trigger(&mut self, entry: u32) {
        if entry & IVAR_INT_ALLOC_VAL != 0 {
            let vector = 1 << (entry & 0x3) & VECTORS;
            self.causes |= vector;
            self.unsent |= vector;
        }
    }

    pub(super) fn read(&mut self, offset: u32) -> u32 {
        match offset {
            VTEICR => {
                self.unsent = 0;
                std::mem::take(&mut self.causes)
            }
            VTEICS => self.causes,
            VTEIMS => self.mask,
            VTEIAC => self.auto_clear,
            VTEIAM => self.auto_mask,
            VTIVAR_MISC => self.mailbox,
            VTIVAR..VTIVAR_END => self.queues[(offset - VTIVAR) as usize / 4],
            VTEITR..VTEITR_END => self.moderation[(offset - VTEITR) as usize / 4],
            _ => 0,
        }
    }

    pub(super) fn write(&mut self, now: Duration, offset: u32, value: u32) {
        let vectors = value & VECTORS;
        match offset {
            VTEICR => {
                self.causes &= !vectors;
                self.unsent &= !vectors;
            }
            VTEICS => {
                self.causes |= vectors;
                self.unsent |= vectors;
            }
            VTEIMS => {
                self.mask |= vectors;
                self.unsent |= self.causes & vectors;
            }
            VTEIMC => self.mask &= !vectors,
            VTEIAC => self.auto_clear = vectors,
            VTEIAM => self.auto_mask = vectors,
            VTIVAR_MISC => self.mailbox = value,
            VTIVAR..VTIVAR_END => self.queues[(offset - VTIVAR) as usize / 4] = value,
            VTEITR..VTEITR_END => {
                let vector = (offset - VTEITR) as usize / 4;
                if value & EITR_CNT_WDIS == 0 {
                    self.ready[vector] = self.ready[vector].min(now + interval(value));
                }
                self.moderation[vector] = value & !EITR_CNT_WDIS;
            }
            _ => {}
        }
    }

    pub(super) fn take(&mut self, now: Duration) -> u32 {
        let ready =
            (0..3).filter(|vector| self.ready[*vector] <= now).fold(0, |set, vector| set | 1 << vector);
        let sent = self.unsent & self.mask & ready;
        for vector in (0..3).filter(|vector| sent >> vector & 1 == 1) {
            self.ready[vector] = now + interval(self.moderation[vector]);
        }
        self.unsent &= !sent;
        self.causes &= !(sent & self.auto_clear);
        self.mask &= !(sent & self.auto_mask);
        sent
    }
}

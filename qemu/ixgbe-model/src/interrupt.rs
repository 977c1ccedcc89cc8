//! Interrupts: causes, vectors, masks and moderation (datasheet 7.3).
//!
//! A cause of a queue is a vector (MSI-X) or a bit of EICR (otherwise) that IVAR names. Other causes are bits 16 to 31
//! of EICR, and share the vector that IVAR_MISC names.

use std::time::Duration;

use crate::core::Core;
use crate::registers::*;
use crate::virtual_function::{self, FunctionInterrupts};

const VECTORS: usize = 64;
/// Bits of EICR that are not queues.
const OTHER: u32 = !EICR_RTX_QUEUE;
/// The unit of EITR's interval at 10 Gb/s, in nanoseconds (8.2.3.5.12).
const EITR_UNIT_NS: u64 = 2048;

/// What waits to be told, and when it may be.
pub(crate) struct Interrupts {
    /// Queue causes, by vector.
    causes: u64,
    /// Those that no message has been sent for.
    unsent: u64,
    /// Other causes, as in EICR.
    others: u32,
    /// Those that no message has been sent for.
    others_unsent: u32,
    /// When each vector may be sent again.
    ready: [Duration; VECTORS],
    /// The interrupts of virtual functions, which are their own.
    pub(crate) functions: Vec<FunctionInterrupts>,
}

/// Which half of a queue pair.
#[derive(Clone, Copy)]
pub(crate) enum Half {
    Receive,
    Transmit,
}

impl Half {
    /// Where a queue's entry is in its register of IVAR: an entry is a byte, two queues a register, receive before
    /// transmit (8.2.3.5.16).
    pub(crate) fn shift(self, queue: usize) -> usize {
        queue % 2 * 16
            + match self {
                Half::Receive => 0,
                Half::Transmit => 8,
            }
    }
}

impl Interrupts {
    pub(crate) fn new() -> Interrupts {
        Interrupts {
            causes: 0,
            unsent: 0,
            others: 0,
            others_unsent: 0,
            ready: [Duration::ZERO; VECTORS],
            functions: Vec::new(),
        }
    }

    /// Everything begins anew; there are as many virtual functions as before.
    pub(crate) fn reset(&mut self) {
        let functions = self.functions.len();
        *self = Interrupts::new();
        self.functions.resize_with(functions, FunctionInterrupts::default);
    }

    /// A frame was received on the queue.
    pub(crate) fn received(&mut self, core: &Core, queue: usize) {
        self.queue(core, queue, Half::Receive);
    }

    /// A descriptor of the queue that asked for it is done.
    pub(crate) fn transmitted(&mut self, core: &Core, queue: usize) {
        self.queue(core, queue, Half::Transmit);
    }

    fn queue(&mut self, core: &Core, queue: usize, half: Half) {
        if let Some((function, queue)) = virtual_function::owner(core, queue) {
            self.functions[function].queue(queue, half);
            return;
        }
        let entry = core.values.at(Register::IVAR, queue / 2) >> half.shift(queue);
        if entry & IVAR_INT_ALLOC_VAL != 0 {
            self.trigger(1 << (entry & 0x3f));
        }
    }

    fn trigger(&mut self, vectors: u64) {
        self.causes |= vectors;
        self.unsent |= vectors;
    }

    /// A cause that is no queue.
    pub(crate) fn other(&mut self, causes: u32) {
        self.others |= causes;
        self.others_unsent |= causes;
    }

    pub(crate) fn read(&mut self, core: &Core, register: Register, index: usize) -> u32 {
        match register {
            Register::EICR => {
                let causes = self.eicr();
                self.clear(if self.keeps_queues(core) { OTHER } else { !0 });
                causes
            }
            // A read of EICS shows EICR without clearing it (specification update, erratum on EICR).
            Register::EICS => self.eicr(),
            Register::EIMS => core.values.get(Register::EIMS) & OTHER | low_mask(core),
            Register::EIMS_EX => core.values.at(Register::EIMS_EX, index),
            _ => 0,
        }
    }

    /// With GPIE.OCD a read of EICR leaves the queues alone (8.2.3.5.18).
    fn keeps_queues(&self, core: &Core) -> bool {
        core.values.has(Register::GPIE, GPIE_OCD)
    }

    fn eicr(&self) -> u32 {
        self.others | self.causes as u32 & EICR_RTX_QUEUE
    }

    /// Clears bits as in EICR.
    fn clear(&mut self, bits: u32) {
        let vectors = u64::from(bits & EICR_RTX_QUEUE);
        self.causes &= !vectors;
        self.unsent &= !vectors;
        self.others &= !bits;
        self.others_unsent &= !bits;
    }

    pub(crate) fn write(&mut self, core: &mut Core, register: Register, index: usize, value: u32) {
        match register {
            Register::EICR => self.clear(value),
            Register::EICS => {
                self.trigger(u64::from(value & EICR_RTX_QUEUE));
                self.other(value & OTHER);
            }
            Register::EICS_EX => self.trigger(wide(index, value)),
            Register::EIMS => {
                core.values.insert(Register::EIMS, value & OTHER);
                self.others_unsent |= self.others & value;
                self.unmask(core, 0, value & EICR_RTX_QUEUE);
            }
            Register::EIMC => {
                core.values.remove(Register::EIMS, value & OTHER);
                hide(core, 0, value & EICR_RTX_QUEUE);
            }
            Register::EIMS_EX => self.unmask(core, index, value),
            Register::EIMC_EX => hide(core, index, value),
            Register::EITR => {
                // The interval that runs is replaced, unless the write says not to (8.2.3.5.12).
                if value & EITR_CNT_WDIS == 0 && index < VECTORS {
                    self.ready[index] = self.ready[index].min(core.now + interval(value));
                }
                core.values.set_at(Register::EITR, index, value & !EITR_CNT_WDIS);
            }
            _ => core.values.set_at(register, index, value),
        }
    }

    /// A cause that waits behind its mask is told when the mask goes.
    fn unmask(&mut self, core: &mut Core, index: usize, bits: u32) {
        let old = core.values.at(Register::EIMS_EX, index);
        core.values.set_at(Register::EIMS_EX, index, old | bits);
        self.unsent |= self.causes & wide(index, bits);
    }

    /// The vectors whose messages are to be sent now.
    pub(crate) fn take(&mut self, core: &mut Core) -> u64 {
        if core.values.has(Register::GPIE, GPIE_MULTIPLE_MSIX) {
            self.take_msix(core)
        } else {
            self.take_single(core)
        }
    }

    fn take_msix(&mut self, core: &mut Core) -> u64 {
        let enabled = core.values.wide_pair(Register::EIMS_EX);
        let queues = self.unsent & enabled & self.ready_vectors(core.now);
        self.unsent &= !queues;
        // Vectors beyond EICR have no bit that software could clear: they always clear themselves (7.3.1.2).
        self.causes &= !(queues & (u64::from(core.values.get(Register::EIAC)) | !u64::from(EICR_RTX_QUEUE)));
        let others = self.take_others(core);
        self.after_sending(core, queues | others);
        queues | others
    }

    /// The other causes share a vector, except for the timer.
    fn take_others(&mut self, core: &mut Core) -> u64 {
        let told = self.others_unsent & core.values.get(Register::EIMS);
        let misc = core.values.get(Register::IVAR_MISC);
        let mut sent = 0;
        for (causes, entry) in [(told & !EICR_TCP_TIMER, misc >> 8), (told & EICR_TCP_TIMER, misc)] {
            let vector = 1u64 << (entry & 0x3f);
            if causes == 0 || entry & IVAR_INT_ALLOC_VAL == 0 || vector & self.ready_vectors(core.now) == 0 {
                continue;
            }
            self.others_unsent &= !causes;
            self.others &= !(causes & core.values.get(Register::EIAC));
            if core.values.has(Register::GPIE, GPIE_EIAME) {
                core.values.remove(Register::EIMS, causes & core.values.get(Register::EIAM));
            }
            sent |= vector;
        }
        sent
    }

    /// MSI and the interrupt line: one message for all bits of EICR.
    fn take_single(&mut self, core: &mut Core) -> u64 {
        let mask = core.values.get(Register::EIMS) & OTHER | low_mask(core);
        let told = (self.others_unsent | self.unsent as u32 & EICR_RTX_QUEUE) & mask;
        if told == 0 || self.ready_vectors(core.now) & 1 == 0 {
            return 0;
        }
        self.others_unsent &= !told;
        self.unsent &= !u64::from(told & EICR_RTX_QUEUE);
        let hidden = core.values.get(Register::EIAM);
        core.values.remove(Register::EIMS, told & hidden & OTHER);
        hide(core, 0, told & hidden & EICR_RTX_QUEUE);
        self.ready[0] = core.now + interval(core.values.at(Register::EITR, 0));
        1
    }

    fn ready_vectors(&self, now: Duration) -> u64 {
        (0..VECTORS).filter(|vector| self.ready[*vector] <= now).fold(0, |set, vector| set | 1 << vector)
    }

    /// Moderation and auto-mask of what was sent.
    fn after_sending(&mut self, core: &mut Core, sent: u64) {
        for vector in (0..VECTORS).filter(|vector| sent >> vector & 1 == 1) {
            self.ready[vector] = core.now + interval(core.values.at(Register::EITR, vector));
        }
        if core.values.has(Register::GPIE, GPIE_EIAME) {
            for index in 0..2 {
                let of_eiam = if index == 0 { core.values.get(Register::EIAM) & EICR_RTX_QUEUE } else { 0 };
                let hidden = core.values.at(Register::EIAM_EX, index) | of_eiam;
                hide(core, index, (sent >> (32 * index)) as u32 & hidden);
            }
        }
    }
}

/// A word of a pair of registers as part of the set of vectors.
fn wide(index: usize, bits: u32) -> u64 {
    u64::from(bits) << (32 * index)
}

fn low_mask(core: &Core) -> u32 {
    core.values.at(Register::EIMS_EX, 0) & EICR_RTX_QUEUE
}

fn hide(core: &mut Core, index: usize, bits: u32) {
    let old = core.values.at(Register::EIMS_EX, index);
    core.values.set_at(Register::EIMS_EX, index, old & !bits);
}

/// The least time between two messages: bits 11 to 3 of EITR.
pub(crate) fn interval(eitr: u32) -> Duration {
    Duration::from_nanos(u64::from(eitr >> 3 & 0x1ff) * EITR_UNIT_NS)
}

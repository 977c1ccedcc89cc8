//! The two engines that move frames between rings and the wire.

pub(crate) mod arrival;
pub(crate) mod flow_director;
pub(crate) mod offload;
pub(crate) mod rx;
pub(crate) mod steer;
#[cfg(test)]
mod tests;
pub(crate) mod tx;

use crate::core::Core;
use crate::descriptor;
use crate::host::{Memory, Unmapped};
use crate::registers::Register;
use crate::strict::Rule;

/// Queues of each kind.
pub(crate) const QUEUES: usize = 128;

/// The registers that make a ring.
struct Layout {
    base_low: Register,
    base_high: Register,
    len: Register,
    head: Register,
    tail: Register,
    control: Register,
}

/// A ring as its registers describe it.
#[derive(Clone, Copy, Debug)]
struct Ring {
    base: u64,
    /// Descriptors.
    size: u32,
    head: u32,
    tail: u32,
}

impl Ring {
    fn of(core: &Core, layout: &Layout, queue: usize) -> Ring {
        Ring {
            base: core.values.wide(layout.base_low, layout.base_high, queue) & !0x7f,
            size: core.values.at(layout.len, queue) / descriptor::LEN as u32,
            head: core.values.at(layout.head, queue),
            tail: core.values.at(layout.tail, queue),
        }
    }

    /// Descriptors that belong to the card: from the head up to, and without, the tail. None where either is outside.
    fn available(&self) -> u32 {
        if self.head >= self.size || self.tail >= self.size {
            0
        } else if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.tail + self.size - self.head
        }
    }

    fn address(&self, index: u32) -> u64 {
        self.base.wrapping_add(u64::from(index) * descriptor::LEN as u64)
    }

    fn read(&self, memory: &dyn Memory, index: u32) -> Result<descriptor::Raw, Unmapped> {
        let mut bytes = [0; descriptor::LEN];
        memory.read(self.address(index), &mut bytes)?;
        Ok(descriptor::Raw::from_bytes(&bytes))
    }

    fn write(&self, memory: &dyn Memory, index: u32, raw: descriptor::Raw) -> Result<(), Unmapped> {
        memory.write(self.address(index), &raw.to_bytes())
    }

    /// The descriptor after this one.
    fn after(&self, index: u32) -> u32 {
        if index + 1 >= self.size { 0 } else { index + 1 }
    }
}

/// A register of a ring is written: what both kinds of rings forbid.
fn check_ring_write(core: &mut Core, layout: &Layout, register: Register, queue: usize, value: u32) {
    let enabled = is_enabled(core, layout, queue);
    if register == layout.tail {
        let size = core.values.at(layout.len, queue) / descriptor::LEN as u32;
        if !enabled && value != 0 {
            core.report(Rule::TailBeforeEnable, register, queue, u64::from(value));
        } else if enabled && value >= size {
            core.report(Rule::TailOutsideRing, register, queue, u64::from(value));
        }
    } else if register == layout.control {
        let enables = !enabled && value & crate::registers::DCTL_ENABLE != 0;
        let ring = Ring::of(core, layout, queue);
        if enables && (ring.base == 0 || ring.size == 0 || !ring.size.is_multiple_of(8)) {
            core.report(Rule::EnabledUnprogrammed, register, queue, ring.base);
        } else if enables && ring.head >= ring.size {
            core.report(Rule::HeadOutsideRing, layout.head, queue, u64::from(ring.head));
        }
    } else if enabled && core.values.at(register, queue) != value {
        core.report(Rule::ChangedWhileEnabled, register, queue, u64::from(value));
    }
}

fn is_enabled(core: &Core, layout: &Layout, queue: usize) -> bool {
    core.values.at(layout.control, queue) & crate::registers::DCTL_ENABLE != 0
}

/// Reports enabled rings that lie in memory that is taken away.
fn check_withdrawn(core: &mut Core, layout: &Layout, range: &std::ops::Range<u64>) {
    for queue in 0..QUEUES {
        let ring = Ring::of(core, layout, queue);
        let end = ring.address(ring.size);
        if is_enabled(core, layout, queue) && ring.base < range.end && range.start < end {
            core.report(Rule::RingFreedWhileEnabled, layout.tail, queue, ring.base);
        }
    }
}

//! Virtual functions: what a guest sees of its pool (datasheet 7.10, 8.3).
//!
//! A virtual function has a BAR of its own, with its queues, three vectors and a mailbox. Everything else is up to
//! the driver of the physical function.

mod host;
mod interrupt;
mod mailbox;
#[cfg(test)]
mod tests;

pub use host::{AddressFrom, HostDriver, Link as LentLink, Notice, Policy, Presence, Trust};
pub(crate) use interrupt::FunctionInterrupts;
pub(crate) use mailbox::Mailbox;

use crate::card::Card;
use crate::core::Core;
use crate::options::{Model, PciIds};
use crate::registers::*;

/// Virtual functions of a card.
pub const VIRTUAL_FUNCTIONS: usize = 64;
/// Accesses that no virtual function has a register for are told apart by this much above their offset.
pub const VIRTUAL_FUNCTION_BASE: u32 = 0x8000_0000;

/// Offsets in the BAR of a virtual function (8.3.5).
const VFCTRL: u32 = 0x0000;
const VFSTATUS: u32 = 0x0008;
const VFLINKS: u32 = 0x0010;
const VFFRTIMER: u32 = 0x0048;
const VFMBMEM: u32 = 0x0200;
const VFMBMEM_END: u32 = 0x0240;
const VFMAILBOX: u32 = 0x02fc;
const VFPSRTYPE: u32 = 0x0300;
const VFMRQC: u32 = 0x3000;
const VFRSSRK: u32 = 0x3100;
const VFRSSRK_END: u32 = 0x3128;
const VFRXMEMWRAP: u32 = 0x3190;
const VFRETA: u32 = 0x3200;
const VFRETA_END: u32 = 0x3240;
const VFGPRC: u32 = 0x101c;
const VFGORC_LSB: u32 = 0x1020;
const VFGORC_MSB: u32 = 0x1024;
const VFMPRC: u32 = 0x1034;
const VFGPTC: u32 = 0x201c;
const VFGOTC_LSB: u32 = 0x2020;
const VFGOTC_MSB: u32 = 0x2024;

/// Frames and bytes of a pool; a read does not clear them (8.3.5.9).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolCounts {
    pub(crate) received: u32,
    pub(crate) received_bytes: u64,
    pub(crate) received_multicast: u32,
    pub(crate) sent: u32,
    pub(crate) sent_bytes: u64,
}

/// The hash that a function of an X550 spreads its flows by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolHash {
    pub(crate) control: u32,
    pub(crate) key: [u32; 10],
    pub(crate) table: [u32; 16],
}

impl PoolHash {
    /// The register at an offset in the function's BAR.
    fn word(&mut self, offset: u32) -> &mut u32 {
        match offset {
            VFMRQC => &mut self.control,
            VFRSSRK..VFRSSRK_END => &mut self.key[(offset - VFRSSRK) as usize / 4],
            _ => &mut self.table[(offset - VFRETA) as usize / 4],
        }
    }
}

/// Queues of a pool, by GCR_EXT.VT_MODE: 16, 32 or 64 pools (8.2.3.4.10).
pub(crate) fn queues_per_pool(core: &Core) -> Option<usize> {
    match core.values.get(Register::GCR_EXT) & 3 {
        1 => Some(8),
        2 => Some(4),
        3 => Some(2),
        _ => None,
    }
}

/// The virtual function that a queue belongs to, and its number there.
pub(crate) fn owner(core: &Core, queue: usize) -> Option<(usize, usize)> {
    let per_pool = queues_per_pool(core)?;
    let function = queue / per_pool;
    (function < core.virtual_functions).then_some((function, queue % per_pool))
}

/// What an offset in the BAR of a virtual function stands for.
enum Target {
    /// A register of a queue, or of the pool, that the physical function has as well.
    Shared(Register, usize),
    Interrupt(u32),
    Mailbox,
    MailboxMemory(usize),
    Control,
    Status,
    Links,
    Timer,
    Count(u32),
    Hash(u32),
    Nothing,
    Unknown,
}

fn target(core: &Core, function: usize, offset: u32) -> Target {
    match offset {
        VFCTRL => Target::Control,
        VFSTATUS => Target::Status,
        VFLINKS => Target::Links,
        VFFRTIMER => Target::Timer,
        VFMAILBOX => Target::Mailbox,
        VFMBMEM..VFMBMEM_END => Target::MailboxMemory((offset - VFMBMEM) as usize / 4),
        VFPSRTYPE => Target::Shared(Register::PSRTYPE, function),
        VFMRQC | VFRSSRK..VFRSSRK_END | VFRETA..VFRETA_END if core.options.model == Model::X550 => {
            Target::Hash(offset)
        }
        VFRXMEMWRAP => Target::Nothing,
        VFGPRC | VFGORC_LSB | VFGORC_MSB | VFMPRC | VFGPTC | VFGOTC_LSB | VFGOTC_MSB => Target::Count(offset),
        _ if interrupt::is_register(offset) => Target::Interrupt(offset),
        0x1000..0x1200 | 0x2000..0x2200 => queue_register(core, function, offset),
        _ => Target::Unknown,
    }
}

/// Rings are laid out as the physical function's are.
fn queue_register(core: &Core, function: usize, offset: u32) -> Target {
    let per_pool = queues_per_pool(core).unwrap_or(2);
    let index = (offset & 0xfff) as usize / 0x40;
    let register = match (offset & 0x2000, offset & 0x3f) {
        (0, 0x00) => Register::RDBAL,
        (0, 0x04) => Register::RDBAH,
        (0, 0x08) => Register::RDLEN,
        (0, 0x0c) => Register::DCA_RXCTRL,
        (0, 0x10) => Register::RDH,
        (0, 0x14) => Register::SRRCTL,
        (0, 0x18) => Register::RDT,
        (0, 0x28) => Register::RXDCTL,
        (0, 0x2c) => Register::RSCCTL,
        (0x2000, 0x00) => Register::TDBAL,
        (0x2000, 0x04) => Register::TDBAH,
        (0x2000, 0x08) => Register::TDLEN,
        (0x2000, 0x0c) => Register::DCA_TXCTRL,
        (0x2000, 0x10) => Register::TDH,
        (0x2000, 0x18) => Register::TDT,
        (0x2000, 0x28) => Register::TXDCTL,
        (0x2000, 0x38) => Register::TDWBAL,
        (0x2000, 0x3c) => Register::TDWBAH,
        _ => return Target::Unknown,
    };
    if index < per_pool { Target::Shared(register, function * per_pool + index) } else { Target::Unknown }
}

impl Card {
    /// Lets virtual functions 0 up to `count` appear, as SR-IOV's NumVFs does; they are reset.
    ///
    /// # Panics
    /// When a card does not have so many.
    pub fn set_virtual_functions(&mut self, count: usize) {
        assert!(count < VIRTUAL_FUNCTIONS, "a card has {VIRTUAL_FUNCTIONS} pools, and one is the host's");
        self.core.virtual_functions = count;
        self.mailboxes.resize_with(count, Mailbox::default);
        self.interrupts.functions.resize_with(count, FunctionInterrupts::default);
    }

    /// How a virtual function introduces itself.
    pub fn virtual_function_ids(&self) -> PciIds {
        PciIds { device: self.core.options.model.virtual_function_id(), ..self.ids() }
    }

    /// Reads a register of a virtual function: its byte offset in the function's BAR0.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn read_virtual(&mut self, function: usize, offset: u32) -> u32 {
        assert!(function < self.core.virtual_functions, "virtual function {function}");
        if self.core.faults.unplugged {
            return u32::MAX;
        }
        match target(&self.core, function, offset) {
            Target::Shared(register, index) => self.read(register.offset(index)),
            Target::Interrupt(offset) => self.interrupts.functions[function].read(offset),
            Target::Mailbox => self.mailboxes[function].read_virtual(),
            Target::MailboxMemory(word) => self.core.values.at(Register::PFMBMEM, function * 16 + word),
            Target::Status => self.core.values.get(Register::STATUS),
            Target::Links => self.core.values.get(Register::LINKS),
            Target::Timer => self.core.now.as_millis() as u32,
            Target::Count(offset) => count(&self.core.pool_counts[function], offset),
            Target::Hash(offset) => *self.core.pool_hashes[function].word(offset),
            Target::Control | Target::Nothing => 0,
            Target::Unknown => {
                self.core.strict.unknown_read(VIRTUAL_FUNCTION_BASE | offset);
                0
            }
        }
    }

    /// Writes a register of a virtual function: its byte offset in the function's BAR0.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn write_virtual(&mut self, function: usize, offset: u32, value: u32) {
        assert!(function < self.core.virtual_functions, "virtual function {function}");
        match target(&self.core, function, offset) {
            Target::Shared(register, index) => self.write(register.offset(index), value),
            Target::Interrupt(offset) => {
                let now = self.core.now;
                self.interrupts.functions[function].write(now, offset, value);
            }
            Target::Mailbox => {
                let told = self.mailboxes[function].write_virtual(&mut self.core, function, value);
                self.interrupts.other(told);
            }
            Target::MailboxMemory(word) => {
                self.core.values.set_at(Register::PFMBMEM, function * 16 + word, value);
            }
            Target::Hash(offset) => *self.core.pool_hashes[function].word(offset) = value,
            Target::Control if value & CTRL_RST != 0 => self.reset_virtual(function),
            Target::Control
            | Target::Status
            | Target::Links
            | Target::Timer
            | Target::Count(_)
            | Target::Nothing => {}
            Target::Unknown => self.core.strict.unknown_write(VIRTUAL_FUNCTION_BASE | offset, value),
        }
    }

    /// The MSI-X messages of a virtual function to be sent since the last call, of its three vectors.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn take_virtual_interrupts(&mut self, function: usize) -> u64 {
        let now = self.core.now;
        u64::from(self.interrupts.functions[function].take(now))
    }

    /// A function-level reset: the queues stop, and the physical function is told (7.10.2.4).
    fn reset_virtual(&mut self, function: usize) {
        if let Some(per_pool) = queues_per_pool(&self.core) {
            for queue in function * per_pool..(function + 1) * per_pool {
                for register in [Register::RXDCTL, Register::TXDCTL] {
                    self.write(register.offset(queue), 0);
                }
            }
        }
        self.core.pool_hashes[function] = PoolHash::default();
        self.interrupts.functions[function] = FunctionInterrupts::default();
        self.mailboxes[function].reset_virtual(&mut self.core, function);
        self.interrupts.other(EICR_MAILBOX);
    }
}

fn count(counts: &PoolCounts, offset: u32) -> u32 {
    match offset {
        VFGPRC => counts.received,
        VFGORC_LSB => counts.received_bytes as u32,
        VFGORC_MSB => (counts.received_bytes >> 32) as u32 & 0xf,
        VFMPRC => counts.received_multicast,
        VFGPTC => counts.sent,
        VFGOTC_LSB => counts.sent_bytes as u32,
        _ => (counts.sent_bytes >> 32) as u32 & 0xf,
    }
}

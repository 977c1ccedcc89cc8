//! The registers of a virtual function that the driver uses (8.3.5). Those of its receive rings are where a physical
//! function has its own, so both are written by the same rows.

use crate::ixgbe::access::{ClearOnRead, FlagsAndCommands, ReadOnly, ReadWrite, Rows, WriteOnly};
use crate::ixgbe::registers::TxRings;

/// Control.
pub(super) const VFCTRL: WriteOnly = WriteOnly::at("VFCTRL", 0x0000);
pub(super) mod vfctrl {
    /// Resets the function's queues and interrupts, and tells the physical function.
    pub(crate) const RESET: u32 = 1 << 26;
}
/// Status.
pub(super) const VFSTATUS: ReadOnly = ReadOnly::at("VFSTATUS", 0x0008);
/// State of the link, as LINKS has it.
pub(super) const VFLINKS: ReadOnly = ReadOnly::at("VFLINKS", 0x0010);

// ---- The mailbox (7.10.2.9) ----

/// The message, of either side.
pub(super) const VFMBMEM: Rows<ReadWrite> = Rows::at("VFMBMEM", 0x0200, 4, 16);
/// Who has the message, and what has happened.
pub(super) const VFMAILBOX: FlagsAndCommands = FlagsAndCommands::at("VFMAILBOX", 0x02fc);
pub(super) mod vfmailbox {
    /// Command: a request has been written. Lets go of the memory.
    pub(crate) const REQUEST: u32 = 1 << 0;
    /// Command: a message has been read. Lets go of the memory.
    pub(crate) const ACKNOWLEDGE: u32 = 1 << 1;
    /// The memory is ours: a wish that comes true unless it is the physical function's.
    pub(crate) const OURS: u32 = 1 << 2;
    /// The physical function has written a message; a read clears this.
    pub(crate) const MESSAGE: u32 = 1 << 4;
    /// It has read our request; a read clears this.
    pub(crate) const ACKNOWLEDGED: u32 = 1 << 5;
    /// It is in reset.
    pub(crate) const HOST_IN_RESET: u32 = 1 << 6;
    /// It has come out of reset; a read clears this.
    pub(crate) const HOST_WAS_RESET: u32 = 1 << 7;
    /// All that a read clears.
    pub(crate) const CLEARED: u32 = MESSAGE | ACKNOWLEDGED | HOST_WAS_RESET;
}

// ---- Interrupts: a bit for each of three entries of the MSI-X table ----

pub(super) const VECTORS: usize = 3;
/// All of them.
pub(super) const EVERY_VECTOR: u32 = (1 << VECTORS) - 1;
/// Causes that have come up; a read clears all.
pub(super) const VTEICR: ClearOnRead = ClearOnRead::at("VTEICR", 0x0100);
/// Raise, unmask, mask.
pub(super) const VTEICS: WriteOnly = WriteOnly::at("VTEICS", 0x0104);
pub(super) const VTEIMS: WriteOnly = WriteOnly::at("VTEIMS", 0x0108);
pub(super) const VTEIMC: WriteOnly = WriteOnly::at("VTEIMC", 0x010c);
/// Those whose causes are cleared when they are sent, and those that mask themselves then.
pub(super) const VTEIAC: WriteOnly = WriteOnly::at("VTEIAC", 0x0110);
pub(super) const VTEIAM: WriteOnly = WriteOnly::at("VTEIAM", 0x0114);
/// Which entry a queue's cause goes to, as IVAR has it.
pub(super) const VTIVAR: Rows<ReadWrite> = Rows::at("VTIVAR", 0x0120, 4, 4);

// ---- Rings ----

/// Queues that a function can have.
pub(super) const QUEUES: usize = 8;
pub(super) const TX_RINGS: TxRings = TxRings::at(0x2000, QUEUES);
/// How headers are told from payloads, which nobody asks for, and how many bits of the hash choose a queue.
pub(super) const VFPSRTYPE: WriteOnly = WriteOnly::at("VFPSRTYPE", 0x0300);
pub(super) mod vfpsrtype {
    /// As many bits of an entry of the RSS table count as tell `queues`, a power of two, apart.
    pub(crate) const fn queues(queues: usize) -> u32 {
        queues.ilog2() << 29
    }
}

// ---- RSS, of the X550 alone: other functions share the physical one's (X550 datasheet, PFVFMRQC and what follows) ----

pub(super) const VFMRQC: WriteOnly = WriteOnly::at("VFMRQC", 0x3000);
/// The key: four bytes in a register.
pub(super) const VFRSSRK: Rows<WriteOnly> = Rows::at("VFRSSRK", 0x3100, 4, 10);
/// The table: four entries in a register.
pub(super) const VFRETA: Rows<WriteOnly> = Rows::at("VFRETA", 0x3200, 4, 16);

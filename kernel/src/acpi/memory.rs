//! The firmware's tables in physical memory.
#![allow(unsafe_code)] // Turns mapped physical memory into slices.

use core::slice;

use super::table::FirmwareMemory;
use crate::paging;

/// All physical memory that can be mapped for reading.
pub(super) struct PhysicalMemory;

impl FirmwareMemory for PhysicalMemory {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let mapped = paging::map_firmware(address, length as u64).ok()?;
        // SAFETY: The mapping covers `length` bytes and lasts for ever. Firmware is done with its tables, and the frame
        // allocator does not own them; where the address is wrong, memory that nobody answers for reads as ones.
        Some(unsafe { slice::from_raw_parts(mapped.as_ptr(), length) })
    }
}

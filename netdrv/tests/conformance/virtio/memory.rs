//! The device's view of memory: the test's DMA allocations at their own addresses, and who owns which part of
//! them.

#![allow(unsafe_code)] // Maps allocations of the test platform for vm-memory.

use std::collections::BTreeMap;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::hal;

/// `PROT_READ | PROT_WRITE` and `MAP_PRIVATE | MAP_ANONYMOUS`, as vm-memory wants to hear of a region that it
/// did not map.
const PROTECTION: i32 = 3;
const FLAGS: i32 = 0x22;

/// Memory that the device may touch: what the driver allocated and has not freed. Everything else is an
/// error.
pub(super) struct DeviceMemory {
    map: GuestMemoryMmap,
    changes: u64,
}

impl DeviceMemory {
    pub(super) fn new() -> DeviceMemory {
        DeviceMemory { map: map(), changes: hal::allocation_changes() }
    }

    /// The memory as it is now.
    pub(super) fn map(&mut self) -> &GuestMemoryMmap {
        if self.changes != hal::allocation_changes() {
            *self = DeviceMemory::new();
        }
        &self.map
    }
}

fn map() -> GuestMemoryMmap {
    let regions = hal::allocations().into_iter().map(|(base, len)| {
        // SAFETY: the allocation is live, page-aligned and `len` long; it is looked up anew whenever one is
        // freed.
        let region = unsafe { MmapRegion::build_raw(base as *mut u8, len, PROTECTION, FLAGS) };
        GuestRegionMmap::new(region.expect("a region"), GuestAddress(base)).expect("an address")
    });
    GuestMemoryMmap::from_regions(regions.collect()).expect("allocations do not overlap")
}

/// Reads `len` bytes that the driver has lent to the device.
pub(super) fn read(memory: &GuestMemoryMmap, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read_slice(&mut bytes, GuestAddress(address)).expect("a buffer in DMA memory");
    bytes
}

/// Writes bytes that the driver has lent to the device.
pub(super) fn write(memory: &GuestMemoryMmap, address: u64, bytes: &[u8]) {
    memory.write_slice(bytes, GuestAddress(address)).expect("a buffer in DMA memory");
}

/// The parts of memory that the device owns. No byte may be lent twice.
#[derive(Default)]
pub(super) struct Loans(BTreeMap<u64, u64>);

impl Loans {
    pub(super) fn take(&mut self, address: u64, len: usize) {
        let end = address + len as u64;
        if let Some((start, other)) = self.0.range(..end).next_back() {
            assert!(*other <= address, "{address:#x}..{end:#x} is lent, and so is {start:#x}..{other:#x}");
        }
        self.0.insert(address, end);
    }

    pub(super) fn give_back(&mut self, address: u64) {
        assert!(self.0.remove(&address).is_some(), "{address:#x} was not lent");
    }
}

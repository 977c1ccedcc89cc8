//! The frontend's memory in this process.

use std::fs::File;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result};
use vm_memory::MmapRegion;

/// What the frontend shares: buffers are named by its guest's addresses, rings by its own (vhost-user, "Vring address
/// description").
#[derive(Default)]
pub(super) struct Table(Vec<Region>);

struct Region {
    guest: u64,
    frontend: u64,
    size: u64,
    mapped: MmapRegion,
}

impl Table {
    /// Maps all of these.
    pub(super) fn map(regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<Table> {
        let map = |(region, file): (&VhostUserMemoryRegion, File)| {
            let mapped = region.mmap_region::<()>(file)?;
            let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, .. } = *region;
            Ok(Region { guest: guest_phys_addr, frontend: user_addr, size: memory_size, mapped })
        };
        regions.iter().zip(files).map(map).collect::<Result<_>>().map(Table)
    }

    /// Where the `len` bytes are that the guest has at `address`.
    #[inline(always)]
    pub(super) fn buffer(&self, address: u64, len: usize) -> Option<*mut u8> {
        self.0.iter().find_map(|region| region.at(address.wrapping_sub(region.guest), len))
    }

    /// Where the `len` bytes are that the frontend itself has at `address`.
    pub(super) fn ring(&self, address: u64, len: usize) -> Result<u64> {
        let found = self.0.iter().find_map(|region| region.at(address.wrapping_sub(region.frontend), len));
        found.map(|place| place as u64).ok_or(Error::InvalidParam)
    }
}

impl Region {
    #[inline(always)]
    fn at(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let fits = offset < self.size && len as u64 <= self.size - offset;
        fits.then(|| self.mapped.as_ptr().wrapping_add(offset as usize))
    }
}

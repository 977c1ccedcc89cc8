//! The guest's memory as the frontend shares it.

use std::fs::File;
use std::io;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result};
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// Guest memory, and the addresses at which the frontend itself sees it: rings are named by those
/// (vhost-user, "Vring address description"), buffers by the guest's.
#[derive(Default)]
pub(super) struct Memory {
    guest: GuestMemoryMmap,
    mappings: Vec<Mapping>,
}

/// One region that the frontend shares.
struct Mapping {
    /// Where it begins in the frontend's address space.
    frontend: u64,
    /// Where it begins in the guest's.
    guest: u64,
    size: u64,
}

impl Memory {
    /// The memory to reach buffers and rings in.
    pub(super) fn guest(&self) -> &GuestMemoryMmap {
        &self.guest
    }

    /// Takes this table instead of all that was shared before; keeps the old one if it is not sound.
    pub(super) fn replace(&mut self, regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<()> {
        let mut table = Self::default();
        for (region, file) in regions.iter().zip(files) {
            table.add(region, file)?;
        }
        *self = table;
        Ok(())
    }

    /// Takes one more region. QEMU before 8 adds and removes each once for every queue pair: the last word counts.
    pub(super) fn add(&mut self, region: &VhostUserMemoryRegion, file: File) -> Result<()> {
        check_length(region, &file)?;
        self.remove(region);
        let mapped = GuestRegionMmap::new(region.mmap_region(file)?, GuestAddress(region.guest_phys_addr));
        let mapped = mapped.ok_or(Error::InvalidParam)?;
        self.guest = self.guest.insert_region(mapped.into()).map_err(refused)?;
        self.mappings.push(Mapping {
            frontend: region.user_addr,
            guest: region.guest_phys_addr,
            size: region.memory_size,
        });
        Ok(())
    }

    /// Lets one region go, if it is there.
    pub(super) fn remove(&mut self, region: &VhostUserMemoryRegion) {
        let base = GuestAddress(region.guest_phys_addr);
        if let Ok((rest, _)) = self.guest.remove_region(base, region.memory_size) {
            self.guest = rest;
            self.mappings.retain(|mapping| mapping.guest != region.guest_phys_addr);
        }
    }

    /// The guest's address of what the frontend has at `address`.
    pub(super) fn translate(&self, address: u64) -> Result<GuestAddress> {
        self.mappings
            .iter()
            .find_map(|mapping| {
                let offset = address.checked_sub(mapping.frontend)?;
                (offset < mapping.size).then_some(GuestAddress(mapping.guest + offset))
            })
            .ok_or(Error::InvalidParam)
    }
}

/// Whoever touches a mapping behind the end of its file is killed.
fn check_length(region: &VhostUserMemoryRegion, file: &File) -> Result<()> {
    let file = file.metadata().map_err(Error::ReqHandlerError)?;
    let end = region.mmap_offset.checked_add(region.memory_size).ok_or(Error::InvalidParam)?;
    if file.is_file() && file.len() < end { Err(Error::InvalidParam) } else { Ok(()) }
}

/// The region does not fit to the others.
fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 0x10000;

    fn region(guest: u64, frontend: u64) -> (VhostUserMemoryRegion, File) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        (VhostUserMemoryRegion::new(guest, SIZE, frontend, 0), file)
    }

    fn table(regions: &[(u64, u64)]) -> Memory {
        let (regions, files): (Vec<_>, Vec<_>) = regions.iter().map(|&(g, f)| region(g, f)).unzip();
        let mut memory = Memory::default();
        memory.replace(&regions, files).unwrap();
        memory
    }

    #[test]
    fn the_frontends_addresses_become_the_guests() {
        // Not in order: a frontend may list them as it likes.
        let memory = table(&[(0x10_0000, 0x7000_0000), (0, 0x5000_0000)]);
        assert_eq!(memory.translate(0x7000_0123).unwrap(), GuestAddress(0x10_0123));
        assert_eq!(memory.translate(0x5000_ffff).unwrap(), GuestAddress(0xffff));
        for outside in [0x5001_0000, 0x4fff_ffff, 0, u64::MAX] {
            assert!(memory.translate(outside).is_err(), "{outside:#x}");
        }
    }

    #[test]
    fn regions_come_and_go() {
        let mut memory = table(&[(0, 0x5000_0000)]);
        let (more, file) = region(0x10_0000, 0x7000_0000);
        memory.add(&more, file).unwrap();
        assert!(memory.translate(0x7000_0000).is_ok());
        let (again, file) = region(0x10_0000, 0x7800_0000);
        memory.add(&again, file).unwrap();
        assert!(memory.translate(0x7000_0000).is_err() && memory.translate(0x7800_0000).is_ok());
        for _ in 0..2 {
            memory.remove(&more);
            assert!(memory.translate(0x7800_0000).is_err());
            assert!(memory.translate(0x5000_0000).is_ok());
        }
    }

    #[test]
    fn a_table_that_is_not_sound_changes_nothing() {
        let mut memory = table(&[(0, 0x5000_0000)]);
        let (regions, files): (Vec<_>, Vec<_>) =
            [region(0x1000, 0x6000_0000), region(0x2000, 0x7000_0000)].into_iter().unzip();
        assert!(memory.replace(&regions, files).is_err(), "the regions overlap");
        let short = tempfile::tempfile().unwrap();
        assert!(memory.add(&region(0x10_0000, 0x6000_0000).0, short).is_err(), "the file is too short");
        assert!(memory.translate(0x5000_0000).is_ok());
        assert!(memory.translate(0x6000_0000).is_err());
    }
}

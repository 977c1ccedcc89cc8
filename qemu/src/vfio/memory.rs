//! The guest's memory as QEMU maps it for the card.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use ixgbe_model::{Memory, Unmapped};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionMmap, MmapRegion, Permissions,
};

/// The map of the card's addresses. Firmware moves memory about while it starts (shadowing of ROMs), so maps come and go
/// in bursts.
#[derive(Default)]
pub(super) struct DmaMap {
    guest: GuestMemoryMmap,
}

impl DmaMap {
    /// Maps `size` bytes of a file at the card's `address`.
    pub(super) fn map(&mut self, address: u64, size: u64, file: File, offset: u64) -> io::Result<()> {
        check_length(&file, offset, size)?;
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let region = MmapRegion::from_file(FileOffset::new(file, offset), size).map_err(io::Error::other)?;
        let region = GuestRegionMmap::new(region, GuestAddress(address))
            .ok_or_else(|| io::Error::other("the map ends behind the last address"))?;
        self.guest = self.guest.insert_region(region.into()).map_err(io::Error::other)?;
        Ok(())
    }

    /// Takes away what lies wholly within the `size` bytes at `address`.
    pub(super) fn unmap(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        let regions: Vec<_> = self.guest.iter().map(|region| (region.start_addr().0, region.len())).collect();
        for (start, length) in regions {
            if start >= address
                && start + length <= end
                && let Ok((rest, _)) = self.guest.remove_region(GuestAddress(start), length)
            {
                self.guest = rest;
            }
        }
    }
}

/// Whoever touches a mapping behind the end of its file is killed.
fn check_length(file: &File, offset: u64, size: u64) -> io::Result<()> {
    let end = offset.checked_add(size).ok_or_else(|| io::Error::other("the map has no end"))?;
    let file = file.metadata()?;
    if file.is_file() && file.len() < end {
        return Err(io::Error::other("the map ends behind its file"));
    }
    Ok(())
}

impl Memory for DmaMap {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let len = into.len();
        self.guest.read_slice(into, GuestAddress(address)).map_err(|_| Unmapped { address, len })
    }

    /// The last eight bytes are written last and as a whole, where they lie as a number does: those of a descriptor say
    /// that the rest is done.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let unmapped = Unmapped { address, len: from.len() };
        if !GuestMemory::check_range(&self.guest, GuestAddress(address), from.len(), Permissions::Write) {
            return Err(unmapped);
        }
        let written = match from.split_last_chunk() {
            Some((first, &last)) if (address + first.len() as u64).is_multiple_of(8) => {
                let number = u64::from_ne_bytes(last);
                let last = GuestAddress(address + first.len() as u64);
                self.guest
                    .write_slice(first, GuestAddress(address))
                    .and_then(|()| self.guest.store(number, last, Ordering::Release))
            }
            _ => self.guest.write_slice(from, GuestAddress(address)),
        };
        written.map_err(|_| unmapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x1000;

    fn file(pages: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(pages * PAGE).unwrap();
        file
    }

    fn reads(map: &DmaMap, address: u64) -> bool {
        map.read(address, &mut [0; 4]).is_ok()
    }

    #[test]
    fn bytes_are_where_they_were_mapped() {
        let mut map = DmaMap::default();
        let shared = file(4);
        map.map(0x10_0000, 2 * PAGE, shared.try_clone().unwrap(), PAGE).unwrap();
        map.map(0, PAGE, shared, PAGE).unwrap();
        map.write(0x10_0ffe, b"abcd").unwrap();
        let mut bytes = [0; 4];
        map.read(0x10_0ffe, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcd");
        let mut alias = [0; 2];
        map.read(0xffe, &mut alias).unwrap();
        assert_eq!(&alias, b"ab");
    }

    #[test]
    fn what_is_mapped_in_part_is_not_touched() {
        let mut map = DmaMap::default();
        map.map(0, PAGE, file(1), 0).unwrap();
        assert_eq!(map.write(PAGE - 8, &[1; 16]), Err(Unmapped { address: PAGE - 8, len: 16 }));
        assert_eq!(map.read(PAGE - 2, &mut [0; 4]), Err(Unmapped { address: PAGE - 2, len: 4 }));
        assert!(map.write(u64::MAX - 1, b"abcd").is_err());
        let mut bytes = [0xff; 8];
        map.read(PAGE - 8, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8]);
    }

    #[test]
    fn every_byte_is_written_however_it_lies() {
        let mut map = DmaMap::default();
        map.map(0, PAGE, file(1), 0).unwrap();
        let bytes: Vec<u8> = (1..=40).collect();
        for length in 0..bytes.len() {
            for start in 0..16 {
                map.write(start, &bytes[..length]).unwrap();
                let mut back = vec![0; length];
                map.read(start, &mut back).unwrap();
                assert_eq!(back, bytes[..length], "{length} bytes at {start}");
            }
        }
    }

    #[test]
    fn one_unmap_takes_all_that_lies_within() {
        let mut map = DmaMap::default();
        for page in 0..4 {
            map.map(page * PAGE, PAGE, file(1), 0).unwrap();
        }
        map.unmap(PAGE, 2 * PAGE);
        assert_eq!([0, 1, 2, 3].map(|page| reads(&map, page * PAGE)), [true, false, false, true]);
        map.unmap(0, u64::MAX);
        assert!(!reads(&map, 0) && !reads(&map, 3 * PAGE));
    }

    #[test]
    fn a_map_that_is_not_sound_changes_nothing() {
        let mut map = DmaMap::default();
        map.map(0, 2 * PAGE, file(2), 0).unwrap();
        assert!(map.map(PAGE, PAGE, file(1), 0).is_err(), "it lies over another");
        assert!(map.map(0x10_0000, 2 * PAGE, file(1), 0).is_err(), "its file is too short");
        assert!(map.map(0x10_0000, PAGE, file(1), u64::MAX).is_err());
        assert!(map.map(u64::MAX, PAGE, file(1), 0).is_err());
        assert!(reads(&map, 0) && !reads(&map, 0x10_0000));
    }
}

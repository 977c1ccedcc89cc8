#![allow(unsafe_code)] // Follows the physical addresses in page tables.
//! Four-level page tables (Intel SDM volume 3, section 4.5) that map one to one, in pages of 2 MiB where they
//! fit.

use core::fmt;
use core::sync::atomic::{Ordering, compiler_fence};

use x86_64::PhysAddr;
use x86_64::structures::paging::page_table::PageTableEntry;
use x86_64::structures::paging::{PageTable, PageTableFlags as Flags};

use crate::memory::{FrameError, PAGE_SIZE, PageRange};

const ENTRIES: u64 = 512;
const LARGE_PAGE: u64 = ENTRIES * PAGE_SIZE;

/// What may be done with a page. No value allows both writing and executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Constants and firmware tables.
    ReadOnly,
    /// RAM.
    ReadWrite,
    /// Code.
    ReadExecute,
    /// Registers of devices: read-write and uncached.
    Device,
}

impl Access {
    fn flags(self) -> Flags {
        match self {
            Self::ReadOnly => Flags::PRESENT | Flags::NO_EXECUTE,
            Self::ReadWrite => Flags::PRESENT | Flags::WRITABLE | Flags::NO_EXECUTE,
            Self::ReadExecute => Flags::PRESENT,
            // PAT entry 3, which is uncacheable after reset (SDM volume 3, section 12.12.4).
            Self::Device => {
                Flags::PRESENT | Flags::WRITABLE | Flags::NO_EXECUTE | Flags::NO_CACHE | Flags::WRITE_THROUGH
            }
        }
    }

    /// What an entry allows, whatever else the processor noted in it.
    fn of(entry: &PageTableEntry) -> Option<Self> {
        let of_interest = Self::Device.flags();
        let flags = entry.flags() & of_interest;
        [Self::ReadOnly, Self::ReadWrite, Self::ReadExecute, Self::Device]
            .into_iter()
            .find(|access| access.flags() == flags)
    }
}

/// Why a mapping was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// No page for a page table.
    OutOfMemory,
    /// The range is empty or reaches past the processor's physical address width.
    OutOfRange,
    /// The range is mapped already, with another access.
    Conflict,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory for page tables",
            Self::OutOfRange => "not a physical address range of this processor",
            Self::Conflict => "already mapped for another use",
        })
    }
}

impl From<FrameError> for MapError {
    fn from(_: FrameError) -> Self {
        Self::OutOfMemory
    }
}

/// Gives pages for page tables.
///
/// # Safety
/// The address is that of a page that nobody else uses, and it is a valid pointer as well.
pub(super) unsafe trait TableSource {
    fn page(&self) -> Result<u64, FrameError>;
}

/// A tree of page tables.
pub(super) struct Tables<S> {
    root: &'static mut PageTable,
    source: S,
}

impl<S: TableSource> Tables<S> {
    /// An empty tree: nothing is mapped.
    pub(super) fn new(root: &'static mut PageTable, source: S) -> Self {
        root.zero();
        Self { root, source }
    }

    /// Physical address of the top-level table.
    pub(super) fn root(&self) -> u64 {
        &raw const *self.root as u64
    }

    /// Maps `range` one to one, or unmaps it. What was mapped there before is replaced.
    pub(super) fn set(&mut self, range: PageRange, access: Option<Access>) -> Result<(), MapError> {
        let mut at = range.start;
        while at < range.end {
            let pointers = below(&mut self.root[index(at, 4)], &self.source, 0)?;
            let directory = below(&mut pointers[index(at, 3)], &self.source, 0)?;
            let entry = &mut directory[index(at, 2)];
            let whole = at.is_multiple_of(LARGE_PAGE) && range.end - at >= LARGE_PAGE;
            if whole && (entry.is_unused() || entry.flags().contains(Flags::HUGE_PAGE)) {
                write(entry, at, access, Flags::HUGE_PAGE);
                at += LARGE_PAGE;
            } else {
                let table = below(entry, &self.source, at - at % LARGE_PAGE)?;
                write(&mut table[index(at, 1)], at, access, Flags::empty());
                at += PAGE_SIZE;
            }
        }
        Ok(())
    }

    /// Maps those pages of `range` that are not mapped, or none when one is mapped for another use. Pages of
    /// RAM and code serve readers of firmware tables as they are.
    pub(super) fn add(&mut self, range: PageRange, access: Access) -> Result<(), MapError> {
        let serves =
            |present: Access| present == access || (access == Access::ReadOnly && present != Access::Device);
        let mut rest = range;
        while rest.start < rest.end {
            let (part, present) = self.first_part(rest);
            if present.is_some_and(|present| !serves(present)) {
                return Err(MapError::Conflict);
            }
            rest.start = part.end;
        }
        let mut rest = range;
        while rest.start < rest.end {
            let (part, present) = self.first_part(rest);
            if present.is_none() {
                self.set(part, Some(access))?;
            }
            rest.start = part.end;
        }
        Ok(())
    }

    /// The part of `range` from its start on that one entry (or the lack of one) stands for.
    fn first_part(&self, range: PageRange) -> (PageRange, Option<Access>) {
        // SAFETY: the tree is ours, and `&self` keeps it as it is.
        let found = unsafe { lookup(self.root(), range.start) };
        let end = range.end.min(range.start - range.start % found.size + found.size);
        (PageRange { start: range.start, end }, found.access())
    }
}

/// Index into the table of `level` (4 is the root) for `address`.
fn index(address: u64, level: u32) -> usize {
    ((address >> (12 + 9 * (level - 1))) % ENTRIES) as usize
}

fn write(entry: &mut PageTableEntry, address: u64, access: Option<Access>, size: Flags) {
    match access {
        Some(access) => entry.set_addr(PhysAddr::new(address), access.flags() | size),
        None => entry.set_unused(),
    }
}

/// The table that `entry` points to. Where there is none it is made; where there is a large page, which
/// starts at `address`, it is split into small ones with the same access.
fn below<'t>(
    entry: &'t mut PageTableEntry,
    source: &impl TableSource,
    address: u64,
) -> Result<&'t mut PageTable, MapError> {
    let large = entry.flags().contains(Flags::HUGE_PAGE);
    if large || entry.is_unused() {
        let page = source.page()?;
        // SAFETY: `TableSource` gives a valid pointer to a page of our own.
        let table = unsafe { &mut *(page as *mut PageTable) };
        table.zero();
        if large {
            let flags = entry.flags() - Flags::HUGE_PAGE;
            for (small, address) in table.iter_mut().zip((address..).step_by(PAGE_SIZE as usize)) {
                small.set_addr(PhysAddr::new(address), flags);
            }
        }
        // Other cores may walk the tree meanwhile: the table must be whole before they can reach it.
        compiler_fence(Ordering::Release);
        entry.set_addr(PhysAddr::new(page), Flags::PRESENT | Flags::WRITABLE);
    }
    // SAFETY: an entry that is neither unused nor large points to a table that `below` made, at a valid
    // pointer, and `entry` is borrowed for as long as the table is.
    Ok(unsafe { &mut *(entry.addr().as_u64() as *mut PageTable) })
}

/// What the tree says of an address.
pub(super) struct Found {
    /// The entry that maps it, if any.
    entry: Option<PageTableEntry>,
    /// How many bytes around it (a power of two, aligned) that entry, or the hole in its place, stands for.
    size: u64,
}

impl Found {
    /// How the address is mapped.
    pub(super) fn access(&self) -> Option<Access> {
        self.entry.as_ref().and_then(Access::of)
    }
}

/// Walks the tree at `root` down to `address`. It takes no lock, for reports after a crash.
///
/// # Safety
/// `root` is the address of a tree whose tables are all valid pointers, and nobody frees them.
pub(super) unsafe fn lookup(root: u64, address: u64) -> Found {
    let mut table = root as *const PageTable;
    let mut level = 4;
    loop {
        let size = PAGE_SIZE << (9 * (level - 1));
        // SAFETY: as the caller promises; tables are only ever added.
        let entry = unsafe { &(&*table)[index(address, level)] };
        // Only the lower half is mapped; an address outside of it must not wrap into it.
        if !entry.flags().contains(Flags::PRESENT) || address >= 1 << 47 {
            return Found { entry: None, size };
        }
        if level == 1 || entry.flags().contains(Flags::HUGE_PAGE) {
            return Found { entry: Some(entry.clone()), size };
        }
        table = entry.addr().as_u64() as *const PageTable;
        level -= 1;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Tables from the heap, for ever.
    pub(in crate::paging) struct Leaked;

    // SAFETY: each call leaks a table of its own.
    unsafe impl TableSource for Leaked {
        fn page(&self) -> Result<u64, FrameError> {
            Ok(&raw const *Box::leak(Box::new(PageTable::new())) as u64)
        }
    }

    pub(in crate::paging) fn empty() -> Tables<Leaked> {
        Tables::new(Box::leak(Box::new(PageTable::new())), Leaked)
    }

    pub(in crate::paging) fn access(tables: &Tables<Leaked>, address: u64) -> Option<Access> {
        found(tables, address).access()
    }

    fn pages(start: u64, count: u64) -> PageRange {
        PageRange { start: start * PAGE_SIZE, end: (start + count) * PAGE_SIZE }
    }

    fn found(tables: &Tables<Leaked>, address: u64) -> Found {
        // SAFETY: `Leaked` never frees a table.
        unsafe { lookup(tables.root(), address) }
    }

    #[test]
    fn no_access_allows_both_writing_and_executing() {
        for access in [Access::ReadOnly, Access::ReadWrite, Access::ReadExecute, Access::Device] {
            let flags = access.flags();
            assert!(!flags.contains(Flags::WRITABLE) || flags.contains(Flags::NO_EXECUTE), "{access:?}");
        }
    }

    #[test]
    fn uses_large_pages_and_splits_them_where_needed() {
        let mut tables = empty();
        tables.set(pages(0, 4 * 512), Some(Access::ReadWrite)).unwrap();
        assert_eq!(found(&tables, 0).size, LARGE_PAGE);
        tables.set(pages(512 + 3, 2), Some(Access::ReadExecute)).unwrap();
        tables.set(pages(0, 1), None).unwrap();
        for (page, access, size) in [
            (0, None, PAGE_SIZE),
            (1, Some(Access::ReadWrite), PAGE_SIZE),
            (512 + 2, Some(Access::ReadWrite), PAGE_SIZE),
            (512 + 3, Some(Access::ReadExecute), PAGE_SIZE),
            (512 + 4, Some(Access::ReadExecute), PAGE_SIZE),
            (512 + 5, Some(Access::ReadWrite), PAGE_SIZE),
            (2 * 512, Some(Access::ReadWrite), LARGE_PAGE),
            (4 * 512, None, LARGE_PAGE),
        ] {
            let found = found(&tables, page * PAGE_SIZE + 17);
            assert_eq!((found.access(), found.size), (access, size), "page {page}");
        }
    }

    #[test]
    fn every_page_maps_to_itself() {
        let mut tables = empty();
        let high = 0xe0_0000_0000 / PAGE_SIZE;
        tables.set(pages(1, 1500), Some(Access::ReadWrite)).unwrap();
        tables.set(pages(700, 1), Some(Access::ReadOnly)).unwrap();
        tables.set(pages(high, 513), Some(Access::Device)).unwrap();
        for page in (1..=1500).chain(high..high + 513) {
            let found = found(&tables, page * PAGE_SIZE);
            let entry = found.entry.as_ref().expect("mapped");
            let offset = page * PAGE_SIZE % found.size;
            assert_eq!(entry.addr().as_u64() + offset, page * PAGE_SIZE);
        }
    }

    #[test]
    fn adding_is_idempotent_and_refuses_conflicts() {
        let mut tables = empty();
        tables.set(pages(0x400, 0x200), Some(Access::ReadWrite)).unwrap();
        let registers = pages(0x10_0003, 0x801);
        tables.add(registers, Access::Device).unwrap();
        tables.add(registers, Access::Device).unwrap();
        assert_eq!(tables.add(pages(0x10_0003, 1), Access::ReadOnly), Err(MapError::Conflict));
        assert_eq!(tables.add(pages(0x3ff, 2), Access::Device), Err(MapError::Conflict));
        // Firmware tables may reach into RAM, which stays as it is.
        tables.add(pages(0x3ff, 2), Access::ReadOnly).unwrap();
        assert_eq!(found(&tables, 0x3ff * PAGE_SIZE).access(), Some(Access::ReadOnly));
        assert_eq!(found(&tables, 0x400 * PAGE_SIZE).access(), Some(Access::ReadWrite));
    }

    #[test]
    fn addresses_of_the_upper_half_are_not_mapped() {
        let mut tables = empty();
        tables.set(pages(1, 1), Some(Access::ReadWrite)).unwrap();
        assert_eq!(found(&tables, 1 << 48 | PAGE_SIZE).access(), None);
        assert_eq!(found(&tables, u64::MAX).access(), None);
    }

    proptest! {
        /// The tree against a map from page to access.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0..2000_u64, 1..1200_u64, 0..5_usize), 1..12)) {
            let kinds = [
                None,
                Some(Access::ReadOnly),
                Some(Access::ReadWrite),
                Some(Access::ReadExecute),
                Some(Access::Device),
            ];
            let mut tables = empty();
            let mut model = BTreeMap::new();
            for (start, count, kind) in steps {
                tables.set(pages(start, count), kinds[kind]).unwrap();
                model.extend((start..start + count).map(|page| (page, kinds[kind])));
            }
            for page in 0..3300 {
                let expected = model.get(&page).copied().flatten();
                prop_assert_eq!(found(&tables, page * PAGE_SIZE).access(), expected);
            }
        }
    }
}

#![allow(unsafe_code)] // Follows the physical addresses in page tables.
//! Four-level page tables (Intel SDM volume 3, section 4.5) that map one to one, in pages of 2 MiB where they fit.

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

    /// Maps those pages of `range` that are not mapped. Pages of RAM and code serve readers of firmware tables as well
    /// as they are.
    pub(super) fn add(&mut self, range: PageRange, access: Access) -> Result<(), MapError> {
        let mut at = range.start;
        while at < range.end {
            // SAFETY: the tree is ours, and `&mut self` keeps others from changing it.
            let found = unsafe { lookup(self.root(), at) };
            let end = range.end.min(at - at % found.size + found.size);
            match found.access() {
                None => self.set(PageRange { start: at, end }, Some(access))?,
                Some(present) if present == access => {}
                Some(Access::ReadWrite | Access::ReadExecute) if access == Access::ReadOnly => {}
                Some(_) => return Err(MapError::Conflict),
            }
            at = end;
        }
        Ok(())
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

/// The table that `entry` points to. Where there is none it is made; where there is a large page, which starts at
/// `address`, it is split into small ones with the same access.
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
    // SAFETY: an entry that is neither unused nor large points to a table that `below` made, at a valid pointer, and
    // `entry` is borrowed for as long as the table is.
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

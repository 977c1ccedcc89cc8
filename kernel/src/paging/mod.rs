#![allow(unsafe_code)] // Loads the page tables.
//! The image's own address space: everything one to one, each page with only the access that it needs.
//!
//! | what | access |
//! |---|---|
//! | the page at 0, guard pages under stacks | none |
//! | `.text` | read, execute |
//! | `.rodata` | read |
//! | all other RAM, and `.data` | read, write |
//! | registers of devices, on demand | read, write, uncached |
//! | tables of the firmware, on demand | read |

mod tables;

use core::ptr::NonNull;

use hermit_sync::{SpinMutex, SpinMutexGuard};
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::structures::paging::{PageTable, PhysFrame};
use x86_64::{PhysAddr, VirtAddr};

use crate::boot::Layout;
use crate::memory::{self, FrameError, PAGE_SIZE, PageRange};
pub use tables::{Access, MapError};
use tables::{TableSource, Tables};

static TABLES: SpinMutex<Option<Tables<FromFrames>>> = SpinMutex::new(None);

struct FromFrames;

// SAFETY: the frame allocator gives pages that nobody has, and all of RAM is mapped one to one.
unsafe impl TableSource for FromFrames {
    fn page(&self) -> Result<u64, FrameError> {
        memory::allocate(1, PAGE_SIZE).map(|page| page.start)
    }
}

/// Builds the tables and switches this core to them.
pub(crate) fn init(layout: &Layout) {
    // In the image, and so below 4 GiB: other cores load it while they are in 32-bit mode.
    static ROOT: SpinMutex<PageTable> = SpinMutex::new(PageTable::new());
    let mut tables = Tables::new(SpinMutexGuard::leak(ROOT.lock()), FromFrames);
    let ram = (0..).map_while(memory::ram_range);
    map(&mut tables, ram, layout).expect("there is memory for the first page tables");
    // SAFETY: the tables map all RAM, which has the code that runs and the stack that it runs on.
    unsafe { load(tables.root()) };
    *TABLES.lock() = Some(tables);
}

fn map<S: TableSource>(
    tables: &mut Tables<S>,
    mut ram: impl Iterator<Item = PageRange>,
    layout: &Layout,
) -> Result<(), MapError> {
    let page = |start| PageRange { start, end: start + PAGE_SIZE };
    ram.try_for_each(|range| tables.set(range, Some(Access::ReadWrite)))?;
    tables.set(layout.data.pages(), Some(Access::ReadWrite))?;
    tables.set(layout.rodata.pages(), Some(Access::ReadOnly))?;
    tables.set(layout.text.pages(), Some(Access::ReadExecute))?;
    tables.set(page(layout.boot_stack.start), None)?;
    tables.set(page(0), None)
}

/// Switches the calling core to the image's tables. The boot core has them already.
pub(crate) fn load_on_this_core() {
    let root = u64::from(root());
    // SAFETY: as for the boot core: all RAM is mapped, one to one.
    unsafe { load(root) };
}

/// # Safety
/// `root` is a tree that maps what runs now as it is mapped now.
unsafe fn load(root: u64) {
    let frame = PhysFrame::containing_address(PhysAddr::new(root));
    // SAFETY: as the caller promises.
    unsafe { Cr3::write(frame, Cr3Flags::empty()) };
}

/// Physical address of the top-level page table, for CR3 of a core that starts.
#[must_use]
pub fn root() -> u32 {
    let root = with_tables(|tables| tables.root());
    u32::try_from(root).expect("the table is part of the image, which lies below 4 GiB")
}

/// Maps the registers of a device, uncached, for as long as the image runs; the same range may be asked for
/// again. The pointer stands for `start`, which need not be the first byte of a page. `length` is in bytes.
///
/// # Errors
/// [`MapError::OutOfRange`] for a range that is empty or that no bus can have, [`MapError::Conflict`] when
/// some of it is RAM or mapped for other use, and [`MapError::OutOfMemory`].
pub fn map_mmio(start: u64, length: u64) -> Result<NonNull<u8>, MapError> {
    map_on_demand(start, length, Access::Device)
}

/// Maps tables that firmware left, cached and read-only; they may lie in RAM, which is mapped already.
/// Otherwise like [`map_mmio`].
///
/// # Errors
/// As for [`map_mmio`], but RAM is no conflict.
pub fn map_firmware(start: u64, length: u64) -> Result<NonNull<u8>, MapError> {
    map_on_demand(start, length, Access::ReadOnly)
}

fn map_on_demand(start: u64, length: u64, access: Access) -> Result<NonNull<u8>, MapError> {
    let end = start.checked_add(length).filter(|end| *end <= address_limit()).ok_or(MapError::OutOfRange)?;
    let range = PageRange::around(start, end).filter(|_| length != 0).ok_or(MapError::OutOfRange)?;
    // The page at 0 stays unmapped, whoever asks.
    let pointer = NonNull::new(start as *mut u8).filter(|_| range.start != 0).ok_or(MapError::OutOfRange)?;
    if access == Access::Device && memory::touches_ram(range) {
        return Err(MapError::Conflict);
    }
    with_tables(|tables| tables.add(range, access))?;
    Ok(pointer)
}

/// One past the highest physical address (CPUID 0x80000008 EAX, SDM volume 2), but no further than the half
/// of the address space that is mapped one to one.
fn address_limit() -> u64 {
    let bits = core::arch::x86_64::__cpuid(0x8000_0008).eax & 0xff;
    1 << bits.clamp(36, 47)
}

/// Unmaps pages of RAM, each to guard what is above it.
///
/// # Errors
/// [`MapError::OutOfMemory`] when a large page must be split and there is no page for the table.
pub(crate) fn unmap(ranges: impl Iterator<Item = PageRange> + Clone) -> Result<(), MapError> {
    with_tables(|tables| ranges.clone().try_for_each(|range| tables.set(range, None)))?;
    ranges.flat_map(|range| (range.start..range.end).step_by(PAGE_SIZE as usize)).for_each(|page| {
        x86_64::instructions::tlb::flush(VirtAddr::new(page));
    });
    Ok(())
}

/// True when this core can read the byte at `address`. It takes no lock: it is for reports after a crash.
pub(crate) fn is_readable(address: u64) -> bool {
    let (root, _) = Cr3::read();
    // SAFETY: CR3 holds either the tables of the entry code or ours; both are in RAM that is mapped one to
    // one, and tables are never freed.
    unsafe { tables::lookup(root.start_address().as_u64(), address) }.access().is_some()
}

fn with_tables<T>(act: impl FnOnce(&mut Tables<FromFrames>) -> T) -> T {
    act(TABLES.lock().as_mut().expect("paging is up before anybody maps"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Section;

    #[test]
    fn each_part_of_the_image_has_only_the_access_that_it_needs() {
        let section = |start, end| Section { start, end };
        let layout = Layout {
            rodata: section(0x100_0000, 0x100_3000),
            text: section(0x100_3000, 0x103_0000),
            data: section(0x103_0000, 0x110_0000),
            boot_stack: section(0x10b_f000, 0x110_0000),
        };
        let ram = [PageRange { start: 0, end: 0x9_f000 }, PageRange { start: 0x10_0000, end: 0x7fe_0000 }];
        let mut tables = tables::tests::empty();
        map(&mut tables, ram.into_iter(), &layout).unwrap();
        for (address, expected) in [
            (0, None),
            (0xfff, None),
            (0x1000, Some(Access::ReadWrite)),
            (0x9_efff, Some(Access::ReadWrite)),
            (0x9_f000, None),
            (0xf_ffff, None),
            (0xff_ffff, Some(Access::ReadWrite)),
            (0x100_0000, Some(Access::ReadOnly)),
            (0x100_2fff, Some(Access::ReadOnly)),
            (0x100_3000, Some(Access::ReadExecute)),
            (0x102_ffff, Some(Access::ReadExecute)),
            (0x103_0000, Some(Access::ReadWrite)),
            (0x10b_efff, Some(Access::ReadWrite)),
            (0x10b_f000, None),
            (0x10b_ffff, None),
            (0x10c_0000, Some(Access::ReadWrite)),
            (0x7fd_ffff, Some(Access::ReadWrite)),
            (0x7fe_0000, None),
            (0xfee0_0000, None),
        ] {
            assert_eq!(tables::tests::access(&tables, address), expected, "{address:#x}");
        }
    }
}

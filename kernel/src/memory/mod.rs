#![allow(unsafe_code)] // Turns freshly allocated pages into slices.
//! Physical memory: which RAM there is, who has it, and the heap and stacks made from it.
//!
//! All RAM is mapped one to one (see [`paging`](crate::paging)): a physical address is a pointer, and the
//! other way round.

mod frames;
mod heap;
mod range_set;
pub mod stack;

use core::slice;

use hermit_sync::{SpinMutex, SpinMutexGuard};

use crate::boot::{Region, RegionKind};
use frames::FrameAllocator;
pub use frames::FrameError;
pub use heap::Heap;
pub use range_set::PageRange;
use range_set::{Full, RangeSet};

/// Size of a page and of a frame, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// Below this address nothing is given out: firmware keeps its data here, and cores start here.
pub(crate) const LOW_MEMORY_END: u64 = 1 << 20;
/// Where the BIOS may keep its extended data; real firmware never reports more than 640 KiB of low memory.
const CONVENTIONAL_END: u64 = 0x9_f000;
/// Room in the first free list.
const FIRST_FREE_LIST: usize = 256;
/// The free list is moved to a larger home when fewer entries than this are spare: one call of the allocator
/// needs one, and moving needs one for the new home and one for the old.
const FREE_LIST_RESERVE: usize = 4;

static MEMORY: SpinMutex<Option<Memory>> = SpinMutex::new(None);
/// See [`on_shortage`].
static ON_SHORTAGE: SpinMutex<Option<fn(u64)>> = SpinMutex::new(None);

struct Memory {
    /// All usable RAM, before anything is taken out of it.
    ram: RangeSet<'static>,
    frames: FrameAllocator<'static>,
}

/// Takes over all usable RAM except the first mebibyte, the image and the module.
///
/// # Errors
/// When the map has no RAM, or too many holes.
pub(crate) fn init(
    regions: &[Region],
    image: PageRange,
    module: Option<PageRange>,
) -> Result<(), FrameError> {
    static STORAGE: SpinMutex<[[PageRange; FIRST_FREE_LIST]; 3]> =
        SpinMutex::new([[PageRange { start: 0, end: 0 }; FIRST_FREE_LIST]; 3]);
    let [ram, owned, free] = SpinMutexGuard::leak(STORAGE.lock());
    let mut ram = RangeSet::new(ram);
    usable(regions, &mut ram)?;
    let mut ours = RangeSet::new(owned);
    for range in ram.ranges() {
        ours.insert(*range)?;
    }
    let low = PageRange { start: 0, end: LOW_MEMORY_END };
    for taken in [Some(low), Some(image), module].into_iter().flatten() {
        ours.remove(taken)?;
    }
    if ours.ranges().is_empty() {
        return Err(FrameError::OutOfMemory);
    }
    *MEMORY.lock() = Some(Memory { ram, frames: FrameAllocator::new(ours, free)? });
    Ok(())
}

/// The pages that the map says are usable and that it does not say are anything else: where entries overlap,
/// the one that forbids wins.
fn usable(regions: &[Region], ram: &mut RangeSet<'_>) -> Result<(), Full> {
    let is_usable = |region: &&Region| region.kind == RegionKind::Usable;
    for range in regions.iter().filter(is_usable).filter_map(|r| PageRange::within(r.start, r.end)) {
        ram.insert(range)?;
    }
    for range in regions.iter().filter(|r| !is_usable(r)).filter_map(|r| PageRange::around(r.start, r.end)) {
        ram.remove(range)?;
    }
    Ok(())
}

/// Says what happens when somebody asks for more memory than there is, before that fails: `act` is called with the number
/// of pages. It must not allocate. `None`: nothing happens.
pub fn on_shortage(act: Option<fn(pages: u64)>) {
    *ON_SHORTAGE.lock() = act;
}

/// Takes `pages` neighbouring pages whose first address is a multiple of `alignment` bytes. Their content is
/// whatever was there before.
///
/// # Errors
/// [`FrameError`] when there is no such run, or the request makes no sense. Of a shortage [`on_shortage`] is told.
pub fn allocate(pages: u64, alignment: u64) -> Result<PageRange, FrameError> {
    let taken = try_allocate(pages, alignment);
    if taken == Err(FrameError::OutOfMemory)
        // The guard is gone before the call, which may print and never come back.
        && let Some(act) = { *ON_SHORTAGE.lock() }
    {
        act(pages);
    }
    taken
}

/// Like [`allocate`], for those who can do with less: nobody is told of a shortage.
fn try_allocate(pages: u64, alignment: u64) -> Result<PageRange, FrameError> {
    with_memory(|memory| {
        make_room(&mut memory.frames);
        memory.frames.allocate(pages, alignment)
    })
}

/// Gives pages back. Nothing may use them any more; a part of what was allocated will do.
///
/// # Errors
/// [`FrameError::NotAllocated`] when some of them are free already or never came from here.
pub fn free(range: PageRange) -> Result<(), FrameError> {
    with_memory(|memory| {
        make_room(&mut memory.frames);
        memory.frames.free(range)
    })
}

/// Pages that can be allocated now.
#[must_use]
pub fn free_pages() -> u64 {
    with_memory(|memory| memory.frames.free_pages())
}

/// Pages of the longest run that can be allocated now.
#[must_use]
pub fn longest_free_run() -> u64 {
    with_memory(|memory| memory.frames.longest_free_run())
}

/// Pages of RAM, free or not; the image and what the firmware left to it are among them.
#[must_use]
pub fn ram_pages() -> u64 {
    with_memory(|memory| memory.ram.pages())
}

/// Pages that the frame allocator manages, free or not.
#[must_use]
pub fn total_pages() -> u64 {
    with_memory(|memory| memory.frames.total_pages())
}

/// True when all of `range` is RAM.
#[must_use]
pub fn is_ram(range: PageRange) -> bool {
    with_memory(|memory| memory.ram.contains(range))
}

/// True when some of `range` is RAM.
pub(crate) fn touches_ram(range: PageRange) -> bool {
    with_memory(|memory| memory.ram.overlaps(range))
}

/// The `index`th range of RAM in ascending order.
pub(crate) fn ram_range(index: usize) -> Option<PageRange> {
    with_memory(|memory| memory.ram.ranges().get(index).copied())
}

/// A page of RAM below 1 MiB that nobody uses, for the first instructions of other cores: they start in real
/// mode and reach no further. It is mapped read-write, no-execute like all RAM, so code in it runs only while
/// paging is off. `None` where there is no RAM that low.
#[must_use]
pub fn low_page() -> Option<PageRange> {
    with_memory(|memory| highest_low_page(memory.ram.ranges()))
}

fn highest_low_page(ram: &[PageRange]) -> Option<PageRange> {
    let end = ram.iter().map_while(|range| (range.start < CONVENTIONAL_END).then_some(*range)).last()?.end;
    let end = end.min(CONVENTIONAL_END);
    // Page 0 holds the BIOS's vectors and stays unmapped.
    (end >= 2 * PAGE_SIZE).then_some(PageRange { start: end - PAGE_SIZE, end })
}

fn with_memory<T>(act: impl FnOnce(&mut Memory) -> T) -> T {
    act(MEMORY.lock().as_mut().expect("memory is up before anybody asks for it"))
}

/// Moves the free list to a home twice as large before it runs full. Where there is no memory for one, it stays:
/// most requests need no further entry, and one that does fails by itself.
fn make_room(frames: &mut FrameAllocator<'static>) {
    if frames.free_list().spare() >= FREE_LIST_RESERVE {
        return;
    }
    let entries = 2 * frames.free_list().capacity();
    let bytes = (entries * size_of::<PageRange>()) as u64;
    let Ok(home) = frames.allocate(bytes.div_ceil(PAGE_SIZE), PAGE_SIZE) else { return };
    // SAFETY: the pages were free, so nobody else has them; they are mapped (all RAM is), and any bytes are a
    // `PageRange`. They are freed only after another home was adopted.
    let list = unsafe { slice::from_raw_parts_mut(home.start as *mut PageRange, entries) };
    let old = frames.free_list().adopt(list).expect("a larger home holds what a smaller one held");
    let old_start = old.as_ptr() as u64;
    if let Some(old) = PageRange::around(old_start, old_start + size_of_val(old) as u64)
        // The very first home is part of the image and stays there.
        && frames.owns(old)
    {
        frames.free(old).expect("the old home was allocated, and the new one has room");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::RegionKind::{AcpiTables, Reserved, Usable};

    fn region(start: u64, end: u64, kind: RegionKind) -> Region {
        Region { start, end, kind }
    }

    fn usable_of(regions: &[Region]) -> Vec<(u64, u64)> {
        let mut storage = [PageRange::default(); 16];
        let mut ram = RangeSet::new(&mut storage);
        usable(regions, &mut ram).unwrap();
        ram.ranges().iter().map(|r| (r.start, r.end)).collect()
    }

    #[test]
    fn a_forbidding_entry_wins_over_an_overlapping_usable_one() {
        let map = [
            region(0x10_0000, 0x800_0000, Usable),
            region(0, 0x9_fc00, Usable),
            region(0x20_0800, 0x20_0900, Reserved),
            region(0x7ff_f800, 0x900_0000, AcpiTables),
            region(0x40_0000, 0x50_0000, Usable),
        ];
        assert_eq!(usable_of(&map), [(0, 0x9_f000), (0x10_0000, 0x20_0000), (0x20_1000, 0x7ff_f000)]);
    }

    #[test]
    fn nonsense_entries_do_no_harm() {
        let map = [
            region(0x5000, 0x5000, Usable),
            region(0x9000, 0x1000, Usable),
            region(0x9000, 0x1000, Reserved),
            region(u64::MAX - 10, u64::MAX, Usable),
            region(0x1_0000_0000, 0x1_0000_2000, Usable),
        ];
        assert_eq!(usable_of(&map), [(0x1_0000_0000, 0x1_0000_2000)]);
    }

    #[test]
    fn the_low_page_is_the_highest_below_the_bios_data() {
        let range = |start, end| PageRange { start, end };
        let page = |end| Some(PageRange { start: end - PAGE_SIZE, end });
        assert_eq!(
            highest_low_page(&[range(0, 0xa_0000), range(0x10_0000, 0x20_0000)]),
            page(CONVENTIONAL_END)
        );
        assert_eq!(highest_low_page(&[range(0, 0x2000), range(0x4000, 0x9000)]), page(0x9000));
        assert_eq!(highest_low_page(&[range(0, 0x1000)]), None);
        assert_eq!(highest_low_page(&[range(0x10_0000, 0x20_0000)]), None);
    }
}

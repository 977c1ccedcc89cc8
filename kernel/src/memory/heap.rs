#![allow(unsafe_code)] // Implements the global allocator.
//! The heap: a few linked-list heaps over pages from the frame allocator, more of them as need arises.
//!
//! Handlers of interrupts never allocate, so the lock need not mask interrupts.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use arrayvec::ArrayVec;
use hermit_sync::SpinMutex;
use linked_list_allocator::Heap as Chunk;

use super::{PAGE_SIZE, PageRange};

/// Each chunk is at least a quarter of all before it together, so this many hold more memory than there is.
const MAX_CHUNKS: usize = 64;
/// Size of the first chunk, in bytes. A boot with two ports needs less.
const FIRST_CHUNK: u64 = 512 << 10;

/// The global allocator of the image; [`entry!`](crate::entry) makes the one instance.
pub struct Heap {
    chunks: SpinMutex<ArrayVec<Chunk, MAX_CHUNKS>>,
}

impl Heap {
    /// An empty heap; it takes its first pages when it is first used, which must be after memory is up.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "there is one, in a static")]
    pub const fn new() -> Self {
        Self { chunks: SpinMutex::new(ArrayVec::new_const()) }
    }
}

// SAFETY: `Chunk` hands out disjoint blocks of memory that it alone owns and gives each back to the chunk
// that it came from; the lock makes that hold for all cores.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut chunks = self.chunks.lock();
        let found = chunks.iter_mut().find_map(|chunk| chunk.allocate_first_fit(layout).ok());
        let found = found.or_else(|| {
            grow(&mut chunks, layout)?;
            chunks.iter_mut().find_map(|chunk| chunk.allocate_first_fit(layout).ok())
        });
        found.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let mut chunks = self.chunks.lock();
        let owner = chunks.iter_mut().find(|chunk| (chunk.bottom()..chunk.top()).contains(&block));
        if let (Some(chunk), Some(block)) = (owner, NonNull::new(block)) {
            // SAFETY: the caller got `block` from `alloc` with this layout, and it lies in this chunk.
            unsafe { chunk.deallocate(block, layout) };
        }
    }
}

/// Adds memory that is enough for `layout`; `None` when there is no more.
fn grow(chunks: &mut ArrayVec<Chunk, MAX_CHUNKS>, layout: Layout) -> Option<()> {
    // The allocator's own words take up to a hole at either end of the block.
    let overhead = 4 * size_of::<Chunk>();
    let needed = layout.size().checked_add(layout.align())?.checked_add(overhead)? as u64;
    let have: usize = chunks.iter().map(Chunk::size).sum();
    let wanted = needed.max(have as u64 / 4).max(FIRST_CHUNK);
    // When memory is short, what is needed must do.
    let pages = |bytes: u64| bytes.div_ceil(PAGE_SIZE);
    let taken = super::try_allocate(pages(wanted), PAGE_SIZE);
    add(chunks, taken.or_else(|_| super::allocate(pages(needed), PAGE_SIZE)).ok()?)
}

fn add(chunks: &mut ArrayVec<Chunk, MAX_CHUNKS>, pages: PageRange) -> Option<()> {
    let length = pages.bytes() as usize;
    match chunks.iter_mut().find(|chunk| chunk.top() as u64 == pages.start) {
        // SAFETY: the pages follow the chunk, are mapped (all RAM is), and belong to nobody else.
        Some(chunk) => unsafe { chunk.extend(length) },
        // SAFETY: the pages are mapped, belong to nobody else, and are never given back.
        None => chunks.try_push(unsafe { Chunk::new(pages.start as *mut u8, length) }).ok()?,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaked_pages(count: usize) -> PageRange {
        let layout = Layout::from_size_align(count * PAGE_SIZE as usize, PAGE_SIZE as usize).unwrap();
        // SAFETY: the size is not zero.
        let start = unsafe { std::alloc::alloc(layout) } as u64;
        PageRange { start, end: start + layout.size() as u64 }
    }

    #[test]
    fn neighbours_melt_and_strangers_get_a_chunk_of_their_own() {
        let pages = leaked_pages(4);
        let middle = pages.start + 2 * PAGE_SIZE;
        let mut chunks = ArrayVec::new();
        add(&mut chunks, PageRange { end: middle, ..pages }).unwrap();
        add(&mut chunks, PageRange { start: middle, ..pages }).unwrap();
        assert_eq!(chunks.len(), 1);
        add(&mut chunks, leaked_pages(1)).unwrap();
        assert_eq!(chunks.len(), 2);
        let heap = Heap { chunks: SpinMutex::new(chunks) };
        let layout = Layout::from_size_align(3 * PAGE_SIZE as usize, 64).unwrap();
        // SAFETY: the layout has a size, and what is freed was allocated with it.
        unsafe {
            let first = heap.alloc(layout);
            assert!((pages.start..middle).contains(&(first as u64)) && (first as usize).is_multiple_of(64));
            heap.dealloc(first, layout);
            assert_eq!(heap.alloc(layout), first);
        }
    }
}

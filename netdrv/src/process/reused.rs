//! One block of memory for all runs of a model: each makes a pool, which is never freed, and there are thousands.

#![allow(unsafe_code)] // Implements the platform contract over a block that it hands out again.

extern crate std;

use core::cell::Cell;
use core::ptr::NonNull;

use super::ProcessHal;
use crate::hal::Hal;

/// As [`ProcessHal`], but every allocation gets the same memory. For models, one allocation a run.
pub struct ReusedMemory;

std::thread_local! {
    /// The block, and its length in pages.
    static BLOCK: Cell<Option<(NonNull<u8>, usize)>> = const { Cell::new(None) };
}

// SAFETY: a model runs on one thread of the process, one run after the other, and makes one allocation a run: whoever had
// the block before is gone. Else it is as the process's.
unsafe impl Hal for ReusedMemory {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        if let Some((block, length)) = BLOCK.get()
            && pages <= length
        {
            return Some(block);
        }
        let block = ProcessHal::dma_allocate(pages)?;
        BLOCK.set(Some((block, pages)));
        Some(block)
    }

    unsafe fn dma_free(_base: NonNull<u8>, _pages: usize) {}

    unsafe fn map_mmio(base: u64, len: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise is the same.
        unsafe { ProcessHal::map_mmio(base, len) }
    }

    fn now_ns() -> u64 {
        ProcessHal::now_ns()
    }
}

//! The platform of a driver that is measured: memory in large pages, as the image maps it, and the system's clock.

#![allow(unsafe_code)] // Implements the platform contract over the process's own allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Duration;

use netdrv::hal::{Hal, PAGE_SIZE};
use nix::sys::mman::{MmapAdvise, madvise};
use nix::time::{ClockId, clock_gettime};

/// A large page of x86-64, in bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Memory in large pages where it is as much; registers that are plain memory.
pub(in crate::bench) struct LargePages;

fn layout(pages: usize) -> Option<Layout> {
    let bytes = pages.checked_mul(PAGE_SIZE)?.next_multiple_of(LARGE_PAGE);
    Layout::from_size_align(bytes, LARGE_PAGE).ok().filter(|layout| layout.size() > 0)
}

// SAFETY: the allocator's memory is zeroed, exclusive and aligned to more than a page; the card lives in the same address
// space, so addresses are the same for both. A register window is memory of the process already.
unsafe impl Hal for LargePages {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        let layout = layout(pages)?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // A wish: where the system has no large pages left, small ones do.
        // SAFETY: the range is ours, and the advice changes nothing that the program can see.
        let _ = unsafe { madvise(base.cast::<c_void>(), layout.size(), MmapAdvise::MADV_HUGEPAGE) };
        Some(base)
    }

    unsafe fn dma_free(base: NonNull<u8>, pages: usize) {
        if let Some(layout) = layout(pages) {
            // SAFETY: the caller passes what `dma_allocate` returned for this number of pages.
            unsafe { dealloc(base.as_ptr(), layout) }
        }
    }

    unsafe fn map_mmio(base: u64, _len: usize) -> NonNull<u8> {
        NonNull::new(base as *mut u8).expect("a card's registers are somewhere")
    }

    fn now_ns() -> u64 {
        let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has one").into();
        now.as_nanos() as u64
    }
}

//! The platform inside an ordinary process, for tests and benchmarks: the drivers' code runs as it does in the image,
//! against a device that another thread or process plays.

#![allow(unsafe_code)] // Implements the platform contract over the process's own allocator.

#[cfg(loom)]
mod reused;

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::hal::{Hal, PAGE_SIZE};

#[cfg(loom)]
pub use self::reused::ReusedMemory;

/// DMA memory from the global allocator; registers that are plain memory, where whoever plays the device has put them; a
/// clock that moves by a microsecond whenever it is read, so that bounded waits end after a known number of looks.
pub struct ProcessHal;

static CLOCK_NS: AtomicU64 = AtomicU64::new(0);

fn layout(pages: usize) -> Option<Layout> {
    Layout::from_size_align(pages.checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok()
}

// SAFETY: the allocator's memory is zeroed, exclusive and of the alignment asked for; the device side lives in the same
// address space, so addresses are the same for both. A register window is memory of the process already.
unsafe impl Hal for ProcessHal {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        let layout = layout(pages).filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    unsafe fn dma_free(base: NonNull<u8>, pages: usize) {
        if let Some(layout) = layout(pages) {
            // SAFETY: the caller passes what `dma_allocate` returned for this number of pages.
            unsafe { dealloc(base.as_ptr(), layout) }
        }
    }

    unsafe fn map_mmio(base: u64, _len: usize) -> NonNull<u8> {
        NonNull::new(base as *mut u8).expect("a device's registers are somewhere")
    }

    fn now_ns() -> u64 {
        CLOCK_NS.fetch_add(1_000, Ordering::Relaxed)
    }
}

//! The platform of a test: every DMA allocation is on a list, so that the device side can reach those and
//! nothing else, and the clock lets the device work while a driver waits for it.

#![allow(unsafe_code)] // Implements the platform contract over the process's own allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::time::Duration;

use netdrv::hal::{Hal, PAGE_SIZE};

/// How far the clock moves whenever someone looks.
pub(crate) const TICK_NS: u64 = 1_000_000;

thread_local! {
    static ALLOCATIONS: RefCell<BTreeMap<u64, usize>> = const { RefCell::new(BTreeMap::new()) };
    static CHANGES: Cell<u64> = const { Cell::new(0) };
    static CLOCK_NS: Cell<u64> = const { Cell::new(0) };
    static ON_TICK: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// The platform of one test. Tests run in threads of their own, and so do their allocations and clocks.
pub(crate) struct TestHal;

/// Base address and length of every live allocation, in address order.
pub(crate) fn allocations() -> Vec<(u64, usize)> {
    ALLOCATIONS.with_borrow(|list| list.iter().map(|(base, pages)| (*base, pages * PAGE_SIZE)).collect())
}

/// A number that grows whenever [`allocations`] changes.
pub(crate) fn allocation_changes() -> u64 {
    CHANGES.get()
}

/// Moves the clock on without a look at it.
pub(crate) fn advance(time: Duration) {
    CLOCK_NS.set(CLOCK_NS.get() + time.as_nanos() as u64);
}

/// Has `work` done at every look at the clock, instead of what was done so far.
pub(crate) fn on_tick(work: impl FnMut() + 'static) {
    ON_TICK.set(Some(Box::new(work)));
}

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).expect("a sane number of pages")
}

// SAFETY: the allocator's memory is zeroed, exclusive and aligned. Devices live in the process, so addresses
// are the same for both.
unsafe impl Hal for TestHal {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        assert!(pages > 0, "an allocation of nothing");
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout(pages)) })?;
        ALLOCATIONS.with_borrow_mut(|list| list.insert(base.as_ptr() as u64, pages));
        CHANGES.set(CHANGES.get() + 1);
        Some(base)
    }

    unsafe fn dma_free(base: NonNull<u8>, pages: usize) {
        let known = ALLOCATIONS.with_borrow_mut(|list| list.remove(&(base.as_ptr() as u64)));
        assert_eq!(known, Some(pages), "what is freed was allocated, once");
        CHANGES.set(CHANGES.get() + 1);
        // SAFETY: `base` was allocated with this layout, as just checked.
        unsafe { dealloc(base.as_ptr(), layout(pages)) };
    }

    unsafe fn map_mmio(base: u64, _len: usize) -> NonNull<u8> {
        NonNull::new(base as *mut u8).expect("the fake device's registers are memory of this process")
    }

    fn now_ns() -> u64 {
        // Taken out while it runs: the device's work may itself look at the clock.
        if let Some(mut work) = ON_TICK.take() {
            work();
            ON_TICK.set(Some(work));
        }
        CLOCK_NS.set(CLOCK_NS.get() + TICK_NS);
        CLOCK_NS.get()
    }
}

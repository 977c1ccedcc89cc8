#![allow(unsafe_code)] // Takes back what it gave out as pointers.
//! Memory for devices: neighbouring pages. The address that a device uses is the pointer's own
//! value, since RAM is mapped one to one and the caches of x86 are coherent with devices.

use core::ptr::NonNull;

use crate::memory::{self, FrameError, PAGE_SIZE, PageRange};

/// Takes `pages` neighbouring pages for a device to read and write. They hold whatever they held: a large block is not
/// touched before it is used, since a virtual machine pays for each page at its first touch.
///
/// # Errors
/// [`FrameError`] when there is no such run.
pub fn allocate(pages: u64) -> Result<NonNull<u8>, FrameError> {
    let range = memory::allocate(pages, PAGE_SIZE)?;
    NonNull::new(range.start as *mut u8).ok_or(FrameError::OutOfMemory)
}

/// Gives pages back.
///
/// # Errors
/// [`FrameError::NotAllocated`] when they are not allocated.
///
/// # Safety
/// `start` and `pages` are from one call of [`allocate`], no device has the address any more, and no
/// reference into the pages is alive.
pub unsafe fn free(start: NonNull<u8>, pages: u64) -> Result<(), FrameError> {
    let start = device_address(start);
    memory::free(PageRange { start, end: start + pages * PAGE_SIZE })
}

/// The address that a device uses for what `pointer` points to.
#[must_use]
pub fn device_address<T: ?Sized>(pointer: NonNull<T>) -> u64 {
    pointer.addr().get() as u64
}

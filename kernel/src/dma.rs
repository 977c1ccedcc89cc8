#![allow(unsafe_code)] // Clears pages and gives them out as pointers.
//! Memory for devices: neighbouring pages, cleared. The address that a device uses is the pointer's own
//! value, since RAM is mapped one to one and the caches of x86 are coherent with devices.

use core::ptr::{self, NonNull};

use crate::memory::{self, FrameError, PAGE_SIZE, PageRange};

/// Takes `pages` neighbouring pages, cleared, for a device to read and write.
///
/// # Errors
/// [`FrameError`] when there is no such run.
pub fn allocate(pages: u64) -> Result<NonNull<u8>, FrameError> {
    let range = memory::allocate(pages, PAGE_SIZE)?;
    let start = NonNull::new(range.start as *mut u8).ok_or(FrameError::OutOfMemory)?;
    // SAFETY: the pages are mapped, and nobody else has them.
    unsafe { ptr::write_bytes(start.as_ptr(), 0, range.bytes() as usize) };
    Ok(start)
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

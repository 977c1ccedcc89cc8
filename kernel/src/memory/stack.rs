//! Stacks, each with an unmapped page below it: a stack that grows too long faults instead of overwriting
//! others.

use super::{FrameError, PAGE_SIZE, PageRange};
use crate::paging;

/// A stack that lives for ever: a core runs on it, so it is never given back.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    pages: PageRange,
}

impl Stack {
    /// The address one past the stack, a multiple of 4096; it grows down from there.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.pages.end
    }
}

/// Makes a stack of `pages` pages, and a guard page below it.
///
/// The guard holds for this core and for those that start later; a core that runs already may have the page
/// in its TLB.
///
/// # Errors
/// [`FrameError`] when there is not enough memory.
pub fn allocate(pages: u64) -> Result<Stack, FrameError> {
    let [stack] = allocate_group(pages)?;
    Ok(stack)
}

/// Makes `N` stacks at once, each like one of [`allocate`].
pub(crate) fn allocate_group<const N: usize>(pages: u64) -> Result<[Stack; N], FrameError> {
    let each = pages.checked_add(1).ok_or(FrameError::OutOfMemory)?;
    let whole = super::allocate(each.checked_mul(N as u64).ok_or(FrameError::OutOfMemory)?, PAGE_SIZE)?;
    let place = |index: usize| {
        let start = whole.start + index as u64 * each * PAGE_SIZE;
        PageRange { start, end: start + each * PAGE_SIZE }
    };
    let guard = |place: PageRange| PageRange { end: place.start + PAGE_SIZE, ..place };
    paging::unmap((0..N).map(place).map(guard)).map_err(|_| FrameError::OutOfMemory)?;
    Ok(core::array::from_fn(|index| Stack {
        pages: PageRange { start: guard(place(index)).end, ..place(index) },
    }))
}

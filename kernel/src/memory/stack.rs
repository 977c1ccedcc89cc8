//! Stacks, each with an unmapped page below it: a stack that grows too long faults instead of overwriting others.

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
/// The guard holds for this core and for those that start later; a core that runs already may have the page in its
/// TLB.
///
/// # Errors
/// [`FrameError`] when there is not enough memory.
pub fn allocate(pages: u64) -> Result<Stack, FrameError> {
    let whole = super::allocate(pages.saturating_add(1), PAGE_SIZE)?;
    let guard = PageRange { start: whole.start, end: whole.start + PAGE_SIZE };
    paging::unmap(guard).map_err(|_| FrameError::OutOfMemory)?;
    Ok(Stack { pages: PageRange { start: guard.end, end: whole.end } })
}

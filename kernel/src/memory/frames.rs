//! The frame allocator: which physical pages are free. Pure bookkeeping, it touches no frame.

use core::fmt;

use super::PAGE_SIZE;
use super::range_set::{Full, PageRange, RangeSet};

/// Why the allocator said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No run of free pages is long enough (in the wanted alignment).
    OutOfMemory,
    /// Zero pages, or an alignment that is no power of two.
    BadRequest,
    /// The pages to be freed are not all allocated from here.
    NotAllocated,
    /// The list of free ranges is full.
    Fragmented,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::BadRequest => "bad size or alignment",
            Self::NotAllocated => "freeing pages that are not allocated",
            Self::Fragmented => "the list of free memory is full",
        })
    }
}

impl From<Full> for FrameError {
    fn from(Full: Full) -> Self {
        Self::Fragmented
    }
}

/// Hands out runs of physical pages, lowest address first.
///
/// Lowest first keeps what is given out together, and leaves the long runs at the top for those who need
/// them.
pub(super) struct FrameAllocator<'m> {
    /// What was given to the allocator at start-up.
    owned: RangeSet<'m>,
    free: RangeSet<'m>,
}

impl<'m> FrameAllocator<'m> {
    /// An allocator over the pages of `owned`, all free; `storage` is for its free list.
    ///
    /// # Errors
    /// [`FrameError::Fragmented`] when `owned` has more ranges than `storage`.
    pub(super) fn new(owned: RangeSet<'m>, storage: &'m mut [PageRange]) -> Result<Self, FrameError> {
        let mut free = RangeSet::new(storage);
        for range in owned.ranges() {
            free.insert(*range)?;
        }
        Ok(Self { owned, free })
    }

    /// Takes `pages` neighbouring pages; the address of the first is a multiple of `alignment` bytes.
    ///
    /// # Errors
    /// [`FrameError::OutOfMemory`], [`FrameError::BadRequest`], and [`FrameError::Fragmented`] when the free
    /// list cannot hold what is left.
    pub(super) fn allocate(&mut self, pages: u64, alignment: u64) -> Result<PageRange, FrameError> {
        if pages == 0 || !alignment.is_power_of_two() {
            return Err(FrameError::BadRequest);
        }
        let length = pages.checked_mul(PAGE_SIZE).ok_or(FrameError::OutOfMemory)?;
        let alignment = alignment.max(PAGE_SIZE);
        let taken = self.free.ranges().iter().find_map(|range| {
            let start = range.start.checked_next_multiple_of(alignment)?;
            let end = start.checked_add(length)?;
            (end <= range.end).then_some(PageRange { start, end })
        });
        let taken = taken.ok_or(FrameError::OutOfMemory)?;
        self.free.remove(taken)?;
        Ok(taken)
    }

    /// Gives pages back; they need not be one whole allocation.
    ///
    /// # Errors
    /// [`FrameError::NotAllocated`] for pages that are free already or were never here;
    /// [`FrameError::Fragmented`].
    pub(super) fn free(&mut self, range: PageRange) -> Result<(), FrameError> {
        if !self.owns(range) || self.free.overlaps(range) {
            return Err(FrameError::NotAllocated);
        }
        Ok(self.free.insert(range)?)
    }

    /// Pages that are free now.
    pub(super) fn free_pages(&self) -> u64 {
        self.free.pages()
    }

    /// Pages of the longest run that is free now.
    pub(super) fn longest_free_run(&self) -> u64 {
        self.free.ranges().iter().map(PageRange::pages).max().unwrap_or(0)
    }

    /// Pages that the allocator was given.
    pub(super) fn total_pages(&self) -> u64 {
        self.owned.pages()
    }

    /// True when all of `range` was given to the allocator at start-up.
    pub(super) fn owns(&self, range: PageRange) -> bool {
        self.owned.contains(range)
    }

    /// The free list, for its owner to give it more room when it runs short.
    pub(super) fn free_list(&mut self) -> &mut RangeSet<'m> {
        &mut self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOM: usize = 256;

    fn with_allocator(owned: &[PageRange], test: impl FnOnce(&mut FrameAllocator<'_>)) {
        let (mut a, mut b) = ([PageRange::default(); ROOM], [PageRange::default(); ROOM]);
        let mut set = RangeSet::new(&mut a);
        for range in owned {
            set.insert(*range).unwrap();
        }
        test(&mut FrameAllocator::new(set, &mut b).unwrap());
    }

    fn pages(start: u64, count: u64) -> PageRange {
        PageRange { start: start * PAGE_SIZE, end: (start + count) * PAGE_SIZE }
    }

    #[test]
    fn takes_the_lowest_run_that_fits_around_a_hole() {
        with_allocator(&[pages(1, 3), pages(8, 16)], |frames| {
            assert_eq!(frames.allocate(4, 1), Ok(pages(8, 4)));
            assert_eq!(frames.allocate(3, 1), Ok(pages(1, 3)));
            assert_eq!(frames.allocate(2, 8 * PAGE_SIZE), Ok(pages(16, 2)));
            assert_eq!(frames.allocate(8, 1), Err(FrameError::OutOfMemory));
            assert_eq!((frames.free_pages(), frames.total_pages()), (10, 19));
            assert_eq!(frames.longest_free_run(), 6);
        });
    }

    #[test]
    fn refuses_nonsense() {
        with_allocator(&[pages(1, 8)], |frames| {
            assert_eq!(frames.allocate(0, 1), Err(FrameError::BadRequest));
            assert_eq!(frames.allocate(1, 3 * PAGE_SIZE), Err(FrameError::BadRequest));
            assert_eq!(frames.allocate(u64::MAX, 1), Err(FrameError::OutOfMemory));
            assert_eq!(frames.free(pages(1, 1)), Err(FrameError::NotAllocated));
            frames.allocate(8, 1).unwrap();
            assert_eq!(frames.free(pages(8, 2)), Err(FrameError::NotAllocated));
            frames.free(pages(4, 2)).unwrap();
            assert_eq!(frames.free(pages(3, 2)), Err(FrameError::NotAllocated));
        });
    }

    proptest! {
        /// Nothing is handed out twice, everything lies in what is owned and is aligned, and all comes home.
        #[test]
        fn gives_disjoint_runs_and_gets_them_all_back(
            steps in prop::collection::vec(
                (any::<bool>(), 1..9_u64, 0..5_u32, any::<prop::sample::Index>()),
                1..120,
            ),
        ) {
            let owned = [pages(3, 40), pages(64, 30), pages(0x10_0000, 64)];
            with_allocator(&owned, |frames| {
                let mut held: Vec<PageRange> = Vec::new();
                for (take, count, shift, pick) in steps {
                    if take {
                        let alignment = PAGE_SIZE << shift;
                        let Ok(run) = frames.allocate(count, alignment) else { continue };
                        assert_eq!(run.pages(), count);
                        assert_eq!(run.start % alignment, 0);
                        assert!(owned.iter().any(|o| o.start <= run.start && run.end <= o.end));
                        assert!(held.iter().all(|h| h.end <= run.start || run.end <= h.start));
                        held.push(run);
                    } else if !held.is_empty() {
                        let run = held.swap_remove(pick.index(held.len()));
                        frames.free(run).unwrap();
                        assert_eq!(frames.free(run), Err(FrameError::NotAllocated));
                    }
                    let out: u64 = held.iter().map(PageRange::pages).sum();
                    assert_eq!(frames.free_pages() + out, frames.total_pages());
                }
                for run in held {
                    frames.free(run).unwrap();
                }
                assert_eq!(frames.free_list().ranges(), owned);
            });
        }
    }
}

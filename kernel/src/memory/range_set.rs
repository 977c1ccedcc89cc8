//! A set of physical addresses, kept as sorted page ranges that neither overlap nor touch.
//!
//! The ranges live in storage that the caller lends, so that the set works before there is a heap, and can be
//! moved to a larger home later.

use core::fmt;

use super::PAGE_SIZE;

/// A half-open range of physical addresses, both ends multiples of [`PAGE_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PageRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl PageRange {
    /// The whole pages inside `start..end`; `None` where there is none.
    #[must_use]
    pub fn within(start: u64, end: u64) -> Option<Self> {
        let range = Self { start: start.checked_next_multiple_of(PAGE_SIZE)?, end: end - end % PAGE_SIZE };
        (range.start < range.end).then_some(range)
    }

    /// The pages that `start..end` touches; `None` where the range is empty.
    #[must_use]
    pub fn around(start: u64, end: u64) -> Option<Self> {
        // The last page of the address space ends at 2^64, which cannot be said: it is no RAM anywhere.
        let end = end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX - (PAGE_SIZE - 1));
        let range = Self { start: start - start % PAGE_SIZE, end };
        (range.start < range.end).then_some(range)
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Length in pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.bytes() / PAGE_SIZE
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

/// The storage is full; the set is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Sorted, disjoint, non-adjacent page ranges in borrowed storage.
pub(super) struct RangeSet<'m> {
    storage: &'m mut [PageRange],
    used: usize,
}

impl<'m> RangeSet<'m> {
    /// An empty set that can hold as many ranges as `storage`.
    pub(super) fn new(storage: &'m mut [PageRange]) -> Self {
        Self { storage, used: 0 }
    }

    /// The ranges in ascending order.
    pub(super) fn ranges(&self) -> &[PageRange] {
        &self.storage[..self.used]
    }

    /// How many more ranges fit.
    pub(super) fn spare(&self) -> usize {
        self.storage.len() - self.used
    }

    /// How many ranges the storage holds in all.
    pub(super) fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Number of pages in the set.
    pub(super) fn pages(&self) -> u64 {
        self.ranges().iter().map(PageRange::pages).sum()
    }

    /// True when every page of `range` is in the set.
    pub(super) fn contains(&self, range: PageRange) -> bool {
        let at = self.first_ending_after(range.start);
        self.ranges().get(at).is_some_and(|r| r.start <= range.start && range.end <= r.end)
    }

    /// True when at least one page of `range` is in the set.
    pub(super) fn overlaps(&self, range: PageRange) -> bool {
        let at = self.first_ending_after(range.start);
        self.ranges().get(at).is_some_and(|r| r.start < range.end)
    }

    /// Adds `range`; what was in the set already stays.
    ///
    /// # Errors
    /// [`Full`] when one more range is needed than fits.
    pub(super) fn insert(&mut self, range: PageRange) -> Result<(), Full> {
        // Everything that overlaps or touches melts into one.
        let first = self.ranges().partition_point(|r| r.end < range.start);
        let last = self.ranges().partition_point(|r| r.start <= range.end);
        let mut merged = range;
        if first < last {
            merged.start = merged.start.min(self.storage[first].start);
            merged.end = merged.end.max(self.storage[last - 1].end);
        }
        self.replace(first, last, &[merged])
    }

    /// Takes `range` out; what was not in the set does not matter.
    ///
    /// # Errors
    /// [`Full`] when a range would split in two and the second part does not fit.
    pub(super) fn remove(&mut self, range: PageRange) -> Result<(), Full> {
        let first = self.first_ending_after(range.start);
        let last = self.ranges().partition_point(|r| r.start < range.end);
        if first >= last {
            return Ok(());
        }
        let left = PageRange { start: self.storage[first].start, end: range.start };
        let right = PageRange { start: range.end, end: self.storage[last - 1].end };
        match (left.start < left.end, right.start < right.end) {
            (true, true) => self.replace(first, last, &[left, right]),
            (true, false) => self.replace(first, last, &[left]),
            (false, true) => self.replace(first, last, &[right]),
            (false, false) => self.replace(first, last, &[]),
        }
    }

    /// Moves the ranges into `storage` and gives the old storage back.
    ///
    /// # Errors
    /// [`Full`] when `storage` is smaller than what is in use.
    pub(super) fn adopt(&mut self, storage: &'m mut [PageRange]) -> Result<&'m mut [PageRange], Full> {
        storage.get_mut(..self.used).ok_or(Full)?.copy_from_slice(&self.storage[..self.used]);
        Ok(core::mem::replace(&mut self.storage, storage))
    }

    /// Index of the first range that reaches past `address`.
    fn first_ending_after(&self, address: u64) -> usize {
        self.ranges().partition_point(|r| r.end <= address)
    }

    /// Puts `new` in the place of the ranges `first..last`.
    fn replace(&mut self, first: usize, last: usize, new: &[PageRange]) -> Result<(), Full> {
        let used = self.used - (last - first) + new.len();
        if used > self.storage.len() {
            return Err(Full);
        }
        self.storage.copy_within(last..self.used, first + new.len());
        self.storage[first..first + new.len()].copy_from_slice(new);
        self.used = used;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u64 = 64;

    fn pages(start: u64, count: u64) -> PageRange {
        PageRange { start: start * PAGE_SIZE, end: (start + count) * PAGE_SIZE }
    }

    fn members(set: &RangeSet<'_>) -> Vec<bool> {
        (0..PAGES).map(|page| set.contains(pages(page, 1))).collect()
    }

    #[test]
    fn within_rounds_inwards_and_around_outwards() {
        assert_eq!(PageRange::within(1, 0x3001), Some(PageRange { start: 0x1000, end: 0x3000 }));
        assert_eq!(PageRange::within(0x1001, 0x1fff), None);
        assert_eq!(PageRange::within(u64::MAX, u64::MAX), None);
        assert_eq!(PageRange::around(0x1fff, 0x2001), Some(PageRange { start: 0x1000, end: 0x3000 }));
        assert_eq!(PageRange::around(0, 0), None);
        assert_eq!(PageRange::around(0x1000, u64::MAX).unwrap().end, u64::MAX - 0xfff);
    }

    #[test]
    fn a_full_set_refuses_and_stays_as_it_was() {
        let mut storage = [PageRange::default(); 1];
        let mut set = RangeSet::new(&mut storage);
        set.insert(pages(0, 8)).unwrap();
        assert_eq!(set.insert(pages(10, 1)), Err(Full));
        assert_eq!(set.remove(pages(3, 1)), Err(Full));
        assert_eq!(set.ranges(), [pages(0, 8)]);
    }

    #[test]
    fn adopt_keeps_the_ranges_and_returns_the_old_storage() {
        let (mut small, mut tiny, mut large) = ([PageRange::default(); 2], [], [PageRange::default(); 9]);
        let mut set = RangeSet::new(&mut small);
        set.insert(pages(1, 1)).unwrap();
        set.insert(pages(3, 1)).unwrap();
        assert_eq!(set.adopt(&mut tiny), Err(Full));
        assert_eq!(set.adopt(&mut large).unwrap().len(), 2);
        assert_eq!(set.ranges(), [pages(1, 1), pages(3, 1)]);
        assert_eq!(set.spare(), 7);
    }

    proptest! {
        /// The set against one flag per page.
        #[test]
        fn behaves_like_a_bitmap(
            steps in prop::collection::vec((any::<bool>(), 0..PAGES, 1..12_u64), 1..80),
        ) {
            let mut storage = [PageRange::default(); PAGES as usize];
            let mut set = RangeSet::new(&mut storage);
            let mut model = vec![false; PAGES as usize];
            for (insert, start, count) in steps {
                let range = pages(start, count.min(PAGES - start));
                if insert { set.insert(range).unwrap() } else { set.remove(range).unwrap() }
                let touched = (range.start / PAGE_SIZE) as usize..(range.end / PAGE_SIZE) as usize;
                model[touched.clone()].fill(insert);
                prop_assert_eq!(members(&set), model.clone());
                prop_assert_eq!(set.pages(), model.iter().filter(|m| **m).count() as u64);
                prop_assert_eq!(set.overlaps(range), insert);
                prop_assert!(set.ranges().windows(2).all(|w| w[0].end < w[1].start));
            }
        }
    }
}

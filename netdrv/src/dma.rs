//! Memory shared with a device, and the order in which the two sides see it.
//!
//! A ring is made of [`Table`]s (a power of two of entries, the index wraps) and [`Cell`]s (one word) over one
//! [`DmaMemory`]. Every access is a relaxed atomic one: the device is another agent that reads and writes the same
//! words at the same time, and a plain access would let the compiler assume that it does not. On x86-64 a relaxed
//! access is the same instruction as a plain one.

#![allow(unsafe_code)] // Turns the platform's raw pages into bounds-safe words; rings above it need no unsafe.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::hal::{Hal, PAGE_SIZE};
use crate::prefetch;
use crate::sync::fence;

/// Everything written before this is seen by the device before what is written after it.
#[inline(always)]
pub fn release() {
    fence(Ordering::Release);
}

/// Everything read after this was written by the device before what was read before it.
#[inline(always)]
pub fn acquire() {
    fence(Ordering::Acquire);
}

/// A write before this is visible to the device before a read after it is done (`mfence`). Needed where the two sides
/// each write their own index and then look at the other's wish to be notified (virtio 1.2, 2.7.10.1).
#[inline(always)]
pub fn store_then_load() {
    fence(Ordering::SeqCst);
}

/// Why DMA memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaError {
    /// The platform has no contiguous run of that many pages.
    OutOfMemory {
        /// Pages asked for, of [`PAGE_SIZE`] bytes.
        pages: usize,
    },
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DmaError::OutOfMemory { pages } => write!(f, "no {pages} contiguous pages of DMA memory"),
        }
    }
}

/// One allocation; freed when the last table, cell or handle over it is dropped.
struct Pages {
    base: NonNull<u8>,
    pages: usize,
    free: unsafe fn(NonNull<u8>, usize),
}

// SAFETY: the memory belongs to this value alone and is reached only through atomics (or raw pointers, whose users
// answer for themselves).
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: base and pages came from the allocation that `free` belongs to, and the last handle is gone. That
        // no device uses the memory any more is the promise of whoever owned the ring (see `device::Quiesced`).
        unsafe { (self.free)(self.base, self.pages) }
    }
}

/// A block of page-aligned memory that the device reaches at the same address.
#[derive(Clone)]
pub struct DmaMemory(Arc<Pages>);

impl DmaMemory {
    /// Allocates at least `bytes` bytes, zeroed.
    pub fn allocate<H: Hal>(bytes: usize) -> Result<DmaMemory, DmaError> {
        let memory = DmaMemory::allocate_untouched::<H>(bytes)?;
        // SAFETY: the block is ours alone, and this long.
        unsafe { memory.0.base.write_bytes(0, memory.len()) };
        Ok(memory)
    }

    /// Allocates at least `bytes` bytes that have any value.
    pub(crate) fn allocate_untouched<H: Hal>(bytes: usize) -> Result<DmaMemory, DmaError> {
        let pages = bytes.div_ceil(PAGE_SIZE).max(1);
        let base = H::dma_allocate(pages).ok_or(DmaError::OutOfMemory { pages })?;
        Ok(DmaMemory(Arc::new(Pages { base, pages, free: H::dma_free })))
    }

    /// The usable length in bytes.
    pub fn len(&self) -> usize {
        self.0.pages * PAGE_SIZE
    }

    /// Never true: an allocation has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address of byte `offset`, as CPU and device use it.
    ///
    /// # Panics
    /// Where `offset` is outside the block: a layout error at set-up.
    pub fn address(&self, offset: usize) -> u64 {
        assert!(offset < self.len(), "offset {offset} outside a DMA block of {} bytes", self.len());
        self.0.base.as_ptr() as u64 + offset as u64
    }

    /// The first byte, for code that lays out the block itself.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// A table of `len` words from byte `offset` on.
    ///
    /// # Panics
    /// Where the table does not fit, is not aligned, or `len` is not a power of two: a layout error at set-up.
    pub fn table<T: Word>(&self, offset: usize, len: usize) -> Table<T> {
        assert!(len.is_power_of_two(), "a table of {len} words");
        Table { base: self.place::<T>(offset, len), mask: len - 1, _memory: self.clone(), _word: PhantomData }
    }

    /// The one word at byte `offset`.
    ///
    /// # Panics
    /// Where the word does not fit or is not aligned: a layout error at set-up.
    pub fn cell<T: Word>(&self, offset: usize) -> Cell<T> {
        Cell(self.table(offset, 1))
    }

    fn place<T: Word>(&self, offset: usize, len: usize) -> NonNull<T::Atomic> {
        let size = size_of::<T>();
        assert!(offset.is_multiple_of(size), "offset {offset} is not aligned to {size}");
        let end = len.checked_mul(size).and_then(|bytes| bytes.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len()), "{len} words at {offset} leave the block");
        // SAFETY: `offset` lies inside the allocation.
        unsafe { self.0.base.byte_add(offset).cast() }
    }
}

/// A word that the CPU and the device read and write whole.
pub trait Word: Copy + PartialEq + sealed::Sealed {
    /// The atomic of the same layout.
    type Atomic;
    #[doc(hidden)]
    fn load(atomic: &Self::Atomic) -> Self;
    #[doc(hidden)]
    fn store(atomic: &Self::Atomic, value: Self);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl sealed::Sealed for $word {}
        impl Word for $word {
            type Atomic = $atomic;
            #[inline(always)]
            fn load(atomic: &$atomic) -> $word {
                atomic.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn store(atomic: &$atomic, value: $word) {
                atomic.store(value, Ordering::Relaxed);
            }
        }
    };
}

word!(u8, AtomicU8);
word!(u16, AtomicU16);
word!(u32, AtomicU32);
word!(u64, AtomicU64);

/// A power of two of words shared with the device. Indices wrap at the length, as ring indices do.
pub struct Table<T: Word> {
    base: NonNull<T::Atomic>,
    mask: usize,
    _memory: DmaMemory,
    _word: PhantomData<T>,
}

// SAFETY: all access is atomic, and the memory lives as long as the table.
unsafe impl<T: Word> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Word> Sync for Table<T> {}

impl<T: Word> Table<T> {
    /// The words, for a loop: a value of its own stays in registers, whatever is written meanwhile.
    #[inline(always)]
    pub fn words(&self) -> Words<'_, T> {
        Words { base: self.base, mask: self.mask, _memory: PhantomData }
    }

    /// The word at `index` modulo the length.
    #[inline(always)]
    pub fn read(&self, index: usize) -> T {
        self.words().read(index)
    }

    /// Writes the word at `index` modulo the length.
    #[inline(always)]
    pub fn write(&self, index: usize, value: T) {
        self.words().write(index, value);
    }

    /// Asks the CPU to fetch the word at `index` modulo the length, and what lies in its cache line, for writing.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        prefetch::for_writing(self.words().word(index));
    }

    /// Moves the word at `index` to the front, with all behind it; what was before it comes behind them. No word is
    /// written by the device meanwhile.
    pub(crate) fn rotate_left(&self, index: usize) {
        let reverse = |begin: usize, end: usize| {
            for (low, high) in (begin..end).zip((begin..end).rev()).take((end - begin) / 2) {
                let (first, second) = (self.read(low), self.read(high));
                self.write(low, second);
                self.write(high, first);
            }
        };
        let (middle, end) = (index & self.mask, self.mask + 1);
        reverse(0, middle);
        reverse(middle, end);
        reverse(0, end);
    }
}

/// The words of a [`Table`].
pub struct Words<'a, T: Word> {
    base: NonNull<T::Atomic>,
    mask: usize,
    _memory: PhantomData<&'a T>,
}

impl<T: Word> Clone for Words<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Word> Copy for Words<'_, T> {}

impl<T: Word> Words<'_, T> {
    /// The word at `index` modulo the length.
    #[inline(always)]
    pub fn read(self, index: usize) -> T {
        T::load(self.word(index))
    }

    /// Writes the word at `index` modulo the length.
    #[inline(always)]
    pub fn write(self, index: usize, value: T) {
        T::store(self.word(index), value);
    }

    /// Writes the word at `index` modulo the length unless it has that value: the device's copy of the line, which it
    /// would have to fetch again, stays good.
    #[inline(always)]
    pub fn update(self, index: usize, value: T) {
        if self.read(index) != value {
            self.write(index, value);
        }
    }

    /// As [`update`](Self::update), for the word at the even `index` and the one behind it.
    #[inline(always)]
    pub fn update_pair(self, index: usize, [first, second]: [T; 2]) {
        let first_index = index & self.mask & !1;
        self.update(first_index, first);
        self.update(first_index | 1, second);
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &T::Atomic {
        // SAFETY: `place` checked that mask + 1 aligned words lie in memory that the table keeps alive, which is borrowed;
        // the masked index is one of them. The memory has a value, and every bit pattern is one of the atomic.
        unsafe { self.base.add(index & self.mask).as_ref() }
    }
}

/// One word shared with the device.
pub struct Cell<T: Word>(Table<T>);

impl<T: Word> Cell<T> {
    /// Reads the word.
    #[inline(always)]
    pub fn read(&self) -> T {
        self.0.read(0)
    }

    /// Writes the word.
    #[inline(always)]
    pub fn write(&self, value: T) {
        self.0.write(0, value);
    }
}

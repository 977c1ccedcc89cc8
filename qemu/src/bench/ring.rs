//! The device's side of a virtqueue in plain memory (virtio 1.2, 2.7 and 2.8): as little work as a device can have.
//!
//! Buffers are used one descriptor at a time, in the order in which they were given, and no notification is wanted. The
//! driver is one of this project or of a peer that is measured: what it writes is believed, as far as the rings go.

#![allow(unsafe_code)] // Rings at addresses that a driver has given.

mod packed;
mod split;

use self::packed::PackedRing;
use self::split::SplitRing;

/// Where a queue lies in the memory of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Areas {
    /// Descriptors, a power of two.
    pub(super) size: usize,
    /// The descriptors.
    pub(super) descriptors: u64,
    /// The driver's area: the available ring, or its event suppression structure.
    pub(super) driver: u64,
    /// The device's area: the used ring, or its event suppression structure.
    pub(super) device: u64,
}

/// How a virtqueue is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// Three tables.
    Split,
    /// One ring of descriptors that both sides write (`VIRTIO_F_RING_PACKED`).
    Packed,
}

/// A queue as the device sees it.
pub(super) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

impl Ring {
    /// A fresh queue.
    ///
    /// # Safety
    /// The areas are those of a queue of that layout and size, aligned as the specification asks, and stay mapped as
    /// long as the ring is used. Whoever else uses them does so with atomics.
    pub(super) unsafe fn new(layout: Layout, areas: Areas) -> Ring {
        match layout {
            // SAFETY: the caller's promise.
            Layout::Split => Ring::Split(unsafe { SplitRing::new(areas) }),
            // SAFETY: as above.
            Layout::Packed => Ring::Packed(unsafe { PackedRing::new(areas) }),
        }
    }

    /// Shows `look` the driver's addresses of up to `most` buffers that are there to be used.
    #[inline(always)]
    pub(super) fn survey(&self, most: usize, look: impl FnMut(u64)) {
        match self {
            Ring::Split(ring) => ring.survey(most, look),
            Ring::Packed(ring) => ring.survey(most, look),
        }
    }

    /// Uses up to `most` buffers, each after `work` has seen the driver's address of it, and says that so many bytes
    /// were written to each. Returns how many there were.
    #[inline(always)]
    pub(super) fn consume(&mut self, most: usize, written: u32, work: impl FnMut(u64)) -> usize {
        match self {
            Ring::Split(ring) => ring.consume(most, written, work),
            Ring::Packed(ring) => ring.consume(most, written, work),
        }
    }
}

/// `len` words at `address`.
///
/// # Safety
/// They lie there, aligned, for as long as the slice is used, and everyone uses them with atomics.
unsafe fn words<T>(address: u64, len: usize) -> &'static [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address as *const T, len) }
}

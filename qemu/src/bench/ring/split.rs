//! A split ring (virtio 1.2, 2.7).

#![allow(unsafe_code)] // Rings at addresses that a driver has given.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

use super::{Areas, words};

/// `VIRTQ_USED_F_NO_NOTIFY`: no notifications, please.
const NO_NOTIFY: u16 = 1;

pub(in crate::bench) struct SplitRing {
    descriptors: &'static [AtomicU64],
    available_index: &'static AtomicU16,
    available: &'static [AtomicU16],
    used_index: &'static AtomicU16,
    used: &'static [AtomicU64],
    /// Buffers used so far, modulo 2^16.
    position: u16,
}

impl SplitRing {
    /// # Safety
    /// As [`Ring::new`](super::Ring::new).
    pub(super) unsafe fn new(areas: Areas) -> SplitRing {
        let Areas { size, descriptors, driver, device } = areas;
        // SAFETY: the caller's promise; each table has the length that a queue of this size gives it.
        unsafe {
            // Flags and index stand before each ring.
            let available: &[AtomicU16] = words(driver, 2 + size);
            let used: &[AtomicU16] = words(device, 2);
            used[0].store(NO_NOTIFY, Ordering::Relaxed);
            SplitRing {
                descriptors: words(descriptors, 2 * size),
                available_index: &available[1],
                available: &available[2..],
                used_index: &used[1],
                used: words(device + 4, size),
                position: 0,
            }
        }
    }

    #[inline(always)]
    pub(super) fn survey(&self, most: usize, mut look: impl FnMut(u64)) {
        for ahead in 0..most.min(self.offered()) {
            let slot = (usize::from(self.position) + ahead) & (self.used.len() - 1);
            let id = self.available[slot].load(Ordering::Relaxed);
            look(self.descriptors[2 * usize::from(id)].load(Ordering::Relaxed));
        }
    }

    /// Buffers that the driver has offered and that are not used.
    #[inline(always)]
    fn offered(&self) -> usize {
        usize::from(self.available_index.load(Ordering::Acquire).wrapping_sub(self.position))
    }

    #[inline(always)]
    pub(super) fn consume(&mut self, most: usize, written: u32, mut work: impl FnMut(u64)) -> usize {
        let count = most.min(self.offered());
        if count == 0 {
            return 0;
        }
        for _ in 0..count {
            let slot = usize::from(self.position) & (self.used.len() - 1);
            let id = self.available[slot].load(Ordering::Relaxed);
            work(self.descriptors[2 * usize::from(id)].load(Ordering::Relaxed));
            self.used[slot].store(u64::from(id) | u64::from(written) << 32, Ordering::Relaxed);
            self.position = self.position.wrapping_add(1);
        }
        fence(Ordering::Release);
        self.used_index.store(self.position, Ordering::Relaxed);
        count
    }
}

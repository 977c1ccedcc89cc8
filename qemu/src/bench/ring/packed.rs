//! A packed ring (virtio 1.2, 2.8).

#![allow(unsafe_code)] // Rings at addresses that a driver has given.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::{Areas, words};

/// `VIRTQ_DESC_F_AVAIL` and `VIRTQ_DESC_F_USED`: against the wrap counter they say whose a descriptor is (2.8.1).
const AVAILABLE: u64 = 1 << (48 + 7);
const USED: u64 = 1 << (48 + 15);
/// `VIRTQ_DESC_F_WRITE`, which a used descriptor keeps where its length counts (2.8.4).
const WRITE: u64 = 1 << (48 + 1);
/// The buffer's id.
const ID: u64 = 0xffff << 32;
/// `RING_EVENT_FLAGS_DISABLE`: no notifications, please (2.8.10).
const EVENTS_DISABLED: u16 = 1;

pub(in crate::bench) struct PackedRing {
    /// Of each descriptor the address, then length, id and flags in one word: it is handed over by one store.
    descriptors: &'static [AtomicU64],
    position: usize,
    wrap: bool,
}

impl PackedRing {
    /// # Safety
    /// As [`Ring::new`](super::Ring::new).
    pub(super) unsafe fn new(areas: Areas) -> PackedRing {
        let Areas { size, descriptors, driver: _, device } = areas;
        // SAFETY: the caller's promise; a descriptor has 16 bytes, an event suppression structure four.
        unsafe {
            let events: &[AtomicU16] = words(device, 2);
            events[1].store(EVENTS_DISABLED, Ordering::Relaxed);
            PackedRing { descriptors: words(descriptors, 2 * size), position: 0, wrap: true }
        }
    }

    #[inline(always)]
    pub(super) fn survey(&self, most: usize, mut look: impl FnMut(u64)) {
        let mut ahead = PackedRing { ..*self };
        for _ in 0..most {
            if ahead.offered().is_none() {
                break;
            }
            look(ahead.descriptors[2 * ahead.position].load(Ordering::Relaxed));
            ahead.advance();
        }
    }

    #[inline(always)]
    pub(super) fn consume(&mut self, most: usize, written: u32, mut work: impl FnMut(u64)) -> usize {
        let mut first = None;
        let mut count = 0;
        while count < most
            && let Some(id) = self.offered()
        {
            let at = 2 * self.position;
            work(self.descriptors[at].load(Ordering::Relaxed));
            let used = self.used(id, written);
            // The first is handed over last, and all others with it.
            match first {
                None => first = Some((at, used)),
                Some(_) => self.descriptors[at + 1].store(used, Ordering::Relaxed),
            }
            self.advance();
            count += 1;
        }
        if let Some((at, used)) = first {
            self.descriptors[at + 1].store(used, Ordering::Release);
        }
        count
    }

    /// The id of the next buffer, at its place in the word, if the driver has given one.
    #[inline(always)]
    fn offered(&self) -> Option<u64> {
        let word = self.descriptors[2 * self.position + 1].load(Ordering::Acquire);
        let is_ours = (word & AVAILABLE != 0) == self.wrap && (word & USED != 0) != self.wrap;
        is_ours.then_some(word & ID)
    }

    #[inline(always)]
    fn used(&self, id: u64, written: u32) -> u64 {
        let owner = if self.wrap { AVAILABLE | USED } else { 0 };
        let write = if written > 0 { WRITE } else { 0 };
        id | u64::from(written) | owner | write
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.position += 1;
        if 2 * self.position == self.descriptors.len() {
            self.position = 0;
            self.wrap = !self.wrap;
        }
    }
}

//! Receiving: acquire, check, take, re-arm.

use super::descriptor::RxStatus;
use super::interrupt::Interrupt;
use super::ring::PacketRing;
use crate::device::{RxDrops, RxQueue};
use crate::dma::acquire;
use crate::mmio::Bar;
use crate::packet::Burst;
use crate::pool::PoolCache;

/// The tail register is written when this many buffers are new to the device, and whenever it has no more frames than were
/// asked for: a write costs as much as several packets.
const PUBLISH_AT: u64 = 16;

/// A receive queue.
pub struct IxgbeRx<B: Bar> {
    ring: PacketRing<B>,
    interrupt: Interrupt<B>,
    /// Free bytes before a frame. What is behind them is the device's, as long as it believes a buffer to be.
    headroom: usize,
    /// The descriptor that the device completes next.
    next: u64,
    /// Descriptors before this have a buffer; the device knows of those before `published`.
    armed: u64,
    published: u64,
    /// The frame at hand goes on in the next descriptor.
    is_amid_frame: bool,
    drops: RxDrops,
}

impl<B: Bar> IxgbeRx<B> {
    pub(super) fn new(ring: PacketRing<B>, interrupt: Interrupt<B>, headroom: usize) -> IxgbeRx<B> {
        IxgbeRx {
            ring,
            interrupt,
            headroom,
            next: 0,
            armed: 0,
            published: 0,
            is_amid_frame: false,
            drops: RxDrops::default(),
        }
    }

    /// Gives the device as many buffers as it has descriptors, or as the pool has.
    pub(super) fn fill(&mut self, cache: &mut PoolCache) {
        self.rearm(cache);
        self.publish();
    }

    /// How many descriptors the device has completed, at most `limit`. Their frames are on the way to the cache after this.
    #[inline(always)]
    fn completed(&self, limit: usize) -> u64 {
        let most = (self.published - self.next).min(limit as u64);
        let mut count = 0;
        while count < most && RxStatus(self.ring.word(self.next + count)).is_done() {
            if let Some(packet) = self.ring.packet(self.next + count) {
                packet.prefetch();
            }
            count += 1;
        }
        acquire();
        count
    }

    /// Re-arm: every free descriptor gets a buffer while the pool has any. What is left is armed at a later
    /// call, so a ring that ran dry recovers by itself.
    #[inline(always)]
    fn rearm(&mut self, cache: &mut PoolCache) {
        let free = self.ring.capacity() - (self.armed - self.next);
        for _ in 0..free {
            let Some(mut packet) = cache.take() else { break };
            packet.clear_behind(self.headroom);
            self.ring.put(self.armed, packet, 0);
            self.armed += 1;
        }
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.published != self.armed && self.ring.publish(self.armed) {
            self.published = self.armed;
            self.ring.gate().notice().set(self.ring.index(self.next), self.ring.index(self.published));
        }
    }

    /// After a reset of the card: the buffers are posted anew, and the frames in them that nobody took are lost. False
    /// while the reset lasts.
    #[cold]
    fn start_over(&mut self) -> bool {
        if !self.ring.gate_mut().renew() {
            return false;
        }
        for position in self.next..self.published {
            let status = RxStatus(self.ring.word(position));
            self.drops.reset += u64::from(status.is_done() && status.ends_frame());
        }
        self.is_amid_frame = false;
        self.ring.rewind(self.next);
        (self.armed, self.next, self.published) = (self.armed - self.next, 0, 0);
        for position in 0..self.armed {
            let address = self.ring.packet(position).map_or(0, |packet| packet.address());
            self.ring.describe(position, address, 0);
        }
        self.publish();
        true
    }

    /// What is wrong with a completed descriptor, if anything. A frame that spans descriptors counts once, where it ends.
    #[inline(always)]
    fn check(&mut self, status: RxStatus) -> Result<(), Bad> {
        if status.ends_frame() && !self.is_amid_frame && !status.is_damaged() {
            return Ok(());
        }
        let was_amid_frame = self.is_amid_frame;
        self.is_amid_frame = !status.ends_frame();
        Err(match (self.is_amid_frame, was_amid_frame) {
            (true, _) => Bad::Part,
            (false, true) => Bad::Oversize,
            (false, false) => Bad::Damaged,
        })
    }

    #[cold]
    fn count(&mut self, bad: Bad) {
        match bad {
            Bad::Part => {}
            Bad::Oversize => self.drops.oversize += 1,
            Bad::Truncated => self.drops.truncated += 1,
            Bad::Damaged => self.drops.damaged += 1,
        }
    }
}

impl<B: Bar> RxQueue for IxgbeRx<B> {
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        if self.ring.gate().is_stale() && !self.start_over() {
            return 0;
        }
        self.interrupt.disarm(self.ring.gate());
        let before = burst.len();
        let limit = limit.min(burst.remaining_capacity());
        // Acquire: what the device wrote before it marked a descriptor is visible from here on.
        let completed = self.completed(limit);
        for _ in 0..completed {
            let status = RxStatus(self.ring.word(self.next));
            let packet = self.ring.take(self.next);
            self.next += 1;
            let Some(mut packet) = packet else { continue };
            // Check: one frame, whole, and of a length that the buffer has.
            let checked = self.check(status).and_then(|()| match status.len() {
                0 => Err(Bad::Truncated),
                len if packet.set_len(len) => Ok(()),
                _ => Err(Bad::Oversize),
            });
            if let Err(bad) = checked {
                self.count(bad);
                cache.put(packet);
                continue;
            }
            // Take.
            burst.push(packet);
        }
        self.rearm(cache);
        if self.armed - self.published >= PUBLISH_AT || (completed as usize) < limit {
            self.publish();
        }
        burst.len() - before
    }

    fn arm(&mut self) -> bool {
        if self.ring.gate().is_stale() {
            // While the card is reset there is nothing to wait for but its end, and no interrupt for that.
            return self.ring.gate().is_closed();
        }
        self.interrupt.arm(self.ring.gate());
        self.published == self.next || !RxStatus(self.ring.word(self.next)).is_done()
    }

    fn drops(&self) -> RxDrops {
        self.drops
    }
}

/// Why a descriptor brings no packet.
#[derive(Clone, Copy)]
enum Bad {
    /// The frame goes on behind it.
    Part,
    /// Longer than a buffer.
    Oversize,
    /// Nothing was written.
    Truncated,
    /// The device found an error in it.
    Damaged,
}

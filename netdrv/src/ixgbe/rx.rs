//! Receiving: acquire, check, take, re-arm.

use super::descriptor::{DESCRIPTOR_SIZE, RxStatus};
use super::interrupt::Interrupt;
use super::ring::PacketRing;
use crate::device::{RxDrops, RxQueue};
use crate::dma::acquire;
use crate::mmio::Bar;
use crate::packet::{Burst, MAX_BURST, Packet};
use crate::pool::PoolCache;

/// The tail register is written when this many buffers are new to the device, and whenever it has no more frames than were
/// asked for: a write costs as much as several packets.
const PUBLISH_AT: u64 = 16;

/// Under load, when the last burst was full, a burst is taken when one more is complete behind it, of so many frames at most.
/// So the driver keeps off the descriptors that the device is writing, of which four share a cache line, and can ask for
/// frames a burst before it needs them: a bare loop comes down from 50 to 40 cycles a packet by that, at bursts of 32.
const LAG: usize = 32;
/// Descriptors in a cache line: with shorter bursts there is no keeping off.
const LINE: usize = 64 / DESCRIPTOR_SIZE;
/// How many calls such a burst is waited for: a microsecond or two, about as long as 32 frames take at line rate.
const PATIENCE: u32 = 32;

/// A receive queue. The packets of its ring are buffers that wait for a frame.
pub struct IxgbeRx<B: Bar> {
    ring: PacketRing<B>,
    interrupt: Interrupt<B>,
    /// Free bytes before a frame. What is behind them is the device's, as long as it believes a buffer to be.
    headroom: usize,
    /// The device knows of the buffers before this.
    published: u64,
    /// Frames before this are on their way to the cache.
    fetched: u64,
    /// How often a burst is waited for from now on: not at all, unless the last one was full.
    patience: u32,
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
            published: 0,
            fetched: 0,
            patience: 0,
            is_amid_frame: false,
            drops: RxDrops::default(),
        }
    }

    /// Gives the device as many buffers as it has descriptors, or as the pool has.
    pub(super) fn fill(&mut self, cache: &mut PoolCache) {
        self.rearm(cache);
        self.publish();
    }

    /// How many descriptors the device has completed and the driver is to take now, at most `limit`. Their frames are on the
    /// way to the cache after this, and so are those that come next, as far as they are known.
    #[inline(always)]
    fn completed(&mut self, limit: usize) -> usize {
        let posted = (self.published - self.ring.first()) as usize;
        let lag = LAG.min(limit).min(posted / 4);
        let is_behind = limit + lag <= posted && lag > 0 && self.is_done(limit + lag - 1);
        if !is_behind && self.patience > 0 {
            self.patience -= 1;
            return 0;
        }
        let most = limit.min(posted);
        let count = (0..most).take_while(|&index| self.is_done(index)).count();
        acquire();
        self.patience = if count == limit && limit >= LINE { PATIENCE } else { 0 };
        self.fetch(if is_behind { count + lag } else { count });
        count
    }

    /// Whether the device has completed the descriptor of the `index`-th buffer.
    #[inline(always)]
    fn is_done(&self, index: usize) -> bool {
        RxStatus(self.ring.word(self.ring.first() + index as u64)).is_done()
    }

    /// Asks for the first lines of the next `count` frames.
    #[inline(always)]
    fn fetch(&mut self, count: usize) {
        let first = self.ring.first();
        let end = first + count as u64;
        let begin = self.fetched.max(first);
        self.ring
            .oldest((begin - first) as usize, end.saturating_sub(begin) as usize)
            .for_each(Packet::prefetch);
        self.fetched = begin.max(end);
    }

    /// Re-arm: every free descriptor gets a buffer while the pool has any. What is left is armed at a later
    /// call, so a ring that ran dry recovers by itself.
    #[inline(always)]
    fn rearm(&mut self, cache: &mut PoolCache) {
        let headroom = self.headroom;
        while self.ring.room() > 0 {
            let mut fresh = Burst::new();
            cache.take_many(self.ring.room().min(MAX_BURST), |mut packet| {
                packet.clear_behind(headroom);
                fresh.push(packet);
            });
            if fresh.is_empty() {
                break;
            }
            let count = fresh.len();
            self.ring.append(&mut fresh, count, |_| 0);
        }
    }

    #[inline(always)]
    fn publish(&mut self) {
        let end = self.ring.end();
        if self.published != end && self.ring.publish(end) {
            self.published = end;
            self.ring.gate().notice().set(self.ring.index(self.ring.first()), self.ring.index(end));
        }
    }

    /// Takes `count` completed descriptors where something is wrong with one of them.
    #[cold]
    fn sort_out(&mut self, count: usize, cache: &mut PoolCache, burst: &mut Burst) {
        for _ in 0..count {
            let status = RxStatus(self.ring.word(self.ring.first()));
            let Some(mut packet) = self.ring.take(1).next() else { return };
            let was_amid_frame = core::mem::replace(&mut self.is_amid_frame, !status.ends_frame());
            if !was_amid_frame && is_sound(&mut packet, status) {
                burst.push(packet);
                continue;
            }
            cache.put(packet);
            let drops = &mut self.drops;
            match () {
                // A frame that spans descriptors counts once, where it ends.
                () if !status.ends_frame() => {}
                () if was_amid_frame => drops.oversize += 1,
                () if status.is_damaged() => drops.damaged += 1,
                () if status.len() == 0 => drops.truncated += 1,
                () => drops.oversize += 1,
            }
        }
    }

    /// After a reset of the card: the buffers are posted anew, and the frames in them that nobody took are lost. False
    /// while the reset lasts.
    #[cold]
    fn start_over(&mut self) -> bool {
        if !self.ring.gate_mut().renew() {
            return false;
        }
        for position in self.ring.first()..self.published {
            let status = RxStatus(self.ring.word(position));
            self.drops.reset += u64::from(status.is_done() && status.ends_frame());
        }
        self.is_amid_frame = false;
        self.ring.rewind(|_| 0);
        (self.published, self.fetched, self.patience) = (0, 0, 0);
        self.publish();
        true
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
        // Check: each descriptor one frame, whole, and of a length that the buffer has. Take.
        if !self.is_amid_frame && self.ring.check(completed, |packet, word| is_sound(packet, RxStatus(word)))
        {
            self.ring.move_to(burst, completed);
        } else {
            self.sort_out(completed, cache, burst);
        }
        self.rearm(cache);
        if self.ring.end() - self.published >= PUBLISH_AT || completed < limit {
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
        let first = self.ring.first();
        self.published == first || !RxStatus(self.ring.word(first)).is_done()
    }

    fn drops(&self) -> RxDrops {
        self.drops
    }
}

/// Whether a completed descriptor holds one whole frame; the packet is then of its length.
#[inline(always)]
fn is_sound(packet: &mut Packet, status: RxStatus) -> bool {
    status.is_whole_frame() && status.len() > 0 && packet.set_len(status.len())
}

//! Receiving: acquire, check, take, re-arm.

use super::descriptor::{DESCRIPTOR_SIZE, RxStatus};
use super::interrupt::Interrupt;
use super::ring::PacketRing;
use crate::device::{RxDrops, RxQueue};
use crate::dma::acquire;
use crate::mmio::Bar;
use crate::packet::{BUFFER_SIZE, Burst};
use crate::pool::PoolCache;

/// The tail register is written when this many buffers are new to the device, at most and at least: an eighth of the ring in
/// between. It is also written whenever the device has no more frames than were asked for. A write costs as much as several
/// packets: at bursts of 32, one for two of them saves 3 cycles of 58 a packet.
const PUBLISH_AT: (usize, usize) = (64, 16);

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
    /// How many more there are when it is told.
    publish_at: u64,
    /// Frames before this are on their way to the cache.
    fetched: u64,
    /// How often a burst is waited for from now on: not at all, unless the last one was full.
    patience: u32,
    /// Whether this core looks at frames.
    are_read: bool,
    /// The frame at hand goes on in the next descriptor.
    is_amid_frame: bool,
    drops: RxDrops,
}

impl<B: Bar> IxgbeRx<B> {
    pub(super) fn new(ring: PacketRing<B>, interrupt: Interrupt<B>, headroom: usize) -> IxgbeRx<B> {
        let (most, least) = PUBLISH_AT;
        IxgbeRx {
            publish_at: (ring.size() / 8).clamp(least, most) as u64,
            ring,
            interrupt,
            headroom,
            published: 0,
            fetched: 0,
            patience: 0,
            are_read: true,
            is_amid_frame: false,
            drops: RxDrops::default(),
        }
    }

    /// Gives the device as many buffers as it has descriptors, or as the pool has.
    pub(super) fn fill(&mut self, cache: &mut PoolCache) {
        self.rearm(cache);
        self.publish();
    }

    /// How many descriptors the driver is to look at now, at most `limit`. Under load their frames are on the way to the
    /// cache after this, and so are those that come next.
    #[inline(always)]
    fn due(&mut self, limit: usize) -> usize {
        let posted = (self.published - self.ring.first()) as usize;
        let lag = LAG.min(limit).min(posted / 4);
        let is_behind = limit + lag <= posted && lag > 0 && self.is_done(limit + lag - 1);
        if is_behind {
            if self.are_read {
                self.fetch(limit + lag);
            }
        } else if self.patience > 0 {
            self.patience -= 1;
            return 0;
        }
        self.patience = 0;
        limit.min(posted)
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
        let headroom = self.headroom;
        self.ring
            .oldest((begin - first) as usize, end.saturating_sub(begin) as usize)
            .for_each(|buffer| buffer.prefetch(headroom));
        self.fetched = begin.max(end);
    }

    /// Re-arm: every free descriptor gets a buffer while the pool has any. What is left is armed at a later
    /// call, so a ring that ran dry recovers by itself.
    #[inline(always)]
    fn rearm(&mut self, cache: &mut PoolCache) {
        let headroom = self.headroom;
        loop {
            let room = self.ring.room();
            self.ring.append(cache.take_back(room, 0).map(|buffer| {
                let address = buffer.address(headroom);
                (buffer, [address, 0])
            }));
            if self.ring.room() == 0 || self.ring.room() == room {
                break;
            }
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

    /// Takes `most` completed descriptors where something is wrong with the first of them.
    #[cold]
    fn sort_out(&mut self, most: usize, cache: &mut PoolCache, burst: &mut Burst) {
        for _ in 0..most {
            let done = |word| Some(RxStatus(word)).filter(|status| status.is_done());
            let Some((buffer, status)) = self.ring.take_if(done) else { return };
            acquire();
            let was_amid_frame = core::mem::replace(&mut self.is_amid_frame, !status.ends_frame());
            if !was_amid_frame && let Some(len) = sound_len(status.0, BUFFER_SIZE - self.headroom) {
                burst.push(buffer.into_frame(self.headroom, len));
                continue;
            }
            cache.put_free(buffer);
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
        self.ring.rewind();
        for (position, buffer) in (0..).zip(self.ring.oldest(0, usize::MAX)) {
            self.ring.describe(position, [buffer.address(self.headroom), 0]);
        }
        (self.published, self.fetched, self.patience) = (0, 0, 0);
        self.publish();
        true
    }
}

impl<B: Bar> RxQueue for IxgbeRx<B> {
    /// A call a burst costs nothing, and what it may assume of its arguments saves more than that.
    #[inline(never)]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        if self.ring.gate().is_stale() && !self.start_over() {
            return 0;
        }
        self.interrupt.disarm(self.ring.gate());
        let (before, first) = (burst.len(), self.ring.first());
        let limit = limit.min(burst.remaining_capacity());
        let due = self.due(limit);
        // Check: each descriptor one frame, whole, and of a length that the buffer has. Take.
        let capacity = BUFFER_SIZE - self.headroom;
        let most = if self.is_amid_frame { 0 } else { due };
        let sound = self.ring.take_frames(burst, most, self.headroom, |word| sound_len(word, capacity));
        // Acquire: what the device wrote before it marked these descriptors is visible from here on.
        acquire();
        if sound < due && self.is_done(0) {
            self.sort_out(due - sound, cache, burst);
        }
        let completed = (self.ring.first() - first) as usize;
        if completed == limit && limit >= LINE {
            self.patience = PATIENCE;
        }
        self.rearm(cache);
        if self.ring.end() - self.published >= self.publish_at || completed < limit {
            self.publish();
        }
        burst.len() - before
    }

    fn leave_unread(&mut self) {
        self.are_read = false;
    }

    /// It always is.
    fn keep_full(&mut self) {}

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

/// The length of the frame, where a descriptor is completed and holds one whole frame that the buffer has room for.
#[inline(always)]
fn sound_len(word: u64, capacity: usize) -> Option<usize> {
    let status = RxStatus(word);
    (status.is_whole_frame() && (1..=capacity).contains(&status.len())).then_some(status.len())
}

//! Receiving: acquire, check, take, re-arm.

use super::HEADER_LEN;
use super::features::Features;
use super::order::{AnyOrder, InOrder, Order};
use super::packed::PackedQueue;
use super::ring::{Fault, PacketRing, for_any_kind};
use super::split::SplitQueue;
use super::virtqueue::{AnyQueue, DESCRIPTOR_WRITE, Part, Virtqueue};
use crate::device::{Quiesced, RxDrops, RxQueue};
use crate::packet::{Burst, FRAME_CAPACITY, MAX_BURST, Packet};
use crate::pool::{FreeBuffer, PoolCache};

/// What the device may write to a buffer: its header, in the headroom, and the frame, from a cache line on.
/// Nothing in the header is of use to us: no offload is negotiated, and a frame never spans buffers.
const WRITABLE: u32 = (HEADER_LEN + FRAME_CAPACITY) as u32;

/// Completions that are left to a device that goes on: four lines of the used ring, and a burst of frames whose lines may
/// still be on their way.
const BEHIND: usize = 32;

/// A receive queue.
pub struct VirtioRx(Kind);

/// Chosen once, from the negotiated features.
enum Kind {
    Split(RxRing<SplitQueue, AnyOrder>),
    SplitInOrder(RxRing<SplitQueue, InOrder>),
    Packed(RxRing<PackedQueue, AnyOrder>),
    PackedInOrder(RxRing<PackedQueue, InOrder>),
}

impl VirtioRx {
    pub(super) fn new(queue: AnyQueue, features: Features, fault: Fault, quiesced: Quiesced) -> VirtioRx {
        let in_order = features.contains(Features::IN_ORDER);
        VirtioRx(match queue {
            AnyQueue::Split(queue) if in_order => Kind::SplitInOrder(RxRing::new(queue, fault, quiesced)),
            AnyQueue::Split(queue) => Kind::Split(RxRing::new(queue, fault, quiesced)),
            AnyQueue::Packed(queue) if in_order => Kind::PackedInOrder(RxRing::new(queue, fault, quiesced)),
            AnyQueue::Packed(queue) => Kind::Packed(RxRing::new(queue, fault, quiesced)),
        })
    }

    /// Gives the device as many buffers as it has descriptors, or as the pool has.
    pub(super) fn fill(&mut self, cache: &mut PoolCache) {
        for_any_kind!(&mut self.0, ring => ring.fill(cache));
    }
}

impl RxQueue for VirtioRx {
    #[inline]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        for_any_kind!(&mut self.0, ring => match ring.are_read {
            true => ring.receive(cache, burst, limit, Packet::prefetch),
            false => ring.receive(cache, burst, limit, |_| {}),
        })
    }

    fn leave_unread(&mut self) {
        for_any_kind!(&mut self.0, ring => ring.are_read = false);
    }

    fn keep_full(&mut self) {
        for_any_kind!(&mut self.0, ring => ring.on_their_way = 0);
    }

    fn arm(&mut self) -> bool {
        for_any_kind!(&mut self.0, ring => ring.ring.arm())
    }

    fn drops(&self) -> RxDrops {
        for_any_kind!(&self.0, ring => ring.drops)
    }
}

struct RxRing<Q: Virtqueue, O: Order> {
    ring: PacketRing<Q, O>,
    /// Buffers that a busy worker has in its hands and in a transmit ring, of a short ring three quarters; none where they never
    /// come back.
    on_their_way: usize,
    /// Whether this core looks at frames.
    are_read: bool,
    drops: RxDrops,
}

impl<Q: Virtqueue, O: Order> RxRing<Q, O> {
    fn new(queue: Q, fault: Fault, quiesced: Quiesced) -> Self {
        let ring = PacketRing::<Q, O>::new(queue, WRITABLE, fault, quiesced);
        let on_their_way = (3 * MAX_BURST).min(ring.room() / 4 * 3);
        RxRing { ring, on_their_way, are_read: true, drops: RxDrops::default() }
    }

    fn fill(&mut self, cache: &mut PoolCache) {
        let mut before = 0;
        while self.ring.room() != before {
            before = self.ring.room();
            self.rearm(cache, 0);
        }
        self.ring.settle();
    }

    /// See [`RxQueue::receive`]; `fetch` asks for what is read of a packet. A call a burst costs nothing, and tools can tell
    /// what is spent here.
    #[inline(never)]
    fn receive(
        &mut self,
        cache: &mut PoolCache,
        burst: &mut Burst,
        limit: usize,
        fetch: impl Fn(&Packet),
    ) -> usize {
        let before = burst.len();
        let RxRing { ring, drops, .. } = self;
        // Acquire: what the device wrote before it moved its index is visible from here on.
        let count = ring.completed(limit.min(burst.remaining_capacity()), BEHIND);
        ring.take(count, |done| {
            // Check: the descriptor is one that the device has…
            let Some((buffer, written)) = done else {
                drops.unknown_descriptor += 1;
                return;
            };
            // … and the length one that it can have written.
            let mut packet = buffer.into_packet();
            if let Err(wrong) = set_frame(&mut packet, written) {
                wrong.count(drops);
                cache.put(packet);
                return;
            }
            // Take.
            fetch(&packet);
            burst.push(packet);
        });
        self.rearm(cache, self.on_their_way);
        if count == 0 {
            self.ring.settle();
        }
        burst.len() - before
    }

    /// Re-arm: free descriptors get buffers that have come back, and others where the ring would lack more than
    /// `bearable`. What is left is armed at a later call, so a ring that ran dry recovers by itself.
    #[inline(always)]
    fn rearm(&mut self, cache: &mut PoolCache, bearable: usize) {
        self.ring.offer(cache.take_back(self.ring.room(), bearable).map(|buffer| {
            let packet = buffer.into_packet();
            let address = packet.address() - HEADER_LEN as u64;
            (FreeBuffer::of(packet), Part { address, len: WRITABLE, flags: DESCRIPTOR_WRITE })
        }));
        self.ring.publish();
    }
}

/// A length that no honest device writes.
enum BadLength {
    Truncated,
    Oversize,
}

impl BadLength {
    #[cold]
    fn count(self, drops: &mut RxDrops) {
        match self {
            BadLength::Truncated => drops.truncated += 1,
            BadLength::Oversize => drops.oversize += 1,
        }
    }
}

/// Makes the packet as long as its frame, given the bytes that the device says it wrote.
#[inline(always)]
fn set_frame(packet: &mut Packet, written: u32) -> Result<(), BadLength> {
    let frame = (written as usize).checked_sub(HEADER_LEN).ok_or(BadLength::Truncated)?;
    if packet.set_len(frame) { Ok(()) } else { Err(BadLength::Oversize) }
}

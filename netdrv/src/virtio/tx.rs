//! Transmitting: reclaim, check, enqueue, flush.

use super::HEADER_LEN;
use super::features::Features;
use super::order::{AnyOrder, InOrder, Order};
use super::packed::PackedQueue;
use super::ring::{Fault, PacketRing, for_any_kind};
use super::split::SplitQueue;
use super::virtqueue::{AnyQueue, Part, Virtqueue};
use crate::device::{Quiesced, TxQueue};
use crate::packet::{BUFFER_SIZE, Burst, Packet};
use crate::pool::{FreeBuffer, PoolCache};

/// Completions that are left to a device that goes on: four lines of the used ring.
const BEHIND: usize = 32;

/// A transmit queue.
pub struct VirtioTx(Kind);

/// Chosen once, from the negotiated features.
enum Kind {
    Split(TxRing<SplitQueue, AnyOrder>),
    SplitInOrder(TxRing<SplitQueue, InOrder>),
    Packed(TxRing<PackedQueue, AnyOrder>),
    PackedInOrder(TxRing<PackedQueue, InOrder>),
}

impl VirtioTx {
    pub(super) fn new(
        queue: AnyQueue,
        features: Features,
        max_frame: usize,
        fault: Fault,
        quiesced: Quiesced,
    ) -> VirtioTx {
        let in_order = features.contains(Features::IN_ORDER);
        VirtioTx(match queue {
            AnyQueue::Split(queue) if in_order => {
                Kind::SplitInOrder(TxRing::new(queue, max_frame, fault, quiesced))
            }
            AnyQueue::Split(queue) => Kind::Split(TxRing::new(queue, max_frame, fault, quiesced)),
            AnyQueue::Packed(queue) if in_order => {
                Kind::PackedInOrder(TxRing::new(queue, max_frame, fault, quiesced))
            }
            AnyQueue::Packed(queue) => Kind::Packed(TxRing::new(queue, max_frame, fault, quiesced)),
        })
    }
}

impl TxQueue for VirtioTx {
    #[inline]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        for_any_kind!(&mut self.0, ring => ring.reclaim(cache))
    }

    #[inline]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        for_any_kind!(&mut self.0, ring => ring.enqueue(burst))
    }

    #[inline]
    fn flush(&mut self) {
        for_any_kind!(&mut self.0, ring => ring.ring.publish());
    }

    #[inline]
    fn waiting(&self) -> usize {
        for_any_kind!(&self.0, ring => ring.ring.outstanding())
    }

    #[inline]
    fn room(&self) -> usize {
        for_any_kind!(&self.0, ring => ring.ring.room())
    }

    fn refused(&self) -> u64 {
        for_any_kind!(&self.0, ring => ring.refused)
    }
}

struct TxRing<Q: Virtqueue, O: Order> {
    ring: PacketRing<Q, O>,
    /// The longest frame that the device takes, in bytes.
    max_frame: usize,
    refused: u64,
}

impl<Q: Virtqueue, O: Order> TxRing<Q, O> {
    fn new(queue: Q, max_frame: usize, fault: Fault, quiesced: Quiesced) -> Self {
        let ring = PacketRing::new(queue, BUFFER_SIZE as u32, fault, quiesced);
        TxRing { ring, max_frame, refused: 0 }
    }

    // A call a burst costs nothing, and tools can tell what is spent in each of these.

    #[inline(never)]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        let count = self.ring.completed(usize::MAX, BEHIND);
        if count == 0 {
            self.ring.settle();
        }
        self.ring.take_read(count, |buffer| cache.put_free(buffer))
    }

    #[inline(never)]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len().min(self.ring.room());
        let mut are_sound = true;
        for packet in &burst[..count] {
            // The device has read, or written, the lines of the headers last.
            packet.prefetch_to_write(HEADER_LEN);
            are_sound &= packet.len() <= self.max_frame && packet.headroom() >= HEADER_LEN;
        }
        let sound = if are_sound { count } else { self.sort_out(burst, count) };
        self.ring.offer(burst.drain(..sound).map(with_header));
        count
    }

    /// Refuses those of the first `count` packets that the device can't send, and makes room before the others. Returns how many
    /// are left of them.
    #[cold]
    fn sort_out(&mut self, burst: &mut Burst, count: usize) -> usize {
        let mut sound = 0;
        for (index, mut packet) in burst.take().into_iter().enumerate() {
            let is_sound = packet.len() <= self.max_frame
                && (packet.headroom() >= HEADER_LEN || make_headroom(&mut packet));
            if index >= count {
                burst.push(packet);
            } else if is_sound {
                burst.push(packet);
                sound += 1;
            } else {
                self.refused += 1;
            }
        }
        sound
    }
}

/// What the device is to send of a packet: the frame behind a header that asks for nothing, 12 zero bytes (5.1.6.2.1).
#[inline(always)]
fn with_header(mut packet: Packet) -> (FreeBuffer, Part) {
    let address = packet.address() - HEADER_LEN as u64;
    let len = (HEADER_LEN + packet.len()) as u32;
    if let Some(header) = packet.front_mut::<HEADER_LEN>() {
        *header = [0; HEADER_LEN];
    }
    (FreeBuffer::of(packet), Part { address, len, flags: 0 })
}

/// Moves a frame that a program has extended to the front of its buffer back by a header's length. False where the buffer has
/// no room for both.
fn make_headroom(packet: &mut Packet) -> bool {
    let len = packet.len();
    if !packet.set_len(len + HEADER_LEN) {
        return false;
    }
    packet.bytes_mut().copy_within(..len, HEADER_LEN);
    packet.trim_front(HEADER_LEN)
}

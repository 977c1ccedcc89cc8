//! Transmitting: reclaim, check, enqueue, flush.

use super::HEADER_LEN;
use super::features::Features;
use super::order::{AnyOrder, InOrder, Order};
use super::queue::SplitQueue;
use super::ring::{Fault, PacketRing};
use super::virtqueue::Virtqueue;
use crate::device::{Quiesced, TxQueue};
use crate::packet::{BUFFER_SIZE, Burst, Packet};
use crate::pool::PoolCache;

/// Completions that are left to a device that goes on: four lines of the used ring.
const BEHIND: usize = 32;

/// A transmit queue.
pub struct VirtioTx(Kind);

/// Chosen once, from the negotiated features.
enum Kind {
    AnyOrder(TxRing<SplitQueue, AnyOrder>),
    InOrder(TxRing<SplitQueue, InOrder>),
}

impl VirtioTx {
    pub(super) fn new(
        queue: SplitQueue,
        features: Features,
        max_frame: usize,
        fault: Fault,
        quiesced: Quiesced,
    ) -> VirtioTx {
        let capacity = BUFFER_SIZE as u32;
        VirtioTx(if features.contains(Features::IN_ORDER) {
            Kind::InOrder(TxRing::new(PacketRing::new(queue, capacity, fault, quiesced), max_frame))
        } else {
            Kind::AnyOrder(TxRing::new(PacketRing::new(queue, capacity, fault, quiesced), max_frame))
        })
    }
}

impl TxQueue for VirtioTx {
    #[inline]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        match &mut self.0 {
            Kind::AnyOrder(ring) => ring.reclaim(cache),
            Kind::InOrder(ring) => ring.reclaim(cache),
        }
    }

    #[inline]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        match &mut self.0 {
            Kind::AnyOrder(ring) => ring.enqueue(burst),
            Kind::InOrder(ring) => ring.enqueue(burst),
        }
    }

    #[inline]
    fn flush(&mut self) {
        match &mut self.0 {
            Kind::AnyOrder(ring) => ring.ring.publish(),
            Kind::InOrder(ring) => ring.ring.publish(),
        }
    }

    #[inline]
    fn waiting(&self) -> usize {
        match &self.0 {
            Kind::AnyOrder(ring) => ring.ring.outstanding(),
            Kind::InOrder(ring) => ring.ring.outstanding(),
        }
    }

    #[inline]
    fn room(&self) -> usize {
        match &self.0 {
            Kind::AnyOrder(ring) => ring.ring.room(),
            Kind::InOrder(ring) => ring.ring.room(),
        }
    }

    fn refused(&self) -> u64 {
        match &self.0 {
            Kind::AnyOrder(ring) => ring.refused,
            Kind::InOrder(ring) => ring.refused,
        }
    }
}

struct TxRing<Q: Virtqueue, O: Order> {
    ring: PacketRing<Q, O>,
    /// The longest frame that the device takes, in bytes.
    max_frame: usize,
    refused: u64,
}

impl<Q: Virtqueue, O: Order> TxRing<Q, O> {
    fn new(ring: PacketRing<Q, O>, max_frame: usize) -> Self {
        TxRing { ring, max_frame, refused: 0 }
    }

    // A call a burst costs nothing, and tools can tell what is spent in each of these.

    #[inline(never)]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        let count = self.ring.completed(usize::MAX, BEHIND);
        if count == 0 {
            self.ring.settle();
        }
        for done in 0..count {
            let Some(buffer) = self.ring.take_read() else {
                // The device completed a frame that it does not have: which of the others are sent is not
                // known either.
                self.ring.give_up();
                return done;
            };
            cache.put_free(buffer);
        }
        count
    }

    #[inline(never)]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len().min(self.ring.room());
        // The device has read, or written, the lines of the headers last.
        burst[..count].iter().for_each(|packet| packet.prefetch_to_write(HEADER_LEN));
        for mut packet in burst.drain(..count) {
            if packet.len() > self.max_frame || !clear_header(&mut packet) {
                self.refused += 1;
                continue;
            }
            let header = packet.address() - HEADER_LEN as u64;
            let len = (HEADER_LEN + packet.len()) as u32;
            if self.ring.offer(packet, header, len, 0).is_err() {
                self.refused += 1;
            }
        }
        count
    }
}

/// Writes the header of a frame that asks for nothing, right before the frame: 12 zero bytes (5.1.6.2.1).
/// False where the buffer has no room for them.
#[inline(always)]
fn clear_header(packet: &mut Packet) -> bool {
    if packet.headroom() < HEADER_LEN && !make_headroom(packet) {
        return false;
    }
    match packet.front_mut::<HEADER_LEN>() {
        Some(header) => {
            *header = [0; HEADER_LEN];
            true
        }
        None => false,
    }
}

/// Moves a frame that a program has extended to the front of its buffer back by a header's length.
#[cold]
fn make_headroom(packet: &mut Packet) -> bool {
    let len = packet.len();
    if !packet.set_len(len + HEADER_LEN) {
        return false;
    }
    packet.bytes_mut().copy_within(..len, HEADER_LEN);
    packet.trim_front(HEADER_LEN)
}

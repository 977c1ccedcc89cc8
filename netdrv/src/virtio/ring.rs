//! A virtqueue together with the packets that lie in it: the shadow that the device can't write.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::order::Order;
use super::virtqueue::{Part, Virtqueue};
use crate::device::Quiesced;
use crate::packet::Packet;
use crate::pool::FreeBuffer;
use crate::sync::{AtomicBool, Ordering};

/// Makes a call of whichever kind of ring a queue has.
macro_rules! for_any_kind {
    ($kind:expr, $ring:ident => $call:expr) => {
        match $kind {
            Kind::Split($ring) => $call,
            Kind::SplitInOrder($ring) => $call,
            Kind::Packed($ring) => $call,
            Kind::PackedInOrder($ring) => $call,
        }
    };
}
pub(super) use for_any_kind;

/// Raised by a queue whose device has broken the ring, read by the device's owner on any core.
#[derive(Clone, Default)]
pub(super) struct Fault(Arc<AtomicBool>);

impl Fault {
    fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A queue of one-descriptor chains, each with its packet.
///
/// A ring that the device has broken beyond repair goes quiet: it has no room and no completions, and keeps
/// its packets until the device is reset.
pub(super) struct PacketRing<Q: Virtqueue, O: Order> {
    queue: Q,
    order: O,
    /// By descriptor: the buffer that the device has, or `None` for a free descriptor.
    slots: Box<[Option<FreeBuffer>]>,
    outstanding: usize,
    broken: bool,
    fault: Fault,
    quiesced: Quiesced,
}

impl<Q: Virtqueue, O: Order> PacketRing<Q, O> {
    /// A ring over a fresh `queue`; each descriptor gets at most `capacity` bytes.
    pub(super) fn new(queue: Q, capacity: u32, fault: Fault, quiesced: Quiesced) -> Self {
        PacketRing {
            order: O::new(queue.size(), capacity),
            slots: (0..queue.size()).map(|_| None).collect(),
            outstanding: 0,
            broken: false,
            queue,
            fault,
            quiesced,
        }
    }

    /// Packets that can be offered now.
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        if self.broken { 0 } else { self.order.room(&self.queue) }
    }

    /// Packets that the device has or will have after [`publish`](Self::publish).
    #[inline(always)]
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Offers a packet: `len` bytes at `address`, which lie in its buffer. Gives it back where there is no
    /// room.
    #[inline(always)]
    pub(super) fn offer(&mut self, packet: Packet, address: u64, len: u32, flags: u16) -> Result<(), Packet> {
        let Some(id) = self.order.claim(&self.queue) else { return Err(packet) };
        let Some(slot) = self.slots.get_mut(usize::from(id)) else { return Err(packet) };
        *slot = Some(FreeBuffer::of(packet));
        self.outstanding += 1;
        self.queue.offer(id, Part { address, len, flags });
        Ok(())
    }

    /// Makes what was offered visible to the device, with one notification if the device is seen to want any.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.queue.publish();
    }

    /// The ring comes to rest: a device that wants to be notified is.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        self.queue.settle();
    }

    /// How many completions can be taken now, at most `limit`, if `behind` are left to a device that goes on.
    #[inline(always)]
    pub(super) fn completed(&mut self, limit: usize, behind: usize) -> usize {
        if self.broken {
            return 0;
        }
        match self.queue.completed(limit, behind) {
            Ok(count) => count,
            Err(_) => {
                self.give_up();
                0
            }
        }
    }

    /// Asks for an interrupt at the next completion; false where there is one already. A broken ring has none to wait for,
    /// and nothing either: its user may as well sleep.
    pub(super) fn arm(&mut self) -> bool {
        self.settle();
        self.broken || self.queue.arm()
    }

    /// Takes the next announced completion: the packet, and the bytes that the device says it wrote. `None`
    /// where the device named a descriptor that it does not have.
    #[inline(always)]
    pub(super) fn take_written(&mut self) -> Option<(Packet, u32)> {
        let Some(used) = self.order.complete(&self.queue) else {
            self.give_up();
            return None;
        };
        self.take(used.id).map(|buffer| (buffer.into_packet(), used.len))
    }

    /// Takes the buffer of the next announced completion of a packet that the device only read.
    #[inline(always)]
    pub(super) fn take_read(&mut self) -> Option<FreeBuffer> {
        let id = self.order.complete_id(&self.queue)?;
        self.take(id)
    }

    #[inline(always)]
    fn take(&mut self, id: u32) -> Option<FreeBuffer> {
        self.queue.advance();
        let buffer = self.slots.get_mut(id as usize)?.take()?;
        self.order.release(id as u16);
        self.outstanding -= 1;
        Some(buffer)
    }

    /// Ends all traffic on this ring.
    #[cold]
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        self.fault.raise();
    }
}

impl<Q: Virtqueue, O: Order> Drop for PacketRing<Q, O> {
    fn drop(&mut self) {
        // While the device may still read or write these buffers, they do not go home.
        if self.quiesced.is_confirmed() {
            self.slots.iter_mut().filter_map(Option::take).for_each(|buffer| drop(buffer.into_packet()));
        }
    }
}

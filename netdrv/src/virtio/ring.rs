//! A virtqueue together with the packets that lie in it: the shadow that the device can't write.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::order::{Order, Slots};
use super::virtqueue::{Part, Virtqueue};
use crate::device::Quiesced;
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
    slots: Box<Slots>,
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

    /// Offers buffers, each with the part of it that the device is to use: as many as there is room for. Returns how many they are.
    #[inline(always)]
    pub(super) fn offer(&mut self, parts: impl Iterator<Item = (FreeBuffer, Part)>) -> usize {
        let room = self.room();
        let PacketRing { queue, order, slots, .. } = self;
        let free = order.free(queue.next_offer(), room);
        let count = queue.offer(free.zip(parts).map(|(id, (buffer, part))| {
            slots[usize::from(id)] = Some(buffer);
            (id, part)
        }));
        order.claim(count);
        self.outstanding += count;
        count
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

    /// Takes the next `count` announced completions. Shows each buffer, with the bytes that the device says it wrote; `None`
    /// where the device named a descriptor that it does not have.
    #[inline(always)]
    pub(super) fn take(&mut self, count: usize, mut show: impl FnMut(Option<(FreeBuffer, u32)>)) {
        let PacketRing { queue, order, slots, outstanding, .. } = self;
        let mut taken = 0;
        let outcome = order.take(queue, count, slots, |done| {
            taken += usize::from(done.is_some());
            show(done);
        });
        queue.advance(count as u16);
        *outstanding -= taken;
        if outcome.is_err() {
            show(None);
            self.give_up();
        }
    }

    /// Takes the buffers of the next `count` announced completions of packets that the device only read. Returns how many there
    /// were: all, unless the device completed a frame that it does not have. Which of the others are sent is not known then
    /// either, and the ring is given up.
    #[inline(always)]
    pub(super) fn take_read(&mut self, count: usize, show: impl FnMut(FreeBuffer)) -> usize {
        let PacketRing { queue, order, slots, outstanding, .. } = self;
        let taken = order.take_read(queue, count, slots, show);
        queue.advance(taken as u16);
        *outstanding -= taken;
        if taken < count {
            self.give_up();
        }
        taken
    }

    /// Ends all traffic on this ring.
    #[cold]
    fn give_up(&mut self) {
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

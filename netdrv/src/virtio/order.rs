//! Which descriptors come next, and which ones completions mean: the two answers that `VIRTIO_F_IN_ORDER`
//! decides.
//!
//! A ring is made for one of them at set-up; the choice costs nothing per packet.

use alloc::boxed::Box;

use super::virtqueue::{Used, Virtqueue};
use crate::pool::FreeBuffer;

/// By descriptor: the buffer that the device has, or `None` for a free descriptor.
pub(super) type Slots = [Option<FreeBuffer>];

/// The device has lost the order that it promised, and the ring with it.
pub(super) struct OutOfOrder;

/// How descriptors of a ring of one-descriptor chains are chosen and come back.
pub(super) trait Order {
    /// For a fresh ring of `size` descriptors with room for `capacity` bytes each.
    fn new(size: u16, capacity: u32) -> Self;

    /// Descriptors that are free.
    fn room(&self, queue: &impl Virtqueue) -> usize;

    /// The free descriptors, as they are to be offered from `position` on, and no more than `room`.
    fn free(&self, position: u16, room: usize) -> impl Iterator<Item = u16>;

    /// So many of them were offered.
    fn claim(&mut self, count: usize);

    /// Empties the slots of the next `count` announced completions. Shows each buffer, with the bytes that the device wrote to
    /// it; `None` where the device named a descriptor that it does not have.
    ///
    /// # Errors
    /// At the first completion that is out of order.
    fn take(
        &mut self,
        queue: &impl Virtqueue,
        count: usize,
        slots: &mut Slots,
        show: impl FnMut(Option<(FreeBuffer, u32)>),
    ) -> Result<(), OutOfOrder>;

    /// As [`take`](Self::take), for a ring whose lengths say nothing. Ends early where the device named a descriptor that it does not
    /// have; returns how many there were.
    fn take_read(
        &mut self,
        queue: &impl Virtqueue,
        count: usize,
        slots: &mut Slots,
        show: impl FnMut(FreeBuffer),
    ) -> usize;
}

/// Without `VIRTIO_F_IN_ORDER`: the device may use buffers in any order, and names each.
///
/// Descriptors are offered in the order in which they came back. With a device that keeps order, as most do, each thus
/// stays at its place in the ring, and buffers with it.
pub(super) struct AnyOrder {
    /// Free descriptors, from `first` on. There is a place for each, and an id comes back at most once: it never overflows.
    free: Box<[u16]>,
    /// The place of the next to be offered, and of the next that comes back, modulo 2^16.
    first: u16,
    end: u16,
}

impl Order for AnyOrder {
    fn new(size: u16, _capacity: u32) -> AnyOrder {
        AnyOrder { free: (0..size).collect(), first: 0, end: size }
    }

    #[inline(always)]
    fn room(&self, _queue: &impl Virtqueue) -> usize {
        usize::from(self.end.wrapping_sub(self.first))
    }

    #[inline(always)]
    fn free(&self, _position: u16, room: usize) -> impl Iterator<Item = u16> {
        let (free, first) = (&*self.free, usize::from(self.first));
        (0..room).map(move |ahead| free[(first + ahead) & (free.len() - 1)])
    }

    #[inline(always)]
    fn claim(&mut self, count: usize) {
        self.first = self.first.wrapping_add(count as u16);
    }

    #[inline(always)]
    fn take(
        &mut self,
        queue: &impl Virtqueue,
        count: usize,
        slots: &mut Slots,
        mut show: impl FnMut(Option<(FreeBuffer, u32)>),
    ) -> Result<(), OutOfOrder> {
        let (used, first) = (queue.used(), queue.next_taken());
        let (free, mut end) = (&mut *self.free, usize::from(self.end));
        for ahead in 0..count {
            let Used { id, len } = used(first.wrapping_add(ahead as u16));
            let buffer = slots.get_mut(id as usize).and_then(Option::take);
            if buffer.is_some() {
                let place = end & (free.len() - 1);
                free[place] = id as u16;
                end += 1;
            }
            show(buffer.map(|buffer| (buffer, len)));
        }
        self.end = end as u16;
        Ok(())
    }

    #[inline(always)]
    fn take_read(
        &mut self,
        queue: &impl Virtqueue,
        count: usize,
        slots: &mut Slots,
        mut show: impl FnMut(FreeBuffer),
    ) -> usize {
        let (used, first) = (queue.used(), queue.next_taken());
        let (free, end) = (&mut *self.free, usize::from(self.end));
        let mut taken = 0;
        while taken < count {
            let id = used(first.wrapping_add(taken as u16)).id;
            let Some(buffer) = slots.get_mut(id as usize).and_then(Option::take) else { break };
            let place = (end + taken) & (free.len() - 1);
            free[place] = id as u16;
            taken += 1;
            show(buffer);
        }
        self.end = (end + taken) as u16;
        taken
    }
}

/// With `VIRTIO_F_IN_ORDER`: descriptors are offered in table order, so position and descriptor are one, and
/// the device may write only the last used element of a batch, in the place of the first (virtio 1.2, 2.7.9).
pub(super) struct InOrder {
    size: u16,
    capacity: u32,
    batch: Option<Batch>,
}

/// Completions that one used element stands for.
#[derive(Clone, Copy)]
struct Batch {
    /// The position of the last.
    last: u16,
    /// The bytes written to the last.
    len: u32,
}

impl InOrder {
    /// The descriptor at `position`.
    #[inline(always)]
    fn id(&self, position: u16) -> u16 {
        position & (self.size - 1)
    }

    /// The bytes written at `position`, where the device writes one element for several; `used` is what stands there, and so many
    /// completions are announced from there on.
    #[cold]
    fn batched_len(&mut self, position: u16, used: Used, announced: u16) -> Result<u32, OutOfOrder> {
        let batch = match self.batch {
            Some(batch) => batch,
            None => self.open(position, used, announced).ok_or(OutOfOrder)?,
        };
        let is_last = batch.last == position;
        self.batch = (!is_last).then_some(batch);
        // Buffers that were skipped count as completely used.
        Ok(if is_last { batch.len } else { self.capacity })
    }

    /// The batch that begins at `position`.
    fn open(&self, position: u16, used: Used, announced: u16) -> Option<Batch> {
        let id = u16::try_from(used.id).ok().filter(|id| *id < self.size)?;
        let ahead = self.id(id.wrapping_sub(position));
        (ahead < announced).then(|| Batch { last: position.wrapping_add(ahead), len: used.len })
    }
}

impl Order for InOrder {
    fn new(size: u16, capacity: u32) -> InOrder {
        InOrder { size, capacity, batch: None }
    }

    #[inline(always)]
    fn room(&self, queue: &impl Virtqueue) -> usize {
        usize::from(self.size - queue.outstanding())
    }

    #[inline(always)]
    fn free(&self, position: u16, room: usize) -> impl Iterator<Item = u16> {
        (0..room).map(move |ahead| self.id(position.wrapping_add(ahead as u16)))
    }

    #[inline(always)]
    fn claim(&mut self, _count: usize) {}

    #[inline(always)]
    fn take(
        &mut self,
        queue: &impl Virtqueue,
        count: usize,
        slots: &mut Slots,
        mut show: impl FnMut(Option<(FreeBuffer, u32)>),
    ) -> Result<(), OutOfOrder> {
        let (used, first) = (queue.used(), queue.next_taken());
        for ahead in 0..count as u16 {
            let position = first.wrapping_add(ahead);
            let (id, used) = (self.id(position), used(position));
            let is_single = self.batch.is_none() && used.id == u32::from(id);
            let announced = queue.announced().wrapping_sub(ahead);
            let len = if is_single { used.len } else { self.batched_len(position, used, announced)? };
            show(slots[usize::from(id)].take().map(|buffer| (buffer, len)));
        }
        Ok(())
    }

    #[inline(always)]
    fn take_read(
        &mut self,
        queue: &impl Virtqueue,
        count: usize,
        slots: &mut Slots,
        mut show: impl FnMut(FreeBuffer),
    ) -> usize {
        let first = queue.next_taken();
        for taken in 0..count {
            let id = self.id(first.wrapping_add(taken as u16));
            let Some(buffer) = slots[usize::from(id)].take() else { return taken };
            show(buffer);
        }
        count
    }
}

//! Which descriptor comes next, and which one a completion means: the two answers that `VIRTIO_F_IN_ORDER`
//! decides.
//!
//! A ring is made for one of them at set-up; the choice costs nothing per packet.

use alloc::boxed::Box;

use super::virtqueue::{Used, Virtqueue};

/// How descriptors of a ring of one-descriptor chains are chosen and come back.
pub(super) trait Order {
    /// For a fresh ring of `size` descriptors with room for `capacity` bytes each.
    fn new(size: u16, capacity: u32) -> Self;

    /// Descriptors that are free.
    fn room(&self, queue: &impl Virtqueue) -> usize;

    /// The free descriptor that must be offered next, if there is one.
    fn claim(&mut self, queue: &impl Virtqueue) -> Option<u16>;

    /// The descriptor of the next announced completion and the bytes that the device wrote. `None` where the
    /// device has lost the order that it promised, and the ring with it.
    fn complete(&mut self, queue: &impl Virtqueue) -> Option<Used>;

    /// As [`complete`](Self::complete), for a ring whose lengths say nothing.
    fn complete_id(&mut self, queue: &impl Virtqueue) -> Option<u32>;

    /// Descriptor `id` is free again.
    fn release(&mut self, id: u16);
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

impl AnyOrder {
    #[inline(always)]
    fn place(&self, position: u16) -> usize {
        usize::from(position) & (self.free.len() - 1)
    }
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
    fn claim(&mut self, _queue: &impl Virtqueue) -> Option<u16> {
        let is_any = self.first != self.end;
        let id = self.free[self.place(self.first)];
        self.first = self.first.wrapping_add(u16::from(is_any));
        is_any.then_some(id)
    }

    #[inline(always)]
    fn complete(&mut self, queue: &impl Virtqueue) -> Option<Used> {
        Some(queue.used(queue.next_taken()))
    }

    #[inline(always)]
    fn complete_id(&mut self, queue: &impl Virtqueue) -> Option<u32> {
        self.complete(queue).map(|used| used.id)
    }

    #[inline(always)]
    fn release(&mut self, id: u16) {
        let place = self.place(self.end);
        self.free[place] = id;
        self.end = self.end.wrapping_add(1);
    }
}

/// With `VIRTIO_F_IN_ORDER`: descriptors are offered in table order, so position and descriptor are one, and
/// the device may write only the last used element of a batch, in the place of the first (virtio 1.2, 2.7.9).
pub(super) struct InOrder {
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
    /// Reads the element of a batch that begins at `position`.
    fn open(&mut self, queue: &impl Virtqueue, position: u16) -> Option<Batch> {
        let used = queue.used(position);
        let id = u16::try_from(used.id).ok().filter(|id| *id < queue.size())?;
        let ahead = id.wrapping_sub(position) & (queue.size() - 1);
        (ahead < queue.announced()).then(|| Batch { last: position.wrapping_add(ahead), len: used.len })
    }
}

impl Order for InOrder {
    fn new(_size: u16, capacity: u32) -> InOrder {
        InOrder { capacity, batch: None }
    }

    #[inline(always)]
    fn room(&self, queue: &impl Virtqueue) -> usize {
        usize::from(queue.size() - queue.outstanding())
    }

    #[inline(always)]
    fn claim(&mut self, queue: &impl Virtqueue) -> Option<u16> {
        (queue.outstanding() < queue.size()).then(|| queue.next_offer() & (queue.size() - 1))
    }

    #[inline(always)]
    fn complete(&mut self, queue: &impl Virtqueue) -> Option<Used> {
        let position = queue.next_taken();
        let used = queue.used(position);
        let is_single = self.batch.is_none() && used.id == u32::from(position & (queue.size() - 1));
        if is_single { Some(used) } else { self.complete_batched(queue, position) }
    }

    #[inline(always)]
    fn complete_id(&mut self, queue: &impl Virtqueue) -> Option<u32> {
        Some(u32::from(queue.next_taken() & (queue.size() - 1)))
    }

    #[inline(always)]
    fn release(&mut self, _id: u16) {}
}

impl InOrder {
    /// As [`complete`](Order::complete), where the device writes one element for several.
    #[cold]
    fn complete_batched(&mut self, queue: &impl Virtqueue, position: u16) -> Option<Used> {
        let batch = match self.batch {
            Some(batch) => batch,
            None => self.open(queue, position)?,
        };
        let is_last = batch.last == position;
        self.batch = (!is_last).then_some(batch);
        // Buffers that were skipped count as completely used.
        let len = if is_last { batch.len } else { self.capacity };
        Some(Used { id: u32::from(position & (queue.size() - 1)), len })
    }
}

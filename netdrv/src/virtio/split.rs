//! A split virtqueue: three areas of shared memory and the indices of the two sides (virtio 1.2, 2.7).

use super::error::VirtioError;
use super::features::Features;
use super::transport::{Doorbell, NetTransport};
use super::virtqueue::{CACHE_LINE, DESCRIPTOR_NEXT, DESCRIPTOR_SIZE, Lent, Nonsense, Part, Used, Virtqueue};
use crate::device::Quiesced;
use crate::dma::{Cell, DmaMemory, Table, Words, acquire, release, store_then_load};
use crate::hal::Hal;

/// Bytes of a used element: id and length (2.7.8).
const USED_ELEMENT_SIZE: usize = 8;
/// Flags and index, ahead of the ring in both the available and the used area.
const AREA_HEADER: usize = 4;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT`: the driver polls.
const AVAILABLE_NO_INTERRUPT: u16 = 1;
/// `VIRTQ_USED_F_NO_NOTIFY`: the device polls.
const USED_NO_NOTIFY: u16 = 1;

/// How far ahead of the used index the event index is put so that the device never reaches it, and how close
/// the device may come before it is put there again. Both are multiples of the largest ring that the driver
/// makes.
const EVENT_DISTANCE: u16 = 0x8000;
const EVENT_NEAR: u16 = 0x4000;

/// Where the three areas lie in a queue's memory, in bytes.
///
/// Both rings begin on a cache line: the device's and the driver's four bytes before them have a line of
/// their own, so a burst of entries covers no line more than it must. The specification asks only for
/// alignments of 16, 2 and 4 (2.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    available: usize,
    used: usize,
    len: usize,
}

impl Layout {
    const fn of(size: usize) -> Layout {
        let available_ring = (size * DESCRIPTOR_SIZE).next_multiple_of(CACHE_LINE) + CACHE_LINE;
        let used_event = available_ring + size * size_of::<u16>();
        let used_ring = (used_event + size_of::<u16>()).next_multiple_of(CACHE_LINE) + CACHE_LINE;
        let available_event = used_ring + size * USED_ELEMENT_SIZE;
        Layout {
            available: available_ring - AREA_HEADER,
            used: used_ring - AREA_HEADER,
            len: available_event + size_of::<u16>(),
        }
    }
}

/// How the two sides tell each other when to notify.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notifications {
    /// By a flag (2.7.7, 2.7.10 without `VIRTIO_F_EVENT_IDX`). Holds whether we asked for an interrupt.
    Flag { armed: bool },
    /// By the index after which a notification is wanted. Holds the one that we last asked for.
    EventIndex { used_event: u16 },
}

/// The driver's side of one queue.
pub(super) struct SplitQueue {
    size: u16,
    descriptors: Table<u64>,
    available_ring: Table<u16>,
    available_flags: Cell<u16>,
    available_index: Cell<u16>,
    used_event: Cell<u16>,
    used_ring: Table<u64>,
    used_flags: Cell<u16>,
    used_index: Cell<u16>,
    available_event: Cell<u16>,
    doorbell: Doorbell,
    notifications: Notifications,
    /// Chains offered so far, modulo 2^16; the device can see those up to `published`, and knows for sure of those up to
    /// `settled`, if it wants to know.
    offered: u16,
    published: u16,
    settled: u16,
    /// Completions taken so far, modulo 2^16; the device had written those up to `seen` when we last looked.
    taken: u16,
    seen: u16,
    _memory: Lent,
}

impl SplitQueue {
    /// See [`AnyQueue::create`](super::virtqueue::AnyQueue::create).
    pub(super) fn create<H: Hal>(
        transport: &mut impl NetTransport,
        index: u16,
        size: u16,
        features: Features,
        quiesced: &Quiesced,
    ) -> Result<SplitQueue, VirtioError> {
        let entries = usize::from(size);
        let layout = Layout::of(entries);
        let memory = DmaMemory::allocate::<H>(layout.len)?;
        let available_ring = layout.available + AREA_HEADER;
        let used_ring = layout.used + AREA_HEADER;
        let used_event = memory.cell(available_ring + entries * size_of::<u16>());
        let notifications = if features.contains(Features::EVENT_IDX) {
            used_event.write(EVENT_DISTANCE);
            Notifications::EventIndex { used_event: EVENT_DISTANCE }
        } else {
            memory.cell::<u16>(layout.available).write(AVAILABLE_NO_INTERRUPT);
            Notifications::Flag { armed: false }
        };
        Ok(SplitQueue {
            size,
            descriptors: memory.table(0, 2 * entries),
            available_ring: memory.table(available_ring, entries),
            available_flags: memory.cell(layout.available),
            available_index: memory.cell(layout.available + 2),
            used_event,
            used_ring: memory.table(used_ring, entries),
            used_flags: memory.cell(layout.used),
            used_index: memory.cell(layout.used + 2),
            available_event: memory.cell(used_ring + entries * USED_ELEMENT_SIZE),
            doorbell: transport.doorbell(index)?,
            notifications,
            offered: 0,
            published: 0,
            settled: 0,
            taken: 0,
            seen: 0,
            _memory: Lent::to(transport, index, size, memory, [0, layout.available, layout.used], quiesced)?,
        })
    }

    /// Puts the chain that begins at `id` into the available ring.
    #[inline(always)]
    fn make_available(&mut self, id: u16) {
        self.available_ring.words().update(usize::from(self.offered), id);
        self.offered = self.offered.wrapping_add(1);
    }

    /// Whether the device asks to be told of what was published since it last knew (2.7.10).
    #[inline(always)]
    fn is_wanted(&self) -> bool {
        match self.notifications {
            Notifications::Flag { .. } => self.used_flags.read() & USED_NO_NOTIFY == 0,
            Notifications::EventIndex { .. } => {
                need_event(self.available_event.read(), self.published, self.settled)
            }
        }
    }

    fn ring(&mut self) {
        self.settled = self.published;
        self.doorbell.ring();
    }

    /// Reads how far the device is.
    #[inline(always)]
    fn look(&mut self) -> Result<(), Nonsense> {
        let seen = self.used_index.read();
        acquire();
        if seen.wrapping_sub(self.taken) > self.published.wrapping_sub(self.taken) {
            return Err(Nonsense);
        }
        self.seen = seen;
        self.keep_interrupts_away();
        Ok(())
    }

    /// Takes the wish for interrupts back. With an event index a polling driver has no flag to set: it asks for an interrupt at an index that is
    /// never reached, and moves it on before the device comes near.
    #[inline(always)]
    fn keep_interrupts_away(&mut self) {
        match &mut self.notifications {
            Notifications::EventIndex { used_event } => {
                if used_event.wrapping_sub(self.seen) < EVENT_NEAR {
                    *used_event = self.seen.wrapping_add(EVENT_DISTANCE);
                    self.used_event.write(*used_event);
                }
            }
            Notifications::Flag { armed } => {
                if *armed {
                    *armed = false;
                    self.available_flags.write(AVAILABLE_NO_INTERRUPT);
                }
            }
        }
    }
}

impl Virtqueue for SplitQueue {
    #[inline(always)]
    fn size(&self) -> u16 {
        self.size
    }

    #[inline(always)]
    fn outstanding(&self) -> u16 {
        self.offered.wrapping_sub(self.taken)
    }

    #[inline(always)]
    fn next_offer(&self) -> u16 {
        self.offered
    }

    #[inline(always)]
    fn next_taken(&self) -> u16 {
        self.taken
    }

    #[inline(always)]
    fn offer(&mut self, parts: impl Iterator<Item = (u16, Part)>) -> usize {
        let (descriptors, ring) = (self.descriptors.words(), self.available_ring.words());
        let mut position = self.offered;
        for (id, part) in parts {
            describe(descriptors, id, part, 0);
            ring.update(usize::from(position), id);
            position = position.wrapping_add(1);
        }
        let count = position.wrapping_sub(self.offered);
        self.offered = position;
        usize::from(count)
    }

    /// The chain is the same every time, and descriptors are used in ring order as `VIRTIO_F_IN_ORDER` wants it.
    fn offer_chain(&mut self, first: Part, second: Part) -> u32 {
        let descriptors = self.descriptors.words();
        describe(descriptors, 0, Part { flags: first.flags | DESCRIPTOR_NEXT, ..first }, 1);
        describe(descriptors, 1, second, 0);
        self.make_available(0);
        0
    }

    fn take_chain(&mut self) -> u32 {
        let id = self.used()(self.taken).id;
        self.taken = self.seen;
        id
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.published == self.offered {
            return;
        }
        release();
        self.available_index.write(self.offered);
        self.published = self.offered;
        // What is a ring behind was used, so the device knows of it.
        if self.published.wrapping_sub(self.settled) > self.size {
            self.settled = self.published.wrapping_sub(self.size);
        }
        if self.is_wanted() {
            self.ring();
        }
    }

    #[inline(always)]
    fn settle(&mut self) {
        if self.settled != self.published {
            store_then_load();
            if self.is_wanted() {
                self.ring();
            }
            self.settled = self.published;
        }
    }

    #[inline(always)]
    fn completed(&mut self, limit: usize, behind: usize) -> Result<usize, Nonsense> {
        let behind = behind.min(usize::from(self.size) / 8);
        let known = usize::from(self.announced());
        if known >= limit.saturating_add(behind) {
            return Ok(limit);
        }
        let before = self.seen;
        self.look()?;
        let known = usize::from(self.announced());
        if self.seen == before {
            return Ok(known.min(limit));
        }
        let settled = known.saturating_sub(behind).min(limit);
        Ok(if settled < behind.min(limit) { 0 } else { settled })
    }

    #[inline(always)]
    fn announced(&self) -> u16 {
        self.seen.wrapping_sub(self.taken)
    }

    #[inline(always)]
    fn used(&self) -> impl Fn(u16) -> Used {
        let ring = self.used_ring.words();
        move |position| {
            let word = ring.read(usize::from(position));
            Used { id: word as u32, len: (word >> 32) as u32 }
        }
    }

    #[inline(always)]
    fn advance(&mut self, count: u16) {
        self.taken = self.taken.wrapping_add(count);
    }

    fn arm(&mut self) -> bool {
        match &mut self.notifications {
            Notifications::EventIndex { used_event } => {
                *used_event = self.taken;
                self.used_event.write(self.taken);
            }
            Notifications::Flag { armed } => {
                *armed = true;
                self.available_flags.write(0);
            }
        }
        store_then_load();
        self.used_index.read() == self.taken
    }
}

/// Makes descriptor `id` one of this part. `next` counts only with [`DESCRIPTOR_NEXT`].
///
/// In a ring that runs smoothly it is that already, since buffers come back in a row.
#[inline(always)]
fn describe(descriptors: Words<'_, u64>, id: u16, part: Part, next: u16) {
    let Part { address, len, flags } = part;
    let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
    descriptors.update_pair(2 * usize::from(id), [address, rest]);
}

/// Whether moving an index from `old` to `new` passes `event`, after which the other side asked to be
/// notified (2.7.10.1). All three are modulo 2^16, so only differences mean anything.
#[inline(always)]
fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_start_on_cache_lines_and_nothing_overlaps() {
        for size in (0..=15).map(|shift| 1usize << shift) {
            let layout = Layout::of(size);
            assert_eq!((layout.available + AREA_HEADER) % CACHE_LINE, 0);
            assert_eq!((layout.used + AREA_HEADER) % CACHE_LINE, 0);
            assert!(layout.available >= size * DESCRIPTOR_SIZE);
            assert!(layout.used >= layout.available + AREA_HEADER + 2 * size + 2);
            assert_eq!(layout.len, layout.used + AREA_HEADER + 8 * size + 2);
        }
    }

    #[test]
    fn an_event_is_passed_exactly_when_it_lies_in_the_batch() {
        // Entries old..new were added; the event asks for the notification after entry `event` was added.
        for old in [0u16, 1, 0x7fff, 0x8000, 0xfff0, 0xffff] {
            for batch in [1u16, 2, 31, 32, 64, 4096] {
                let new = old.wrapping_add(batch);
                for offset in 0..u16::MAX {
                    let event = old.wrapping_add(offset);
                    assert_eq!(need_event(event, new, old), offset < batch, "{old} {new} {event}");
                }
            }
        }
    }
}

//! A packed virtqueue: one ring of descriptors that both sides write (virtio 1.2, 2.8).
//!
//! Two flags of a descriptor say whose it is, against a counter of one bit that each side flips when it comes to the ring's end.
//! That counter is no state of its own here: it is the bit of a position above those that name the place.

use super::error::VirtioError;
use super::features::Features;
use super::transport::{Doorbell, NetTransport};
use super::virtqueue::{CACHE_LINE, DESCRIPTOR_NEXT, DESCRIPTOR_SIZE, Lent, Nonsense, Part, Used, Virtqueue};
use crate::device::Quiesced;
use crate::dma::{Cell, DmaMemory, Table, acquire, release, store_then_load};
use crate::hal::Hal;

/// `VIRTQ_DESC_F_AVAIL` and `VIRTQ_DESC_F_USED` in the second word of a descriptor, which holds length, id and flags (2.8.1,
/// 2.8.13).
const AVAILABLE: u64 = 1 << (48 + 7);
const USED: u64 = 1 << (48 + 15);

/// Notify never, and notify where a certain descriptor is made available or used (2.8.10). Anything else: always.
const EVENTS_OFF: u16 = 1;
const EVENTS_AT: u16 = 2;
/// The part of an event's offset that is the wrap counter (2.8.14).
const EVENT_WRAP: u16 = 1 << 15;

/// Whose a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The device's: it was offered, and not used yet.
    Device,
    /// The driver's: the device has used it.
    Driver,
    /// No device leaves a descriptor so that it was offered.
    Nobody,
}

/// The driver's side of one queue.
pub(super) struct PackedQueue {
    size: u16,
    /// Of each descriptor its address, then length, id and flags in one word.
    descriptors: Table<u64>,
    /// What we ask of the device, and it of us: an offset in the ring, and how to read it.
    driver_event: Cell<u32>,
    device_event: Cell<u32>,
    doorbell: Doorbell,
    event_index: bool,
    /// Whether we asked for an interrupt.
    armed: bool,
    /// Whether one used descriptor may stand for a batch, which ends with the id that it names.
    in_order: bool,
    /// The second word of the first descriptor that is offered and not published: those behind it are the device's with it.
    first: u64,
    /// Positions of descriptors, modulo 2^16. Those up to `offered` were offered; the device can see those up to `published`,
    /// and knows for sure of those up to `settled`, if it wants to know.
    offered: u16,
    published: u16,
    settled: u16,
    /// Those up to `taken` were taken back, and those up to `seen` can be.
    taken: u16,
    seen: u16,
    _memory: Lent,
}

impl PackedQueue {
    /// See [`AnyQueue::create`](super::virtqueue::AnyQueue::create).
    pub(super) fn create<H: Hal>(
        transport: &mut impl NetTransport,
        index: u16,
        size: u16,
        features: Features,
        quiesced: &Quiesced,
    ) -> Result<PackedQueue, VirtioError> {
        let entries = usize::from(size);
        // The words about notifications have a line each: the two sides write them at their own times.
        let driver_area = (entries * DESCRIPTOR_SIZE).next_multiple_of(CACHE_LINE);
        let device_area = driver_area + CACHE_LINE;
        let memory = DmaMemory::allocate::<H>(device_area + size_of::<u32>())?;
        let driver_event = memory.cell(driver_area);
        driver_event.write(event(EVENTS_OFF, 0));
        Ok(PackedQueue {
            size,
            descriptors: memory.table(0, 2 * entries),
            driver_event,
            device_event: memory.cell(device_area),
            doorbell: transport.doorbell(index)?,
            event_index: features.contains(Features::EVENT_IDX),
            armed: false,
            in_order: features.contains(Features::IN_ORDER),
            first: 0,
            offered: 0,
            published: 0,
            settled: 0,
            taken: 0,
            seen: 0,
            _memory: Lent::to(transport, index, size, memory, [0, driver_area, device_area], quiesced)?,
        })
    }

    /// Whether both wrap counters are, or were, one as the side came to `position`: they are in the first round.
    #[inline(always)]
    fn wrap(&self, position: u16) -> bool {
        position & self.size == 0
    }

    /// The place of a position in the ring.
    #[inline(always)]
    fn place(&self, position: u16) -> u16 {
        position & (self.size - 1)
    }

    /// Whose the descriptor at `position` is, if its second word is `word`.
    #[inline(always)]
    fn owner(&self, position: u16, word: u64) -> Owner {
        let round = if self.wrap(position) { AVAILABLE | USED } else { 0 };
        match (word ^ round) & (AVAILABLE | USED) {
            0 => Owner::Driver,
            USED => Owner::Device,
            _ => Owner::Nobody,
        }
    }

    /// Follows the device until it stops, or `wanted` completions are announced.
    ///
    /// Each descriptor is looked at: devices may write them in any order within a burst, and only up to the first that is not
    /// used all are (2.8.2).
    #[inline(always)]
    fn look(&mut self, wanted: usize) -> Result<(), Nonsense> {
        let given = self.published.wrapping_sub(self.taken);
        let ahead = wanted.min(usize::from(given)) as u16 - self.announced();
        let descriptors = self.descriptors.words();
        let (mut seen, end) = (self.seen, self.seen.wrapping_add(ahead));
        while seen != end {
            let word = descriptors.read(word_index(seen));
            match self.owner(seen, word) {
                Owner::Device => break,
                Owner::Nobody => return Err(Nonsense),
                Owner::Driver => {}
            }
            if self.in_order && id(word) != self.place(seen) {
                seen = self.end_of_batch(seen, id(word))?;
                if seen.wrapping_sub(self.seen) > ahead {
                    break;
                }
            } else {
                seen = seen.wrapping_add(1);
            }
        }
        acquire();
        self.seen = seen;
        if seen == self.published && self.is_used(seen) {
            // All is used, and so is a descriptor that the round before has left.
            return Err(Nonsense);
        }
        if self.armed {
            self.armed = false;
            self.driver_event.write(event(EVENTS_OFF, 0));
        }
        Ok(())
    }

    /// Whether the device has used the descriptor at `position`.
    #[inline(always)]
    fn is_used(&self, position: u16) -> bool {
        self.owner(position, self.descriptors.read(word_index(position))) == Owner::Driver
    }

    /// The position behind a batch that begins at `position` and ends with descriptor `id` (2.8.9).
    #[cold]
    fn end_of_batch(&self, position: u16, id: u16) -> Result<u16, Nonsense> {
        let more = self.place(id.wrapping_sub(position));
        let given = self.published.wrapping_sub(position);
        if id < self.size && more < given { Ok(position.wrapping_add(more + 1)) } else { Err(Nonsense) }
    }

    /// Whether the device asks to be told of what was published after position `since` (2.8.10).
    #[inline(always)]
    fn is_wanted(&self, since: u16) -> bool {
        let event = self.device_event.read();
        match (event >> 16) as u16 {
            EVENTS_OFF => false,
            EVENTS_AT if self.event_index => self.passes(event as u16, since, self.published),
            _ => true,
        }
    }

    /// Whether a way from `old` to `new`, of two rounds at most, passes the offset that `event` names.
    #[inline(always)]
    fn passes(&self, event: u16, old: u16, new: u16) -> bool {
        let round = if event & EVENT_WRAP != 0 { 0 } else { self.size };
        let event = self.place(event) | round;
        let two_rounds = 2 * self.size - 1;
        new.wrapping_sub(event).wrapping_sub(1) & two_rounds < new.wrapping_sub(old)
    }

    fn ring(&mut self) {
        self.settled = self.published;
        self.doorbell.ring();
    }
}

/// A word about notifications: `how` they are wanted, and `at` which offset (2.8.14).
const fn event(how: u16, at: u16) -> u32 {
    (how as u32) << 16 | at as u32
}

/// The index of the second word of the descriptor at `position`; that before it is the first.
#[inline(always)]
fn word_index(position: u16) -> usize {
    2 * usize::from(position) + 1
}

/// The id in the second word of a descriptor.
#[inline(always)]
fn id(word: u64) -> u16 {
    (word >> 32) as u16
}

impl Virtqueue for PackedQueue {
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
        let descriptors = self.descriptors.words();
        let (mut position, mut first) = (self.offered, self.first);
        for (id, part) in parts {
            let Part { address, len, flags } = part;
            let owner = if self.wrap(position) { AVAILABLE } else { USED };
            let word = u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48 | owner;
            let place = word_index(position);
            descriptors.write(place - 1, address);
            if position == self.published {
                first = word;
            } else {
                descriptors.write(place, word);
            }
            position = position.wrapping_add(1);
        }
        let count = position.wrapping_sub(self.offered);
        (self.offered, self.first) = (position, first);
        usize::from(count)
    }

    /// Its id, which counts in the last descriptor, is that one's place: as of a batch, so that both are announced with it.
    fn offer_chain(&mut self, first: Part, second: Part) -> u32 {
        let id = self.place(self.offered.wrapping_add(1));
        let first = Part { flags: first.flags | DESCRIPTOR_NEXT, ..first };
        self.offer([(id, first), (id, second)].into_iter());
        id.into()
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
        self.descriptors.write(word_index(self.published), self.first);
        self.published = self.offered;
        // What is a ring behind was used, so the device knows of it.
        if self.published.wrapping_sub(self.settled) > self.size {
            self.settled = self.published.wrapping_sub(self.size);
        }
        if self.is_wanted(self.settled) {
            self.ring();
        }
    }

    /// A device may ask, then take what there is, and go to sleep with an event that lies behind: QEMU 7.2 does, once a frame is
    /// gone that it could not send at once. So what counts is not what it was told of, but whether it asks for the next position;
    /// and that only where it has used all up to there: otherwise it may have asked two rounds ago.
    #[inline(always)]
    fn settle(&mut self) {
        if self.settled != self.published {
            store_then_load();
            let round_trip = 2 * self.size - u16::from(self.seen == self.published);
            if self.is_wanted(self.published.wrapping_sub(round_trip)) {
                self.ring();
            }
            self.settled = self.published;
        }
    }

    #[inline(always)]
    fn completed(&mut self, limit: usize, behind: usize) -> Result<usize, Nonsense> {
        let behind = behind.min(usize::from(self.size) / 8);
        let wanted = limit.saturating_add(behind);
        let known = usize::from(self.announced());
        if known >= wanted {
            return Ok(limit);
        }
        let before = self.seen;
        self.look(wanted)?;
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

    /// The length counts whether or not the device says by `VIRTQ_DESC_F_WRITE` that it wrote anything (2.8.4): QEMU does not.
    #[inline(always)]
    fn used(&self) -> impl Fn(u16) -> Used {
        let descriptors = self.descriptors.words();
        move |position| {
            let word = descriptors.read(word_index(position));
            Used { id: id(word).into(), len: word as u32 }
        }
    }

    #[inline(always)]
    fn advance(&mut self, count: u16) {
        self.taken = self.taken.wrapping_add(count);
    }

    fn arm(&mut self) -> bool {
        self.armed = true;
        let how = if self.event_index { EVENTS_AT } else { 0 };
        let wrap = if self.wrap(self.taken) { EVENT_WRAP } else { 0 };
        self.driver_event.write(event(how, self.place(self.taken) | wrap));
        store_then_load();
        self.seen == self.taken && !self.is_used(self.seen)
    }
}

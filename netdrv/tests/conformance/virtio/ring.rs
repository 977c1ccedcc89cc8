//! The device's side of one queue: rust-vmm's queue, and a strict eye on what the driver does.

use std::sync::atomic::{AtomicU16, Ordering};

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::memory::{self, Loans};

/// What an unrung doorbell holds: no queue has this index.
pub(super) const SILENT: u16 = u16::MAX;

/// The order in which a device completes buffers, and how it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completion {
    /// In the order in which they came, one used element each.
    OneByOne,
    /// In that order, one used element for several where the rules of `VIRTIO_F_IN_ORDER` allow it.
    InBatches,
    /// In any order.
    Shuffled,
}

/// When a device looks for new buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attention {
    /// It asks to be notified, and looks when it was: a lost notification stops it for ever.
    Sleeps,
    /// It looks all the time and wants no notifications.
    Polls,
}

/// What the device was told about a queue.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub(super) size: u16,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

/// A descriptor of a chain that the device has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) writable: bool,
}

/// A chain that the device has.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) head: u16,
    pub(super) parts: Vec<Part>,
}

pub(super) struct Ring {
    index: u16,
    queue: Queue,
    registers: Registers,
    doorbell: &'static AtomicU16,
    attention: Attention,
    completion: Completion,
    event_index: bool,
    asleep: bool,
    /// With `VIRTIO_F_IN_ORDER`: the descriptor that the next chain must begin with.
    next_head: Option<u16>,
    /// Completions that are not written yet: head, bytes written, and whether the element may be left out.
    done: Vec<(u16, u32, bool)>,
    last_completed: u16,
}

impl Ring {
    pub(super) fn new(
        index: u16,
        registers: Registers,
        doorbell: &'static AtomicU16,
        attention: Attention,
        completion: Completion,
        event_index: bool,
        in_order: bool,
    ) -> Ring {
        let mut queue = Queue::new(registers.size).expect("a size that virtio allows");
        let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
        let (low, high) = halves(registers.descriptors);
        queue.set_desc_table_address(low, high);
        let (low, high) = halves(registers.available);
        queue.set_avail_ring_address(low, high);
        let (low, high) = halves(registers.used);
        queue.set_used_ring_address(low, high);
        queue.set_event_idx(event_index);
        queue.set_ready(true);
        let taken = [
            (queue.desc_table(), registers.descriptors),
            (queue.avail_ring(), registers.available),
            (queue.used_ring(), registers.used),
        ];
        assert!(taken.iter().all(|(taken, given)| taken == given), "queue {index}: an area is not aligned");
        Ring {
            index,
            queue,
            registers,
            doorbell,
            attention,
            completion: if in_order || completion != Completion::InBatches {
                completion
            } else {
                Completion::OneByOne
            },
            event_index,
            asleep: true,
            next_head: in_order.then_some(0),
            done: Vec::new(),
            last_completed: 0,
        }
    }

    /// The device begins its work: what it asks of the driver is in memory before the driver adds anything.
    pub(super) fn start(&mut self, map: &GuestMemoryMmap) {
        if self.attention == Attention::Polls {
            self.queue.disable_notification(map).expect("memory");
        }
    }

    pub(super) fn completion(&self) -> Completion {
        self.completion
    }

    /// The chains that the driver has offered since the device looked last, if the device has a reason to
    /// look.
    pub(super) fn take(&mut self, map: &GuestMemoryMmap) -> Vec<Chain> {
        assert!(self.queue.is_valid(map), "queue {}: its areas lie in DMA memory", self.index);
        let mut chains = Vec::new();
        if !self.is_awake(map) {
            return chains;
        }
        loop {
            let size = self.registers.size;
            let iter = self.queue.iter(map).expect("the available index moves by at most the ring's size");
            for chain in iter {
                let head = chain.head_index();
                let parts: Vec<Part> = chain
                    .map(|part| Part {
                        address: part.addr().0,
                        len: part.len(),
                        writable: part.is_write_only(),
                    })
                    .collect();
                assert!(!parts.is_empty(), "queue {}: chain {head} has no buffer", self.index);
                if let Some(next) = &mut self.next_head {
                    assert_eq!(head, *next, "queue {}: descriptors are offered in ring order", self.index);
                    *next = (*next + parts.len() as u16) % size;
                }
                chains.push(Chain { head, parts });
            }
            if self.attention == Attention::Polls {
                break;
            }
            if !self.queue.enable_notification(map).expect("memory") {
                self.asleep = true;
                break;
            }
        }
        chains
    }

    /// Whether the device looks at the ring: it polls, or the doorbell has been rung.
    fn is_awake(&mut self, map: &GuestMemoryMmap) -> bool {
        let rung = self.doorbell.swap(SILENT, Ordering::Relaxed);
        assert!(rung == SILENT || rung == self.index, "doorbell {} says {rung}", self.index);
        if self.attention == Attention::Polls {
            assert!(
                rung == SILENT || self.event_index,
                "queue {}: notified in spite of the flag",
                self.index
            );
            return true;
        }
        if rung == self.index {
            self.asleep = false;
            self.queue.disable_notification(map).expect("memory");
        }
        !self.asleep
    }

    /// Counts a chain as completed; the driver hears of it at the next [`publish`](Self::publish).
    /// `skippable` says that the driver would assume the same length by itself.
    pub(super) fn complete(&mut self, head: u16, written: u32, skippable: bool) {
        self.done.push((head, written, skippable));
    }

    /// Writes the used elements of all that is completed.
    pub(super) fn publish(&mut self, map: &GuestMemoryMmap) {
        let old = self.queue.next_used();
        let mut rest = std::mem::take(&mut self.done).into_iter().peekable();
        while rest.peek().is_some() {
            let mut batch = vec![rest.next().expect("peeked")];
            while self.completion == Completion::InBatches
                && batch.last().expect("one at least").2
                && fastrand::u8(..) > 40
                && let Some(next) = rest.next()
            {
                batch.push(next);
            }
            let (head, written, _) = *batch.last().expect("one at least");
            if let [_] = batch[..] {
                self.queue.add_used(map, head, written).expect("memory");
            } else {
                self.write_used(map, u32::from(head), written, batch.len() as u16);
            }
            self.last_completed = head;
        }
        self.check_silence(map, old);
    }

    /// Writes one used element by hand, and moves the index by `count`.
    fn write_used(&mut self, map: &GuestMemoryMmap, id: u32, written: u32, count: u16) {
        let at = self.queue.next_used() % self.registers.size;
        let element = self.registers.used + 4 + 8 * u64::from(at);
        map.write_obj(u64::from(id) | u64::from(written) << 32, GuestAddress(element)).expect("memory");
        self.queue.set_next_used(self.queue.next_used().wrapping_add(count));
        self.write_used_index(map, self.queue.next_used());
    }

    fn write_used_index(&self, map: &GuestMemoryMmap, index: u16) {
        map.store(index, GuestAddress(self.registers.used + 2), Ordering::Release).expect("memory");
    }

    /// The driver polls: moving the used index on from `old` must never ask for an interrupt.
    fn check_silence(&self, map: &GuestMemoryMmap, old: u16) {
        let available = self.registers.available;
        let flags: u16 = map.load(GuestAddress(available), Ordering::Relaxed).expect("memory");
        if !self.event_index {
            assert_eq!(flags, 1, "queue {}: interrupts are off by flag", self.index);
            return;
        }
        assert_eq!(flags, 0, "queue {}: with an event index the flags are 0", self.index);
        let event = available + 4 + 2 * u64::from(self.registers.size);
        let event: u16 = map.load(GuestAddress(event), Ordering::Relaxed).expect("memory");
        let moved = self.queue.next_used().wrapping_sub(old);
        assert!(event.wrapping_sub(old) >= moved, "queue {}: an interrupt at {event}", self.index);
    }

    /// Completes descriptor `id` in place of one that the device keeps.
    pub(super) fn complete_wrong(&mut self, map: &GuestMemoryMmap, id: u32) {
        self.write_used(map, id, 64, 1);
    }

    /// Claims a whole ring's worth of completions more than the driver can know of.
    pub(super) fn jump(&mut self, map: &GuestMemoryMmap) {
        self.write_used_index(map, self.queue.next_used().wrapping_add(self.registers.size).wrapping_add(1));
    }

    pub(super) fn size(&self) -> u16 {
        self.registers.size
    }

    pub(super) fn last_completed(&self) -> u16 {
        self.last_completed
    }
}

/// What RX buffers hold while the device owns them and has written nothing.
static UNTOUCHED: [u8; 2048] = [0xd5; 2048];
/// What TX buffers hold when the device gives them back.
const SPENT: u8 = 0xee;
/// Bytes of the header before every frame.
pub(super) const HEADER: usize = 12;

/// A receive queue: buffers wait here for frames.
pub(super) struct Receiver {
    pub(super) ring: Ring,
    held: Vec<Chain>,
}

impl Receiver {
    pub(super) fn new(ring: Ring) -> Receiver {
        Receiver { ring, held: Vec::new() }
    }

    pub(super) fn look(&mut self, map: &GuestMemoryMmap, loans: &mut Loans) {
        for chain in self.ring.take(map) {
            let [part] = chain.parts[..] else { panic!("{chain:?}: a frame has one buffer") };
            assert!(part.writable && part.len as usize >= HEADER + 1514, "{chain:?}: room for a frame");
            loans.take(part.address, part.len as usize);
            memory::write(map, part.address, &UNTOUCHED[..part.len as usize]);
            self.held.push(chain);
        }
    }

    /// Writes a frame to the next buffer, if there is one.
    pub(super) fn deliver(&mut self, map: &GuestMemoryMmap, loans: &mut Loans, frame: &[u8]) -> bool {
        let Some(chain) = self.next() else { return false };
        let part = chain.parts[0];
        assert!(HEADER + frame.len() <= part.len as usize, "the test feeds frames that fit");
        let now = memory::read(map, part.address, part.len as usize);
        assert!(now == UNTOUCHED[..now.len()], "{chain:?}: the driver wrote to a lent buffer");
        let mut bytes = vec![0; HEADER];
        bytes[10] = 1; // num_buffers
        bytes.extend(frame);
        memory::write(map, part.address, &bytes);
        loans.give_back(part.address);
        self.ring.complete(chain.head, bytes.len() as u32, bytes.len() == part.len as usize);
        true
    }

    /// Completes the next buffer with a length of the test's choice.
    pub(super) fn deliver_wrong(
        &mut self,
        map: &GuestMemoryMmap,
        loans: &mut Loans,
        len: impl Fn(u32) -> u32,
    ) -> Option<()> {
        let chain = self.next()?;
        loans.give_back(chain.parts[0].address);
        self.ring.complete(chain.head, len(chain.parts[0].len), false);
        self.ring.publish(map);
        Some(())
    }

    /// Forgets a buffer: it stays lent for ever.
    pub(super) fn lose(&mut self) -> Option<()> {
        self.next().map(drop)
    }

    fn next(&mut self) -> Option<Chain> {
        match (self.held.len(), self.ring.completion()) {
            (0, _) => None,
            (count, Completion::Shuffled) => Some(self.held.swap_remove(fastrand::usize(..count))),
            _ => Some(self.held.remove(0)),
        }
    }
}

/// A transmit queue: frames leave at once, and their buffers go back some time later.
pub(super) struct Sender {
    pub(super) ring: Ring,
    held: Vec<(Chain, Vec<u8>)>,
}

impl Sender {
    pub(super) fn new(ring: Ring) -> Sender {
        Sender { ring, held: Vec::new() }
    }

    /// Takes what the driver has sent.
    pub(super) fn look(&mut self, map: &GuestMemoryMmap, loans: &mut Loans) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for chain in self.ring.take(map) {
            let [part] = chain.parts[..] else { panic!("{chain:?}: a frame has one buffer") };
            assert!(
                !part.writable && part.len as usize >= HEADER,
                "{chain:?}: a header and a frame, to read"
            );
            loans.take(part.address, part.len as usize);
            let bytes = memory::read(map, part.address, part.len as usize);
            assert_eq!(bytes[..HEADER], [0; HEADER], "{chain:?}: the header asks for nothing");
            frames.push(bytes[HEADER..].to_vec());
            self.held.push((chain, bytes));
        }
        frames
    }

    /// Gives back some of the buffers, all in the end.
    pub(super) fn give_back(&mut self, map: &GuestMemoryMmap, loans: &mut Loans) {
        if self.ring.completion() == Completion::Shuffled {
            fastrand::shuffle(&mut self.held);
        }
        let count = if self.held.is_empty() { 0 } else { fastrand::usize(1..=self.held.len()) };
        for (chain, sent) in self.held.drain(..count) {
            let part = chain.parts[0];
            let now = memory::read(map, part.address, part.len as usize);
            assert!(now == sent, "{chain:?}: the driver changed a frame that it had sent");
            memory::write(map, part.address, &vec![SPENT; sent.len()]);
            loans.give_back(part.address);
            self.ring.complete(chain.head, 0, true);
        }
        self.ring.publish(map);
    }

    /// Forgets a buffer: it stays lent for ever.
    pub(super) fn lose(&mut self) -> Option<()> {
        (!self.held.is_empty()).then(|| drop(self.held.remove(0)))
    }
}

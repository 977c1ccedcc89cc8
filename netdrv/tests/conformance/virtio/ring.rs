//! The device's side of one queue, and a strict eye on what the driver does.
//!
//! Split rings are rust-vmm's. It has no packed ones, so those are written here.

mod packed;
mod split;

use std::sync::atomic::{AtomicU16, Ordering};

use netdrv::virtio::Features;
use vm_memory::GuestMemoryMmap;

use self::packed::PackedSide;
use self::split::SplitSide;
use super::memory::{self, Loans};
use super::profile::Profile;

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
    /// As before, but it asks before it has taken what is there: where it asks by position, that lies behind as it goes to sleep.
    Nods,
    /// It looks all the time and wants no notifications.
    Polls,
}

/// What the device was told about a queue.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub(super) size: u16,
    pub(super) descriptors: u64,
    pub(super) driver: u64,
    pub(super) device: u64,
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
    pub(super) id: u16,
    pub(super) parts: Vec<Part>,
}

/// A queue of one layout, as the device uses it.
trait Side: Send {
    /// The device wants no notifications.
    fn disable_notification(&mut self, map: &GuestMemoryMmap);

    /// The device wants a notification of the next buffer. Returns whether one has come already.
    fn enable_notification(&mut self, map: &GuestMemoryMmap) -> bool;

    /// Whether a driver that is asked for no notifications sends none; with some means it may send a few.
    fn can_refuse_notifications(&self) -> bool;

    /// The chains that the driver has offered since the last call.
    fn take(&mut self, map: &GuestMemoryMmap) -> Vec<Chain>;

    /// Completes these chains by one entry, which names the last of them.
    fn complete(&mut self, map: &GuestMemoryMmap, ids: &[u16], written: u32);

    /// The driver may see what was completed: the first entry is written last.
    fn publish(&mut self, _map: &GuestMemoryMmap) {}

    /// Completes descriptor `id` in place of one that the device keeps.
    fn complete_wrong(&mut self, map: &GuestMemoryMmap, id: u32);

    /// Claims more completions than the driver can know of; `None` where it has nothing to claim them with.
    fn jump(&mut self, map: &GuestMemoryMmap) -> Option<()>;

    /// Whether the driver has asked for an interrupt at what was completed since the last call.
    fn wants_interrupt(&mut self, map: &GuestMemoryMmap) -> bool;
}

pub(super) struct Ring {
    index: u16,
    size: u16,
    side: Box<dyn Side>,
    doorbell: &'static AtomicU16,
    attention: Attention,
    completion: Completion,
    asleep: bool,
    /// Completions that are not written yet: id, bytes written, and whether the entry may be left out.
    done: Vec<(u16, u32, bool)>,
    last_completed: u16,
    /// Interrupts so far, where the driver may ask for any.
    interrupts: Option<usize>,
}

impl Ring {
    /// The device begins its work: what it asks of the driver is in memory before the driver adds anything.
    pub(super) fn start(
        map: &GuestMemoryMmap,
        index: u16,
        registers: Registers,
        doorbell: &'static AtomicU16,
        profile: &Profile,
        accepted: Features,
    ) -> Ring {
        let event_index = accepted.contains(Features::EVENT_IDX);
        let in_order = accepted.contains(Features::IN_ORDER);
        let mut side: Box<dyn Side> = if accepted.contains(Features::RING_PACKED) {
            Box::new(PackedSide::new(map, registers, event_index, profile.says_written))
        } else {
            Box::new(SplitSide::new(registers, event_index, in_order))
        };
        if profile.attention == Attention::Polls {
            side.disable_notification(map);
        }
        Ring {
            index,
            size: registers.size,
            side,
            doorbell,
            attention: profile.attention,
            completion: match profile.completion {
                Completion::InBatches if !in_order => Completion::OneByOne,
                Completion::Shuffled if in_order => Completion::OneByOne,
                completion => completion,
            },
            asleep: true,
            done: Vec::new(),
            last_completed: 0,
            interrupts: None,
        }
    }

    pub(super) fn completion(&self) -> Completion {
        self.completion
    }

    /// A device that polled wants to be notified from now on.
    pub(super) fn doze(&mut self) {
        (self.attention, self.asleep) = (Attention::Sleeps, false);
    }

    /// The chains that the driver has offered since the device looked last, if the device has a reason to
    /// look.
    pub(super) fn take(&mut self, map: &GuestMemoryMmap) -> Vec<Chain> {
        if !self.is_awake(map) {
            return Vec::new();
        }
        if self.attention == Attention::Nods {
            self.side.enable_notification(map);
            self.asleep = true;
            return self.side.take(map);
        }
        let mut chains = Vec::new();
        loop {
            chains.extend(self.side.take(map));
            if self.attention == Attention::Polls {
                break;
            }
            if !self.side.enable_notification(map) {
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
            let may_be_rung = !self.side.can_refuse_notifications();
            assert!(rung == SILENT || may_be_rung, "queue {}: notified in spite of the flag", self.index);
            return true;
        }
        if rung == self.index {
            self.asleep = false;
            self.side.disable_notification(map);
        }
        !self.asleep
    }

    /// Counts a chain as completed; the driver hears of it at the next [`publish`](Self::publish).
    /// `skippable` says that the driver would assume the same length by itself.
    pub(super) fn complete(&mut self, id: u16, written: u32, skippable: bool) {
        self.done.push((id, written, skippable));
    }

    /// From now on the driver may ask for interrupts.
    pub(super) fn expect_interrupts(&mut self) {
        self.interrupts = Some(0);
    }

    pub(super) fn interrupts(&self) -> usize {
        self.interrupts.expect("a driver that may ask for interrupts")
    }

    /// Shows the driver all that is completed.
    pub(super) fn publish(&mut self, map: &GuestMemoryMmap) {
        self.write_entries(map);
        self.side.publish(map);
        if self.side.wants_interrupt(map) {
            let interrupts = self.interrupts.as_mut();
            *interrupts.expect("a driver that polls asks for no interrupt") += 1;
        }
    }

    /// Writes the entries of all that is completed, which mean nothing without that of the first.
    pub(super) fn write_entries(&mut self, map: &GuestMemoryMmap) {
        let mut rest = std::mem::take(&mut self.done).into_iter().peekable();
        while let Some((mut last, mut written, mut skippable)) = rest.next() {
            let mut ids = vec![last];
            while self.completion == Completion::InBatches
                && skippable
                && fastrand::u8(..) > 40
                && let Some(next) = rest.next()
            {
                (last, written, skippable) = next;
                ids.push(last);
            }
            self.side.complete(map, &ids, written);
            self.last_completed = last;
        }
    }

    /// Completes descriptor `id` in place of one that the device keeps.
    pub(super) fn complete_wrong(&mut self, map: &GuestMemoryMmap, id: u32) {
        self.side.complete_wrong(map, id);
    }

    /// Claims more completions than the driver can know of; `None` where it has nothing to claim them with.
    pub(super) fn jump(&mut self, map: &GuestMemoryMmap) -> Option<()> {
        self.side.jump(map)
    }

    pub(super) fn size(&self) -> u16 {
        self.size
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
        self.ring.complete(chain.id, bytes.len() as u32, bytes.len() == part.len as usize);
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
        self.ring.complete(chain.id, len(chain.parts[0].len), false);
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
            self.ring.complete(chain.id, 0, true);
        }
        self.ring.publish(map);
    }

    /// Forgets a buffer: it stays lent for ever.
    pub(super) fn lose(&mut self) -> Option<()> {
        (!self.held.is_empty()).then(|| drop(self.held.remove(0)))
    }
}

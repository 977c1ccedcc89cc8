//! The device's side of one split ring (virtio 1.2, 2.7), on top of `virtio-queue`.
//!
//! A chain that was taken is used before the call returns, so nothing is ever in flight between two calls: the ring
//! can stop at any time, and buffers are used in the order in which they were made available.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;

use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use super::counts::Fault;

/// The most descriptors of a ring (virtio 1.2, 2.7).
pub(super) const MAX_SIZE: u16 = 32768;

/// One ring of the guest.
pub(super) struct Ring {
    queue: Queue,
    kick: Option<File>,
    call: Option<File>,
    state: State,
    /// The frontend lets it move frames. Independent of whether it is started (vhost-user, "Ring states").
    enabled: bool,
    /// Buffers were used that the driver has not been told of.
    unannounced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Stopped,
    /// Started, but nobody has looked yet whether it lies in memory.
    Unchecked,
    Running,
    /// The guest broke it; only a stop and a start help.
    Broken,
}

/// What became of a frame for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The guest has it.
    Done,
    /// The guest has given no buffer for it.
    NoBuffer,
}

impl Ring {
    pub(super) fn new() -> Self {
        let queue = Queue::new(MAX_SIZE).expect("the largest size is a power of two");
        Self { queue, kick: None, call: None, state: State::Stopped, enabled: false, unannounced: false }
    }

    // ------------------------------------------------------------------------------------------ set-up

    /// The number of descriptors; `None` if it is none that a split ring can have.
    pub(super) fn set_size(&mut self, size: u32) -> Option<()> {
        self.queue.try_set_size(u16::try_from(size).ok()?).ok()?;
        self.check_again();
        Some(())
    }

    /// Where the three parts lie; `None` if one is not aligned.
    pub(super) fn set_addresses(
        &mut self,
        descriptors: GuestAddress,
        available: GuestAddress,
        used: GuestAddress,
    ) -> Option<()> {
        self.queue.try_set_desc_table_address(descriptors).ok()?;
        self.queue.try_set_avail_ring_address(available).ok()?;
        self.queue.try_set_used_ring_address(used).ok()?;
        self.check_again();
        Some(())
    }

    /// Where to go on. Nothing is in flight when a ring of ours stops, so both indices are the same.
    pub(super) fn set_base(&mut self, index: u16) {
        self.queue.set_next_avail(index);
        self.queue.set_next_used(index);
    }

    pub(super) fn set_event_index(&mut self, negotiated: bool) {
        self.queue.set_event_idx(negotiated);
    }

    pub(super) fn set_call(&mut self, call: Option<File>) {
        self.call = call;
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// The last word of a set-up is the file for kicks, or that there are none; the ring is started.
    pub(super) fn start(&mut self, kick: Option<File>) {
        self.kick = kick;
        self.queue.set_ready(true);
        self.state = State::Unchecked;
    }

    /// Stops the ring; returns where it stopped.
    pub(super) fn stop(&mut self) -> u16 {
        self.queue.set_ready(false);
        self.state = State::Stopped;
        self.kick = None;
        self.call = None;
        self.unannounced = false;
        self.queue.next_avail()
    }

    /// Memory has changed: see before the next use that the ring still lies in it.
    pub(super) fn check_again(&mut self) {
        if self.state == State::Running {
            self.state = State::Unchecked;
        }
    }

    /// Whether frames may move now. Looks at a ring that was just started first.
    pub(super) fn is_running(&mut self, memory: &GuestMemoryMmap) -> Result<bool, Fault> {
        if self.state == State::Unchecked && self.enabled {
            if !self.queue.is_valid(memory) {
                return Err(self.give_up());
            }
            self.state = State::Running;
            self.disarm(memory);
        }
        Ok(self.state == State::Running && self.enabled)
    }

    fn give_up(&mut self) -> Fault {
        self.state = State::Broken;
        Fault::Ring
    }

    // ------------------------------------------------------------------------------------------ frames

    /// Writes `header` and `frame` to the next buffer of a receive ring.
    ///
    /// # Errors
    /// [`Fault::Oversize`]: the buffer is too small and stays where it is. [`Fault::Chain`]: the buffer is none and
    /// went back empty. [`Fault::Ring`]: the ring is broken.
    pub(super) fn put(
        &mut self,
        memory: &GuestMemoryMmap,
        header: &[u8],
        frame: &[u8],
    ) -> Result<Put, Fault> {
        let Ok(mut available) = self.queue.iter(memory) else { return Err(self.give_up()) };
        let Some(chain) = available.next() else { return Ok(Put::NoBuffer) };
        let head = chain.head_index();
        match scatter(chain, memory, [header, frame]) {
            Ok(length) => self.complete(memory, head, length).map(|()| Put::Done),
            Err(Fault::Oversize) => {
                self.queue.go_to_previous_position();
                Err(Fault::Oversize)
            }
            Err(fault) => self.complete(memory, head, 0).and(Err(fault)),
        }
    }

    /// Takes what the next chain of a transmit ring holds, header and all; returns its length.
    ///
    /// # Errors
    /// [`Fault::Chain`]: the chain is none and went back. [`Fault::Ring`]: the ring is broken.
    pub(super) fn take(
        &mut self,
        memory: &GuestMemoryMmap,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, Fault> {
        let Ok(mut available) = self.queue.iter(memory) else { return Err(self.give_up()) };
        let Some(chain) = available.next() else { return Ok(None) };
        let head = chain.head_index();
        let length = gather(chain, memory, buffer);
        self.complete(memory, head, 0)?;
        length.map(Some)
    }

    /// Gives a chain back. A head that is no descriptor cannot be given back.
    fn complete(&mut self, memory: &GuestMemoryMmap, head: u16, written: u32) -> Result<(), Fault> {
        self.unannounced = true;
        self.queue.add_used(memory, head, written).map_err(|_| Fault::Chain)
    }

    // ------------------------------------------------------------------------------------------ notifications

    /// Tells the driver of buffers that were used since the last call, if it wants to know (virtio 1.2, 2.7.7).
    pub(super) fn announce(&mut self, memory: &GuestMemoryMmap) {
        if !std::mem::take(&mut self.unannounced) {
            return;
        }
        // Even without the event index this is the fence between the used index and the driver's flags.
        let due = self.queue.needs_notification(memory).unwrap_or(false);
        if due && (self.queue.event_idx_enabled() || self.wants_interrupts(memory)) {
            self.interrupt();
        }
    }

    fn wants_interrupts(&self, memory: &GuestMemoryMmap) -> bool {
        let flags = memory.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        flags.is_ok_and(|flags| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0)
    }

    fn interrupt(&self) {
        if let Some(mut call) = self.call.as_ref() {
            // An event that cannot be counted any more is one that nobody has taken yet.
            let _ = call.write(&1_u64.to_ne_bytes());
        }
    }

    /// The file that says that the driver has added buffers.
    pub(super) fn kick(&self) -> Option<&File> {
        self.kick.as_ref()
    }

    /// Asks for a kick when the driver adds a buffer; `true` if it has added one by now and a kick may never come.
    pub(super) fn arm(&mut self, memory: &GuestMemoryMmap) -> bool {
        self.queue.enable_notification(memory).unwrap_or(false)
    }

    /// Asks for no more kicks. With the event index there is nothing to do: an index that stays behind asks for one
    /// kick in 65,536 buffers.
    pub(super) fn disarm(&mut self, memory: &GuestMemoryMmap) {
        // It can only fail for a ring that `is_running` has found outside of memory.
        let _ = self.queue.disable_notification(memory);
    }
}

/// Copies a chain that the device may only read; returns how many bytes it holds.
fn gather(
    chain: impl Iterator<Item = Descriptor>,
    memory: &GuestMemoryMmap,
    buffer: &mut [u8],
) -> Result<usize, Fault> {
    let mut length = 0;
    let mut ended = false;
    for descriptor in chain {
        let end = length + descriptor.len() as usize;
        let part = buffer.get_mut(length..end).filter(|_| !descriptor.is_write_only()).ok_or(Fault::Chain)?;
        memory.read_slice(part, descriptor.addr()).map_err(|_| Fault::Chain)?;
        length = end;
        ended = !descriptor.has_next();
    }
    // The iterator also ends where a chain bites its tail or leaves the table.
    if ended { Ok(length) } else { Err(Fault::Chain) }
}

/// Writes the parts one behind the other to a chain that the device may only write; returns how many bytes that were.
fn scatter(
    chain: impl Iterator<Item = Descriptor>,
    memory: &GuestMemoryMmap,
    [mut first, mut second]: [&[u8]; 2],
) -> Result<u32, Fault> {
    let mut written = 0;
    let mut ended = false;
    for descriptor in chain {
        if !descriptor.is_write_only() {
            return Err(Fault::Chain);
        }
        let mut room = descriptor.len();
        let mut address = descriptor.addr();
        for part in [&mut first, &mut second] {
            let (now, later) = part.split_at(part.len().min(room as usize));
            memory.write_slice(now, address).map_err(|_| Fault::Chain)?;
            let length = now.len() as u32;
            *part = later;
            room -= length;
            address = address.unchecked_add(u64::from(length));
            written += length;
        }
        ended = !descriptor.has_next();
        if first.is_empty() && second.is_empty() {
            return Ok(written);
        }
    }
    Err(if ended { Fault::Oversize } else { Fault::Chain })
}

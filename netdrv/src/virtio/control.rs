//! The control queue: commands that the device answers one at a time (virtio 1.2, 5.1.6.5).

use alloc::boxed::Box;
use core::{fmt, mem};

use arrayvec::ArrayVec;

use super::config::RssLimits;
use super::error::VirtioError;
use super::features::Features;
use super::transport::NetTransport;
use super::virtqueue::{AnyQueue, DESCRIPTOR_WRITE, Part, Virtqueue};
use crate::device::Quiesced;
use crate::dma::{Cell, DmaMemory, Table};
use crate::hal::Hal;
use crate::rss;

/// Descriptors of the control queue: a command takes two, and there is one command at a time.
pub(super) const CONTROL_RING: u16 = 2;
/// How long the device may think about a command. Those of real cards go to firmware.
const PATIENCE_NS: u64 = 1_000_000_000;
/// The longest command, in bytes: a power of two that holds [`RssConfig`].
const COMMAND_CAPACITY: usize = 512;
const _: () = assert!(COMMAND_CAPACITY >= 2 + RSS_CONFIG_CAPACITY);

/// `VIRTIO_NET_OK`; anything else is an error.
const ACK_OK: u8 = 0;
/// What the answer holds until the device writes it.
const ACK_NONE: u8 = 0xff;

/// Class and command (5.1.6.5.1, 5.1.6.5.6, 5.1.6.5.7).
#[derive(Clone, Copy)]
struct Command(u8, u8);
/// `VIRTIO_NET_CTRL_RX_PROMISC`: one byte, on or off.
const RX_PROMISC: Command = Command(0, 0);
/// `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`: the number of pairs.
const MQ_VQ_PAIRS_SET: Command = Command(4, 0);
/// `VIRTIO_NET_CTRL_MQ_RSS_CONFIG`: `struct virtio_net_rss_config`.
const MQ_RSS_CONFIG: Command = Command(4, 1);

/// Why a command had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlError {
    /// The device answered that it will not.
    Refused,
    /// The device did not answer in time, or answered nonsense; it is asked nothing more.
    Silent,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlError::Refused => "refused by the device",
            ControlError::Silent => "the device does not answer",
        })
    }
}

/// The driver's side of the control queue, with the memory of its one command.
pub(super) struct ControlQueue {
    queue: Box<dyn Virtqueue>,
    command: Table<u8>,
    answer: Cell<u8>,
    memory: DmaMemory,
    clock: fn() -> u64,
    silent: bool,
    quiesced: Quiesced,
}

impl ControlQueue {
    /// Makes queue `index` the control queue.
    pub(super) fn create<H: Hal>(
        transport: &mut impl NetTransport,
        index: u16,
        features: Features,
        quiesced: &Quiesced,
    ) -> Result<ControlQueue, VirtioError> {
        // One command at a time comes back in order, whether that was agreed on or not.
        let features = features | Features::IN_ORDER;
        let queue: Box<dyn Virtqueue> =
            match AnyQueue::create::<H>(transport, index, CONTROL_RING, features, quiesced)? {
                AnyQueue::Split(queue) => Box::new(queue),
                AnyQueue::Packed(queue) => Box::new(queue),
            };
        let memory = DmaMemory::allocate::<H>(COMMAND_CAPACITY + 1)?;
        Ok(ControlQueue {
            queue,
            command: memory.table(0, COMMAND_CAPACITY),
            answer: memory.cell(COMMAND_CAPACITY),
            memory,
            clock: H::now_ns,
            silent: false,
            quiesced: quiesced.clone(),
        })
    }

    /// Lets every frame in, whatever its destination address: a forwarder's frames are for others.
    pub(super) fn receive_all(&mut self) -> Result<(), ControlError> {
        self.execute(RX_PROMISC, &[1])
    }

    /// Uses `pairs` queue pairs; the device spreads flows as it likes.
    pub(super) fn set_pairs(&mut self, pairs: u16) -> Result<(), ControlError> {
        self.execute(MQ_VQ_PAIRS_SET, &pairs.to_le_bytes())
    }

    /// Uses `pairs` queue pairs; the device spreads flows by their hash.
    pub(super) fn set_rss(&mut self, limits: &RssLimits, pairs: u16) -> Result<(), ControlError> {
        self.execute(MQ_RSS_CONFIG, &rss_config(limits, pairs))
    }

    fn execute(&mut self, Command(class, command): Command, data: &[u8]) -> Result<(), ControlError> {
        if self.silent {
            return Err(ControlError::Silent);
        }
        let result = self.converse([class, command], data);
        self.silent = result == Err(ControlError::Silent);
        result
    }

    /// Sends header and data in one descriptor and waits for the answer in the next.
    fn converse(&mut self, header: [u8; 2], data: &[u8]) -> Result<(), ControlError> {
        let len = header.len() + data.len();
        header.iter().chain(data).enumerate().for_each(|(index, byte)| self.command.write(index, *byte));
        self.answer.write(ACK_NONE);
        let command = Part { address: self.memory.address(0), len: len as u32, flags: 0 };
        let answer = Part { address: self.memory.address(COMMAND_CAPACITY), len: 1, flags: DESCRIPTOR_WRITE };
        let id = self.queue.offer_chain(command, answer);
        self.queue.publish();
        self.queue.settle();
        self.wait(id)?;
        match self.answer.read() {
            ACK_OK => Ok(()),
            ACK_NONE => Err(ControlError::Silent),
            _ => Err(ControlError::Refused),
        }
    }

    /// Waits for the completion of chain `id`.
    fn wait(&mut self, id: u32) -> Result<(), ControlError> {
        let started = (self.clock)();
        while self.queue.completed(1, 0).map_err(|_| ControlError::Silent)? == 0 {
            if (self.clock)().wrapping_sub(started) > PATIENCE_NS {
                return Err(ControlError::Silent);
            }
            core::hint::spin_loop();
        }
        if self.queue.take_chain() == id { Ok(()) } else { Err(ControlError::Silent) }
    }
}

impl Drop for ControlQueue {
    fn drop(&mut self) {
        if !self.quiesced.is_confirmed() {
            // A device that thinks for too long may still write its answer: the memory is never freed.
            mem::forget(self.memory.clone());
        }
    }
}

/// Fixed fields, the table's entries and the key.
const RSS_CONFIG_CAPACITY: usize = 4 + 2 + 2 + 2 * rss::TABLE_LEN as usize + 2 + 1 + rss::KEY_LEN;

/// `struct virtio_net_rss_config` (5.1.6.5.7.1): hash types, table mask, the queue of frames that have no
/// hash, the table, the transmit queues in use, the key. A receive queue is named by its virtqueue index
/// without the last bit, which is the number of its pair.
fn rss_config(limits: &RssLimits, pairs: u16) -> ArrayVec<u8, RSS_CONFIG_CAPACITY> {
    let entries = limits.table_len();
    let mut config = ArrayVec::new();
    config.extend(limits.hash_types().to_le_bytes());
    config.extend((entries - 1).to_le_bytes());
    config.extend(0u16.to_le_bytes());
    rss::indirection(entries, pairs).for_each(|queue| config.extend(queue.to_le_bytes()));
    config.extend(pairs.to_le_bytes());
    config.push(rss::KEY_LEN as u8);
    config.extend(rss::KEY);
    config
}

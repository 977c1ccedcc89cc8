//! What the rings ask of a virtqueue, however it is laid out in memory.
//!
//! A queue knows descriptors and positions, not packets. What the device writes is checked by the queue as far as it says how
//! far the device is; ids and lengths are checked by the rings above.

use core::mem;

use virtio_drivers::transport::Transport;

use super::error::VirtioError;
use super::features::Features;
use super::packed::PackedQueue;
use super::split::SplitQueue;
use super::transport::NetTransport;
use crate::device::Quiesced;
use crate::dma::{DmaMemory, release};
use crate::hal::Hal;

/// Bytes of a descriptor in either layout (virtio 1.2, 2.7.5 and 2.8.13).
pub(super) const DESCRIPTOR_SIZE: usize = 16;
/// `VIRTQ_DESC_F_NEXT`: the chain goes on.
pub(super) const DESCRIPTOR_NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes the buffer; otherwise it reads it.
pub(super) const DESCRIPTOR_WRITE: u16 = 2;
pub(super) const CACHE_LINE: usize = 64;

/// Memory that a descriptor describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
}

/// A completion, as the device wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Used {
    /// The buffer's descriptor, or the head of its chain.
    pub(super) id: u32,
    /// Bytes written to the buffer.
    pub(super) len: u32,
}

/// The device went past what it was given, or lost its place: the ring means nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nonsense;

/// The driver's side of one queue.
///
/// Positions count descriptors, or chains of them, that were offered and that came back, modulo 2^16; modulo the size they are
/// places in a ring.
pub(super) trait Virtqueue: Send {
    /// Descriptors in the queue: a power of two.
    fn size(&self) -> u16;

    /// Buffers offered and not yet taken back.
    fn outstanding(&self) -> u16;

    /// The position that the next buffer offered has.
    fn next_offer(&self) -> u16;

    /// The position that the next completion has.
    fn next_taken(&self) -> u16;

    /// Offers buffers of one descriptor, each named by an id; the device sees them after [`publish`](Self::publish). There is
    /// room for them. Returns how many they are.
    fn offer(&mut self, parts: impl Iterator<Item = (u16, Part)>) -> usize
    where
        Self: Sized;

    /// Offers a chain of what a queue of two descriptors has. Returns the id that it comes back with.
    fn offer_chain(&mut self, first: Part, second: Part) -> u32;

    /// Takes the chain that was announced. Returns the id that the device named.
    fn take_chain(&mut self) -> u32;

    /// Makes what was offered visible to the device, and rings the doorbell if the device is seen to want that.
    ///
    /// Its wish may just be on its way, as what was offered is on its way to the device. A fence in between would tell, and would
    /// wait until every line that was written before has come here: a fifth of what a packet costs. So the wish is looked
    /// at again with the next publication, by when all has long arrived, or by [`settle`](Self::settle) where none follows.
    fn publish(&mut self);

    /// Makes sure that a device that wants to know of what was published does: for a queue that has come to rest.
    fn settle(&mut self);

    /// How many completions can be taken now, at most `limit`. What the device writes is looked at only where
    /// those that are known do not suffice: each look costs a cache line.
    ///
    /// While the device goes on, `behind` completions are left to it, and what is taken are at least as many: it is about to
    /// write the lines again in which the newest are. A device that has written nothing since the last look is at rest,
    /// and all is taken.
    fn completed(&mut self, limit: usize, behind: usize) -> Result<usize, Nonsense>;

    /// Completions that are known and not taken.
    fn announced(&self) -> u16;

    /// Tells the completion at a position that [`completed`](Self::completed) has announced.
    fn used(&self) -> impl Fn(u16) -> Used
    where
        Self: Sized;

    /// Counts so many completions as taken.
    fn advance(&mut self, count: u16);

    /// Asks the device to interrupt at the next completion. The wish ends at the next look for completions. Returns
    /// false where one came before the device could see the wish.
    fn arm(&mut self) -> bool;
}

/// A queue of the layout that was negotiated.
pub(super) enum AnyQueue {
    Split(SplitQueue),
    Packed(PackedQueue),
}

impl AnyQueue {
    /// Makes queue `index` with `size` descriptors and enables it (4.1.5.1.3). The driver polls: the device
    /// is asked never to interrupt.
    pub(super) fn create<H: Hal>(
        transport: &mut impl NetTransport,
        index: u16,
        size: u16,
        features: Features,
        quiesced: &Quiesced,
    ) -> Result<AnyQueue, VirtioError> {
        Ok(if features.contains(Features::RING_PACKED) {
            AnyQueue::Packed(PackedQueue::create::<H>(transport, index, size, features, quiesced)?)
        } else {
            AnyQueue::Split(SplitQueue::create::<H>(transport, index, size, features, quiesced)?)
        })
    }
}

/// The memory of a queue that the device has: freed only when it is known to have let go of it.
pub(super) struct Lent {
    memory: DmaMemory,
    quiesced: Quiesced,
}

impl Lent {
    /// Gives the device queue `index` with its areas at these places of `memory`: the descriptors, the driver's, the device's.
    pub(super) fn to(
        transport: &mut impl NetTransport,
        index: u16,
        size: u16,
        memory: DmaMemory,
        areas: [usize; 3],
        quiesced: &Quiesced,
    ) -> Result<Lent, VirtioError> {
        let [descriptors, driver, device] = areas.map(|area| memory.address(area));
        release();
        transport.base_mut().queue_set(index, u32::from(size), descriptors, driver, device);
        match transport.base_mut().queue_used(index) {
            true => Ok(Lent { memory, quiesced: quiesced.clone() }),
            false => Err(VirtioError::QueueRefused { queue: index }),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.quiesced.is_confirmed() {
            // The device may still write here: one handle that is never dropped keeps the pages for ever.
            mem::forget(self.memory.clone());
        }
    }
}

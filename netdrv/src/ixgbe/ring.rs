//! A descriptor ring together with the packets that lie in it: the shadow that the device can't write.
//!
//! Positions are counted from the start of the card's life and never wrap; the ring takes them modulo its length. It knows words and packets, not what the words mean.

use alloc::boxed::Box;
use core::mem;

use super::access::ReadWrite;
use super::descriptor::DESCRIPTOR_SIZE;
use super::gate::Gate;
use crate::device::Quiesced;
use crate::dma::{DmaError, DmaMemory, Table, release};
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::packet::Packet;

/// The ring of one queue, and its tail register.
pub(super) struct PacketRing<B: Bar> {
    descriptors: Table<u64>,
    /// By descriptor: the packet that lies there.
    slots: Box<[Option<Packet>]>,
    mask: u32,
    bar: B,
    tail: ReadWrite,
    gate: Gate,
    memory: DmaMemory,
    quiesced: Quiesced,
}

impl<B: Bar> PacketRing<B> {
    /// A ring of `size` descriptors, a power of two.
    pub(super) fn new<H: Hal>(
        size: usize,
        bar: B,
        tail: ReadWrite,
        gate: Gate,
        quiesced: Quiesced,
    ) -> Result<PacketRing<B>, DmaError> {
        let memory = DmaMemory::allocate::<H>(size * DESCRIPTOR_SIZE)?;
        Ok(PacketRing {
            descriptors: memory.table(0, 2 * size),
            slots: (0..size).map(|_| None).collect(),
            mask: size as u32 - 1,
            bar,
            tail,
            gate,
            memory,
            quiesced,
        })
    }

    /// The device's address of the first descriptor.
    pub(super) fn address(&self) -> u64 {
        self.memory.address(0)
    }

    /// How many packets the ring takes. One descriptor stays free: head and tail at the same place mean an empty ring
    /// (7.1.9).
    #[inline(always)]
    pub(super) fn capacity(&self) -> u64 {
        self.mask.into()
    }

    /// The way to the registers.
    #[inline(always)]
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Where `position` is in the ring.
    #[inline(always)]
    pub(super) fn index(&self, position: u64) -> u32 {
        position as u32 & self.mask
    }

    /// Puts `packet` at `position`, with a descriptor of its address and `word`.
    #[inline(always)]
    pub(super) fn put(&mut self, position: u64, packet: Packet, word: u64) {
        self.describe(position, packet.address(), word);
        self.slots[self.index(position) as usize] = Some(packet);
    }

    /// Writes the descriptor at `position`.
    #[inline(always)]
    pub(super) fn describe(&self, position: u64, address: u64, word: u64) {
        self.descriptors.write(2 * position as usize, address);
        self.set_word(position, word);
    }

    /// The second word of the descriptor at `position`, which both sides write.
    #[inline(always)]
    pub(super) fn word(&self, position: u64) -> u64 {
        self.descriptors.read(2 * position as usize + 1)
    }

    #[inline(always)]
    pub(super) fn set_word(&self, position: u64, word: u64) {
        self.descriptors.write(2 * position as usize + 1, word);
    }

    /// The packet at `position`, if there is one.
    #[inline(always)]
    pub(super) fn packet(&self, position: u64) -> Option<&Packet> {
        self.slots[self.index(position) as usize].as_ref()
    }

    /// Takes it.
    #[inline(always)]
    pub(super) fn take(&mut self, position: u64) -> Option<Packet> {
        self.slots[self.index(position) as usize].take()
    }

    /// Moves the packets so that the one at `position` comes to lie at the start of the ring, as a reset card wants it.
    pub(super) fn rewind(&mut self, position: u64) {
        self.slots.rotate_left(self.index(position) as usize);
    }

    /// Makes everything before `position` the device's. False, and nothing done, where the card is in another life.
    #[inline(always)]
    pub(super) fn publish(&self, position: u64) -> bool {
        release();
        self.gate.pass(|| self.tail.write(&self.bar, self.index(position)))
    }
}

impl<B: Bar> Drop for PacketRing<B> {
    fn drop(&mut self) {
        if !self.quiesced.is_confirmed() {
            // The device may still read and write here: ring and buffers are never freed.
            self.slots.iter_mut().filter_map(Option::take).for_each(mem::forget);
            mem::forget(self.memory.clone());
        }
    }
}

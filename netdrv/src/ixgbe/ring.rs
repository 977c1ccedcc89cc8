//! A descriptor ring together with the packets that lie in it, in their order: the shadow that the device can't write.
//!
//! Positions are counted from the start of the card's life and never wrap; the ring takes them modulo its length. It knows words and packets, not what the words mean.

use core::mem;

use super::access::ReadWrite;
use super::descriptor::DESCRIPTOR_SIZE;
use super::gate::Gate;
use crate::device::Quiesced;
use crate::dma::{DmaError, DmaMemory, Table, release};
use crate::fifo::Fifo;
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::packet::{Burst, Packet};

/// The ring of one queue, and its tail register.
pub(super) struct PacketRing<B: Bar> {
    descriptors: Table<u64>,
    /// The position of the oldest packet, which is the one that the device is done with first.
    first: u64,
    packets: Fifo,
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
            first: 0,
            packets: Fifo::new(size),
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

    /// The position of the oldest packet.
    #[inline(always)]
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The position behind the newest packet.
    #[inline(always)]
    pub(super) fn end(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// How many packets fit behind it. One descriptor stays free: head and tail at the same place mean an empty ring (7.1.9).
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.mask as usize - self.packets.len()
    }

    /// Puts the `count` first packets of `burst` behind the newest one, with descriptors of their addresses and what `word`
    /// says of each.
    #[inline(always)]
    pub(super) fn append(&mut self, burst: &mut Burst, count: usize, word: impl Fn(&Packet) -> u64) {
        for (position, packet) in (self.end()..).zip(&burst[..count]) {
            self.describe(position, packet.address(), word(packet));
        }
        self.packets.append(burst, count);
    }

    /// The `count` oldest packets behind the first `skip`, or as many as there are.
    #[inline(always)]
    pub(super) fn oldest(&self, skip: usize, count: usize) -> impl Iterator<Item = &Packet> {
        self.packets.oldest(skip, count).into_iter().flatten()
    }

    /// Shows the `count` oldest packets to `check`, each with the second word of its descriptor, until it dislikes one.
    /// Returns whether it liked all of them.
    #[inline(always)]
    pub(super) fn check(&mut self, count: usize, check: impl Fn(&mut Packet, u64) -> bool) -> bool {
        let mut word = 2 * self.first as usize + 1;
        for run in self.packets.oldest_mut(count) {
            for packet in run {
                if !check(packet, self.descriptors.read(word)) {
                    return false;
                }
                word += 2;
            }
        }
        true
    }

    /// Moves the `count` oldest packets behind those of `burst`.
    #[inline(always)]
    pub(super) fn move_to(&mut self, burst: &mut Burst, count: usize) {
        self.packets.move_to(burst, count);
        self.first += count as u64;
    }

    /// Takes the `count` oldest packets, or all.
    #[inline(always)]
    pub(super) fn take(&mut self, count: usize) -> impl ExactSizeIterator<Item = Packet> {
        let packets = self.packets.take(count);
        self.first += packets.len() as u64;
        packets
    }

    /// Writes the descriptor at `position`.
    #[inline(always)]
    fn describe(&self, position: u64, address: u64, word: u64) {
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

    /// Begins anew, as a reset card wants it: the oldest packet comes to lie at position 0. Descriptors are written with what
    /// `word` says of each packet.
    pub(super) fn rewind(&mut self, word: impl Fn(&Packet) -> u64) {
        self.first = 0;
        for (position, packet) in (0..).zip(self.oldest(0, self.packets.len())) {
            self.describe(position, packet.address(), word(packet));
        }
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
        if self.quiesced.is_confirmed() {
            self.packets.take(self.packets.len()).for_each(drop);
        } else {
            // The device may still read and write here: ring and buffers are never freed.
            mem::forget(self.memory.clone());
        }
    }
}

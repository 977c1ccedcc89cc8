//! A descriptor ring together with the buffers that lie in it, in their order: the shadow that the device can't write.
//!
//! Positions are counted from the start of the card's life and never wrap; the ring takes them modulo its length. It knows
//! words and buffers, not what the words mean.

use core::mem;

use super::access::ReadWrite;
use super::descriptor::DESCRIPTOR_SIZE;
use super::gate::Gate;
use crate::device::Quiesced;
use crate::dma::{DmaError, DmaMemory, Table, Words, release};
use crate::fifo::Fifo;
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::packet::Burst;
use crate::pool::{FreeBuffer, PoolCache};

/// The ring of one queue, and its tail register.
pub(super) struct PacketRing<B: Bar> {
    descriptors: Table<u64>,
    /// The oldest is the one that the device is done with first.
    buffers: Fifo,
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
            buffers: Fifo::new(size),
            mask: size as u32 - 1,
            bar,
            tail,
            gate,
            memory,
            quiesced,
        })
    }

    /// How many descriptors there are.
    pub(super) fn size(&self) -> usize {
        self.mask as usize + 1
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

    /// The position of the oldest buffer.
    #[inline(always)]
    pub(super) fn first(&self) -> u64 {
        self.buffers.first()
    }

    /// The position behind the newest buffer.
    #[inline(always)]
    pub(super) fn end(&self) -> u64 {
        self.buffers.end()
    }

    /// How many buffers fit behind it. One descriptor stays free: head and tail at the same place mean an empty ring (7.1.9).
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.mask as usize - self.buffers.len()
    }

    /// Puts buffers behind the newest one, no more than there is [room](Self::room) for; the descriptor of each gets these
    /// two words.
    #[inline(always)]
    pub(super) fn append(&mut self, entries: impl Iterator<Item = (FreeBuffer, [u64; 2])>) {
        let PacketRing { descriptors, buffers, .. } = self;
        let (descriptors, mut position) = (descriptors.words(), buffers.end());
        buffers.append(entries.map(|(buffer, words)| {
            describe(descriptors, position, words);
            position += 1;
            buffer
        }));
    }

    /// The `count` oldest buffers behind the first `skip`, or as many as there are.
    #[inline(always)]
    pub(super) fn oldest(&self, skip: usize, count: usize) -> impl Iterator<Item = &FreeBuffer> {
        self.buffers.oldest(skip, count)
    }

    /// Takes the oldest buffers, at most `most`, as frames behind those of `burst`, as long as `len` makes a length of the
    /// second word of their descriptors; they begin behind `headroom` free bytes. Returns how many.
    #[inline(always)]
    pub(super) fn take_frames(
        &mut self,
        burst: &mut Burst,
        most: usize,
        headroom: usize,
        len: impl Fn(u64) -> Option<usize>,
    ) -> usize {
        let descriptors = self.descriptors.words();
        self.buffers.take_frames(burst, most, headroom, |position| len(word(descriptors, position)))
    }

    /// Takes the oldest buffer if `judge` makes something of the second word of its descriptor.
    #[inline(always)]
    pub(super) fn take_if<T>(&mut self, judge: impl FnOnce(u64) -> Option<T>) -> Option<(FreeBuffer, T)> {
        let verdict = judge(self.word(self.first()))?;
        self.buffers.take().map(|buffer| (buffer, verdict))
    }

    /// Gives the `count` oldest buffers back to `cache`, fewer where there are fewer. Returns how many.
    #[inline(always)]
    pub(super) fn give_back(&mut self, count: usize, cache: &mut PoolCache) -> usize {
        cache.take_from(&mut self.buffers, count)
    }

    /// Sends the `count` oldest buffers home by the way of the pool's depot, fewer where there are fewer. Returns how many.
    pub(super) fn discard(&mut self, count: usize) -> usize {
        let buffers = core::iter::from_fn(|| self.buffers.take()).take(count);
        buffers.map(|buffer| drop(buffer.into_packet())).count()
    }

    /// Writes the descriptor at `position`.
    pub(super) fn describe(&self, position: u64, words: [u64; 2]) {
        describe(self.descriptors.words(), position, words);
    }

    /// The second word of the descriptor at `position`, which both sides write.
    #[inline(always)]
    pub(super) fn word(&self, position: u64) -> u64 {
        word(self.descriptors.words(), position)
    }

    #[inline(always)]
    pub(super) fn set_word(&self, position: u64, word: u64) {
        self.descriptors.write(2 * position as usize + 1, word);
    }

    /// Begins anew, as a reset card wants it: the oldest buffer comes to lie at position 0, and its descriptor with it.
    pub(super) fn rewind(&mut self) {
        self.descriptors.rotate_left(2 * self.index(self.first()) as usize);
        self.buffers.rewind();
    }

    /// Makes everything before `position` the device's. False, and nothing done, where the card is in another life.
    #[inline(always)]
    pub(super) fn publish(&self, position: u64) -> bool {
        release();
        self.gate.pass(|| self.tail.write(&self.bar, self.index(position)))
    }
}

#[inline(always)]
fn word(descriptors: Words<'_, u64>, position: u64) -> u64 {
    descriptors.read(2 * position as usize + 1)
}

#[inline(always)]
fn describe(descriptors: Words<'_, u64>, position: u64, [address, word]: [u64; 2]) {
    descriptors.write(2 * position as usize, address);
    descriptors.write(2 * position as usize + 1, word);
}

impl<B: Bar> Drop for PacketRing<B> {
    fn drop(&mut self) {
        if self.quiesced.is_confirmed() {
            self.discard(usize::MAX);
        } else {
            // The device may still read and write here: ring and buffers are never freed.
            mem::forget(self.memory.clone());
        }
    }
}

//! An 82599 in shared memory, with one queue pair: BAR 0 is plain memory, and whoever calls [`Source`] and [`Sink`] is the
//! card, a thread on another core as a rule.
//!
//! It has frames without end, and copies nothing. Of each frame it touches the one cache line that a real card would write
//! or read for 64 bytes: it writes addresses and a number when it delivers the frame, and checks all of it when the frame is
//! sent. What a broken driver or forwarder sends is noticed, so no figure is that of a broken path.

#![allow(unsafe_code)] // The card's side of the rings: it follows addresses that the driver wrote.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use netdrv::dma::{DmaMemory, Table, acquire, release};
use netdrv::ixgbe::BAR_LEN;
use netdrv::mmio::{Bar, Window};

use super::platform::LargePages;

/// Bytes of every frame, without CRC.
pub(in crate::bench) const FRAME_LEN: usize = 64;
/// Words of a frame.
const WORDS: usize = FRAME_LEN / 8;
/// Where every frame comes from and goes to, and what it is; and the same with the addresses swapped. Its number follows, and
/// zeros.
const ADDRESSES: [u8; 16] = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0";
const SWAPPED: [u8; 16] = *b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\x45\0";

// Registers (datasheet, chapter 8), and what the driver waits for in them.
const CTRL: u32 = 0x0_0000;
const CTRL_SELF_CLEARING: u32 = 1 << 26 | 1 << 3;
/// Where the registers of the two rings begin.
pub(super) const RDBAL: u32 = 0x0_1000;
pub(super) const TDBAL: u32 = 0x0_6000;
const PRESET: [(u32, u32); 6] = [
    (0x0_2F00, 1 << 3),            // RDRXCTL: DMA is initialised
    (0x0_42A4, 1 << 30 | 3 << 28), // LINKS: up, 10 Gb/s
    (0x0_8D04, 1 << 0),            // SECRXSTAT: nothing is in the receive path
    (0x0_A200, 0x0000_0002),       // RAL and RAH: 02:00:00:00:00:01
    (0x0_A204, 1 << 31 | 0x0100),
    (0x1_0010, 1 << 9), // EEC: the EEPROM is read
];

/// In the second word of a transmit descriptor: the driver wants a report, and the card has given it (7.2.3.2.4).
pub(super) const REPORT_STATUS: u64 = 1 << 27;
pub(super) const REPORTED: u64 = 1 << 32;

/// BAR 0 as the driver sees it.
#[derive(Clone)]
pub(in crate::bench) struct SharedBar(Window);

impl Bar for SharedBar {
    #[inline(always)]
    fn read(&self, offset: u32) -> u32 {
        self.0.read(offset)
    }

    /// A reset is over at once: the bits that ask for it clear themselves.
    #[inline(always)]
    fn write(&self, offset: u32, value: u32) {
        self.0.write(offset, if offset == CTRL { value & !CTRL_SELF_CLEARING } else { value });
    }
}

/// The registers.
pub(in crate::bench) struct SharedCard {
    memory: &'static DmaMemory,
    registers: Table<u32>,
}

impl SharedCard {
    /// A card that is reset.
    ///
    /// # Errors
    /// Where there is no memory for its registers.
    pub(in crate::bench) fn new() -> Result<SharedCard> {
        let memory = DmaMemory::allocate::<LargePages>(BAR_LEN).map_err(|error| anyhow!("{error}"))?;
        let registers = memory.table(0, BAR_LEN / 4);
        // Drivers take registers to be there for ever.
        let card = SharedCard { memory: Box::leak(Box::new(memory)), registers };
        card.reset();
        Ok(card)
    }

    /// Forgets what a driver has written; none may be there any more.
    pub(in crate::bench) fn reset(&self) {
        (0..BAR_LEN / 4).for_each(|register| self.registers.write(register, 0));
        PRESET.iter().for_each(|&(offset, value)| self.registers.write(offset as usize / 4, value));
    }

    /// The way to the registers.
    pub(in crate::bench) fn bar(&self) -> SharedBar {
        // SAFETY: the memory is there for as long as the program runs, and is nobody else's.
        SharedBar(unsafe { Window::map::<LargePages>(self.memory.address(0), BAR_LEN) })
    }

    /// The receiving side, once the driver has set its ring up.
    pub(in crate::bench) fn source(&self) -> Source {
        Source { ring: self.ring(RDBAL), number: 0 }
    }

    /// The transmitting side, likewise.
    pub(in crate::bench) fn sink(&self) -> Sink {
        Sink { ring: self.ring(TDBAL), last: 0, taken: 0, wrong: 0 }
    }

    /// The ring whose registers begin at `base`: address, length in bytes, and tail lie alike on both sides (8.2.3.8, 8.2.3.9).
    fn ring(&self, base: u32) -> Ring {
        let place = |offset: u32| (base + offset) as usize / 4;
        let read = |offset| self.registers.read(place(offset));
        let address = u64::from(read(0x4)) << 32 | u64::from(read(0x0));
        let len = read(0x8) as usize / size_of::<Descriptor>();
        // SAFETY: the driver has given a ring of so many descriptors, which it keeps until the card is stopped. Both sides
        // use atomics.
        let descriptors = unsafe { std::slice::from_raw_parts(address as *const Descriptor, len) };
        Ring { descriptors, registers: self.memory.table(0, BAR_LEN / 4), tail: place(0x18), head: 0 }
    }
}

/// Two words that both sides write.
type Descriptor = [AtomicU64; 2];

/// The card's side of a ring.
struct Ring {
    descriptors: &'static [Descriptor],
    registers: Table<u32>,
    /// Where the tail is among the registers.
    tail: usize,
    /// The descriptor that is worked next.
    head: usize,
}

impl Ring {
    /// Works the descriptors that the driver has given, `most` of them. Returns how many.
    #[inline(always)]
    fn work(&mut self, most: usize, mut one: impl FnMut(&Descriptor)) -> usize {
        let tail = self.registers.read(self.tail) as usize;
        acquire();
        let mask = self.descriptors.len() - 1;
        let count = most.min(tail.wrapping_sub(self.head) & mask);
        for _ in 0..count {
            one(&self.descriptors[self.head & mask]);
            self.head = (self.head + 1) & mask;
        }
        count
    }
}

/// Where frames come from.
pub(in crate::bench) struct Source {
    ring: Ring,
    /// The number of the last frame.
    number: u64,
}

impl Source {
    /// Fills up to `most` of the buffers that the driver has given, and writes their descriptors back (7.1.6.2). Returns how
    /// many.
    #[inline(always)]
    pub(in crate::bench) fn deliver(&mut self, most: usize) -> usize {
        const DONE_AND_WHOLE: u64 = 0b11;
        let [first, second] = words(ADDRESSES);
        let number = &mut self.number;
        self.ring.work(most, |[address, status]| {
            *number += 1;
            let frame = [first, second, *number, 0, 0, 0, 0, 0];
            // SAFETY: the driver has given the buffer to the card, and it is longer than that.
            unsafe { (address.load(Ordering::Relaxed) as *mut [u64; WORDS]).write_unaligned(frame) };
            address.store(0, Ordering::Relaxed);
            release();
            status.store(DONE_AND_WHOLE | (FRAME_LEN as u64) << 32, Ordering::Relaxed);
        })
    }

    /// Frames so far.
    pub(in crate::bench) fn delivered(&self) -> u64 {
        self.number
    }
}

/// Where they go.
pub(in crate::bench) struct Sink {
    ring: Ring,
    /// The number of the last frame.
    last: u64,
    taken: u64,
    wrong: u64,
}

impl Sink {
    /// Sends up to `most` of the frames that the driver has given: checks that each is one that was delivered, with its
    /// addresses swapped, and behind all that came before it. Reports where the driver asks for that (7.2.3.2.4, RS). Returns
    /// how many.
    #[inline(always)]
    pub(in crate::bench) fn take(&mut self, most: usize) -> usize {
        let [first, second] = words(SWAPPED);
        let (last, wrong) = (&mut self.last, &mut self.wrong);
        let count = self.ring.work(most, |[address, command]| {
            // SAFETY: the driver has given the buffer to the card, and it is longer than that.
            let frame = unsafe { (address.load(Ordering::Relaxed) as *const [u64; WORDS]).read_unaligned() };
            let [a, b, number, rest @ ..] = frame;
            let differs = (a ^ first) | (b ^ second) | rest.iter().fold(0, |all, word| all | word);
            *wrong += u64::from(differs != 0 || number <= *last);
            *last = number;
            if command.load(Ordering::Relaxed) & REPORT_STATUS != 0 {
                release();
                command.store(REPORTED, Ordering::Relaxed);
            }
        });
        self.taken += count as u64;
        count
    }

    /// Frames so far.
    pub(in crate::bench) fn taken(&self) -> u64 {
        self.taken
    }

    /// Those of them that were damaged, not swapped, or out of order.
    pub(in crate::bench) fn wrong(&self) -> u64 {
        self.wrong
    }
}

/// Swaps the addresses of the frame that begins at word `at`.
#[inline(always)]
pub(super) fn swap(frames: &Table<u64>, at: usize) {
    // Six bytes each, from the first of a word on: what is swapped are 16-bit pieces 0 to 2 and 3 to 5.
    let (first, second) = (frames.read(at), frames.read(at + 1));
    let (to, from) = (first & 0xffff_ffff_ffff, first >> 48 | (second & 0xffff_ffff) << 16);
    frames.write(at, from | to << 48);
    frames.write(at + 1, second & !0xffff_ffff | to >> 16);
}

/// Frame `number` as it has to come out.
#[inline(always)]
pub(in crate::bench) fn outgoing(number: u64) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    frame[..SWAPPED.len()].copy_from_slice(&SWAPPED);
    frame[SWAPPED.len()..][..8].copy_from_slice(&number.to_ne_bytes());
    frame
}

fn words(bytes: [u8; 16]) -> [u64; 2] {
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    [word(0), word(8)]
}

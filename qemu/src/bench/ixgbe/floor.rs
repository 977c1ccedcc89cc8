//! A loop before the card that swaps addresses and does nothing else: no pool, no counters, no programs. What it takes is about what
//! two cores take to hand frames to each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, ensure};
use netdrv::dma::{DmaMemory, Table, acquire, release};
use netdrv::mmio::Bar;

use super::card::{FRAME_LEN, RDBAL, REPORT_STATUS, REPORTED, SharedBar, SharedCard, TDBAL, swap};
use super::lane::{Card, Measured, Setup, WINDOW, side_by_side};
use super::platform::LargePages;
use crate::bench::cpu;
use crate::bench::measure::{Log, Recorder};

/// Words from one buffer to the next: an odd number of cache lines, so that frames do not crowd in a few sets of the cache.
const STRIDE: usize = 33 * 8;
/// A receive descriptor that is done (7.1.6.2), and a transmit descriptor of a whole frame: data, EOP, IFCS, DEXT (7.2.3.2.4).
const DONE: u64 = 1;
const SEND: u64 = FRAME_LEN as u64 | 0x3 << 20 | 0x23 << 24 | (FRAME_LEN as u64) << 46;

/// What the loop has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare {
    pub(super) setup: Setup,
    /// Buffers beside those of the receive ring.
    pub(super) spare: usize,
    /// Cycles that it spends on something else, for each packet.
    pub(super) work: u64,
}

/// The loop on one core and the card on another. Returns as well how many frames were waiting in the transmit ring, on average.
///
/// # Errors
/// When there are too few cores or too little memory, and when what comes out is not what went in.
pub(super) fn measure(bare: Bare) -> Result<(Measured, f64)> {
    let registers = SharedCard::new()?;
    let mut rings = Rings::new(bare, &registers.bar())?;
    let mut card = Card { source: registers.source(), sink: registers.sink() };
    // What a card has brought in by the time somebody looks.
    card.source.deliver(bare.setup.ring);
    let (log, has_ended) = (Log::default(), AtomicBool::new(false));
    let recorder = Recorder::new(log.clone(), WINDOW);
    let mut waiting = 0.0;
    let stop = || has_ended.store(true, Ordering::Relaxed);
    let measured = side_by_side(&mut card, log, || waiting = rings.work(recorder, &has_ended), stop)?;
    ensure!(card.sink.wrong() == 0, "{} frames are not as they should be", card.sink.wrong());
    Ok((measured, waiting))
}

/// Both rings, and the buffers in them.
struct Rings {
    bare: Bare,
    bar: SharedBar,
    rx: Ring,
    tx: Ring,
    /// The first words of all buffers, and those buffers that are in no ring.
    frames: Table<u64>,
    free: VecDeque<usize>,
    memory: DmaMemory,
}

/// Positions count from the start.
struct Ring {
    words: Table<u64>,
    /// By descriptor, where its buffer begins.
    buffers: Vec<usize>,
    first: usize,
    end: usize,
    tail: u32,
}

impl Ring {
    /// A ring of `size` descriptors whose registers begin at `base`.
    fn new(size: usize, bar: &SharedBar, base: u32) -> Result<Ring> {
        let memory = DmaMemory::allocate::<LargePages>(16 * size).map_err(|error| anyhow!("{error}"))?;
        let address = memory.address(0);
        bar.write(base, address as u32);
        bar.write(base + 0x4, (address >> 32) as u32);
        bar.write(base + 0x8, 16 * size as u32);
        Ok(Ring {
            words: memory.table(0, 2 * size),
            buffers: vec![0; size],
            first: 0,
            end: 0,
            tail: base + 0x18,
        })
    }

    fn len(&self) -> usize {
        self.end - self.first
    }

    fn room(&self) -> usize {
        self.buffers.len() - 1 - self.len()
    }

    fn status(&self, position: usize) -> u64 {
        self.words.read(2 * position + 1)
    }

    fn buffer(&self, position: usize) -> usize {
        self.buffers[position & (self.buffers.len() - 1)]
    }

    fn push(&mut self, buffer: usize, words: [u64; 2]) {
        let index = self.end & (self.buffers.len() - 1);
        self.buffers[index] = buffer;
        self.words.write(2 * index, words[0]);
        self.words.write(2 * index + 1, words[1]);
        self.end += 1;
    }

    fn publish(&self, bar: &SharedBar) {
        release();
        bar.write(self.tail, (self.end & (self.buffers.len() - 1)) as u32);
    }
}

impl Rings {
    fn new(bare: Bare, bar: &SharedBar) -> Result<Rings> {
        let count = bare.setup.ring + bare.spare;
        let words = (count * STRIDE).next_power_of_two();
        let memory = DmaMemory::allocate::<LargePages>(8 * words).map_err(|error| anyhow!("{error}"))?;
        let mut rings = Rings {
            bare,
            bar: bar.clone(),
            rx: Ring::new(bare.setup.ring, bar, RDBAL)?,
            tx: Ring::new(bare.setup.ring, bar, TDBAL)?,
            frames: memory.table(0, words),
            free: (0..count).map(|index| index * STRIDE).collect(),
            memory,
        };
        rings.rearm(usize::MAX);
        Ok(rings)
    }

    /// Until the end. Returns how many frames were waiting to be sent as bursts came in, on average.
    fn work(&mut self, mut recorder: Recorder, has_ended: &AtomicBool) -> f64 {
        let batch = self.bare.setup.batch;
        let (mut bursts, mut waiting) = (0u64, 0);
        while !has_ended.load(Ordering::Relaxed) {
            self.reclaim(batch);
            if self.is_due(batch) {
                bursts += 1;
                waiting += self.tx.len();
                self.forward(batch);
                recorder.note(batch);
            }
            self.rearm(batch);
        }
        waiting as f64 / bursts as f64
    }

    /// Takes back a burst that was sent.
    fn reclaim(&mut self, batch: usize) {
        if self.tx.len() >= batch && self.tx.status(self.tx.first + batch - 1) & REPORTED != 0 {
            for _ in 0..batch {
                self.free.push_back(self.tx.buffer(self.tx.first));
                self.tx.first += 1;
            }
        }
    }

    /// Whether a burst has come, and one more behind it, and there is room for it.
    fn is_due(&self, batch: usize) -> bool {
        self.rx.len() >= 2 * batch
            && self.rx.status(self.rx.first + 2 * batch - 1) & DONE != 0
            && self.tx.room() >= batch
    }

    fn forward(&mut self, batch: usize) {
        acquire();
        for ahead in batch..2 * batch {
            self.frames.prefetch(self.rx.buffer(self.rx.first + ahead));
        }
        for _ in 0..batch {
            let buffer = self.rx.buffer(self.rx.first);
            swap(&self.frames, buffer);
            self.rx.first += 1;
        }
        let until = cpu::ticks() + self.bare.work * batch as u64;
        while self.bare.work > 0 && cpu::ticks() < until {}
        for index in 0..batch {
            let buffer = self.rx.buffer(self.rx.first - batch + index);
            let report = if index == batch - 1 { REPORT_STATUS } else { 0 };
            self.tx.push(buffer, [self.memory.address(8 * buffer), SEND | report]);
        }
        self.tx.publish(&self.bar);
    }

    /// Gives the card as many free buffers as it has room for, `most` of them.
    fn rearm(&mut self, most: usize) {
        let count = most.min(self.rx.room()).min(self.free.len());
        for buffer in self.free.drain(..count) {
            self.rx.push(buffer, [self.memory.address(8 * buffer), 0]);
        }
        if count > 0 {
            self.rx.publish(&self.bar);
        }
    }
}

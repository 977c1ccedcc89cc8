//! Queues and registers of an Intel card that do without one measure each, where they are told to.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netdrv::device::{RxDrops, RxQueue, TxQueue};
use netdrv::ixgbe::{IxgbeRx, IxgbeTx};
use netdrv::mmio::Bar;
use netdrv::packet::Burst;
use netdrv::pool::PoolCache;

use crate::bench::ixgbe::card::{SharedBar, outgoing};
use crate::bench::measure::Recorder;

/// The tails of queue 0 (datasheet, 8.2.3.8.5 and 8.2.3.9.6).
const RDT: u32 = 0x0_1018;
const TDT: u32 = 0x0_6018;

/// The registers of a card; it counts what is written to the tails.
#[derive(Clone)]
pub(super) struct TailBar {
    pub(super) bar: SharedBar,
    /// Where the receive tail is to be written for each descriptor: one less than those of the ring.
    pub(super) single_steps: Option<u32>,
    pub(super) written: Arc<AtomicU64>,
}

impl Bar for TailBar {
    #[inline(always)]
    fn read(&self, offset: u32) -> u32 {
        self.bar.read(offset)
    }

    #[inline(always)]
    fn write(&self, offset: u32, value: u32) {
        let mut tails = u64::from(offset == RDT || offset == TDT);
        if let Some(mask) = self.single_steps
            && offset == RDT
        {
            let before = self.bar.read(RDT);
            let steps = value.wrapping_sub(before) & mask;
            (1..steps).for_each(|step| self.bar.write(RDT, (before + step) & mask));
            tails = steps.into();
        }
        self.bar.write(offset, value);
        if tails > 0 {
            // One thread writes tails.
            self.written.store(self.written.load(Ordering::Relaxed) + tails, Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// Packets that the transmit queue of this thread takes now, as far as the queue has said: who makes frames makes no more.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Where packets come from.
#[expect(clippy::large_enum_variant, reason = "a worker has one")]
pub(super) enum Input {
    /// A card.
    Card(IxgbeRx<TailBar>),
    /// Nowhere: frames as they have to come out, the next one with this number. The worker's work is then all transmission.
    Nowhere(u64),
}

/// A receive queue.
pub(super) struct MeasuredRx {
    pub(super) input: Input,
    /// Packets are received one by one.
    pub(super) one_by_one: bool,
    /// Where what is received is what counts.
    pub(super) recorder: Option<Recorder>,
}

impl RxQueue for MeasuredRx {
    #[inline(always)]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        let received = match &mut self.input {
            Input::Card(queue) if self.one_by_one => {
                (0..limit).take_while(|_| queue.receive(cache, burst, 1) > 0).count()
            }
            Input::Card(queue) => queue.receive(cache, burst, limit),
            Input::Nowhere(next) => make(next, cache, burst, limit.min(ROOM.get())),
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.note(received);
        }
        received
    }

    fn leave_unread(&mut self) {
        if let Input::Card(queue) = &mut self.input {
            queue.leave_unread();
        }
    }

    fn keep_full(&mut self) {
        if let Input::Card(queue) = &mut self.input {
            queue.keep_full();
        }
    }

    fn arm(&mut self) -> bool {
        match &mut self.input {
            Input::Card(queue) => queue.arm(),
            Input::Nowhere(_) => false,
        }
    }

    fn drops(&self) -> RxDrops {
        match &self.input {
            Input::Card(queue) => queue.drops(),
            Input::Nowhere(_) => RxDrops::default(),
        }
    }
}

/// Makes up to `most` frames. Returns how many.
#[inline(always)]
fn make(next: &mut u64, cache: &mut PoolCache, burst: &mut Burst, most: usize) -> usize {
    let most = most.min(burst.remaining_capacity());
    cache.take_many(most, |mut packet| {
        *next += 1;
        let frame = outgoing(*next);
        if packet.set_len(frame.len()) {
            packet.bytes_mut().copy_from_slice(&frame);
            burst.push(packet);
        }
    })
}

/// A transmit queue.
pub(super) struct MeasuredTx {
    pub(super) queue: IxgbeTx<TailBar>,
    /// Packets are sent one by one, each with a report and a tail of its own.
    pub(super) one_by_one: bool,
    /// Where what is sent is what counts.
    pub(super) recorder: Option<Recorder>,
}

impl TxQueue for MeasuredTx {
    #[inline(always)]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        let completed = self.queue.reclaim(cache);
        ROOM.set(self.queue.room());
        completed
    }

    #[inline(always)]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let count = if self.one_by_one {
            let count = burst.len().min(self.queue.room());
            for packet in burst.drain(..count) {
                let mut alone = Burst::new();
                alone.push(packet);
                self.queue.enqueue(&mut alone);
                self.queue.flush();
            }
            count
        } else {
            self.queue.enqueue(burst)
        };
        ROOM.set(self.queue.room());
        if let Some(recorder) = &mut self.recorder {
            recorder.note(count);
        }
        count
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.queue.flush();
    }

    #[inline(always)]
    fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    #[inline(always)]
    fn room(&self) -> usize {
        self.queue.room()
    }

    fn refused(&self) -> u64 {
        self.queue.refused()
    }
}

//! A receive queue without a device: as many frames as the worker wants. What the worker does with them is then all
//! transmission.

use netdrv::device::{RxDrops, RxQueue};
use netdrv::packet::{Burst, Packet};
use netdrv::pool::PoolCache;
use netdrv::virtio::VirtioRx;

use super::frames;

/// The receive queues of the bench.
#[expect(clippy::large_enum_variant, reason = "a worker has one")]
pub(super) enum Input {
    /// Of the driver under test.
    Virtio(VirtioRx),
    /// Frames from nowhere.
    Source(Source),
}

/// Frames of one length without end: their headers are written, as a generator must, and numbered as
/// [`frames`](super::frames) asks.
pub(super) struct Source {
    len: usize,
    next: u64,
}

impl Source {
    /// Frames of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self { len, next: 0 }
    }
}

impl RxQueue for Source {
    #[inline(always)]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        let before = burst.len();
        cache.take_many(limit.min(burst.remaining_capacity()), |packet| burst.push(packet));
        burst[before..].iter().for_each(Packet::prefetch);
        for packet in &mut burst[before..] {
            if packet.set_len(self.len) {
                frames::write(packet.bytes_mut(), self.next);
                self.next += 1;
            }
        }
        burst.len() - before
    }

    fn leave_unread(&mut self) {}

    fn keep_full(&mut self) {}

    fn arm(&mut self) -> bool {
        false
    }

    fn drops(&self) -> RxDrops {
        RxDrops::default()
    }
}

impl RxQueue for Input {
    #[inline(always)]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        match self {
            Input::Virtio(queue) => queue.receive(cache, burst, limit),
            Input::Source(source) => source.receive(cache, burst, limit),
        }
    }

    fn leave_unread(&mut self) {
        match self {
            Input::Virtio(queue) => queue.leave_unread(),
            Input::Source(source) => source.leave_unread(),
        }
    }

    fn keep_full(&mut self) {
        match self {
            Input::Virtio(queue) => queue.keep_full(),
            Input::Source(source) => source.keep_full(),
        }
    }

    fn arm(&mut self) -> bool {
        match self {
            Input::Virtio(queue) => queue.arm(),
            Input::Source(source) => source.arm(),
        }
    }

    fn drops(&self) -> RxDrops {
        match self {
            Input::Virtio(queue) => queue.drops(),
            Input::Source(source) => source.drops(),
        }
    }
}

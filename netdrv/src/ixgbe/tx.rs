//! Transmitting: reclaim, check, enqueue, flush.

use alloc::boxed::Box;

use super::descriptor::tx;
use super::ring::PacketRing;
use crate::device::TxQueue;
use crate::dma::acquire;
use crate::mmio::Bar;
use crate::packet::{Burst, Packet};
use crate::pool::PoolCache;

/// Descriptors that one write-back reports, at most. A group also ends with the burst that it was flushed with, so that no
/// frame stays in the ring without one.
const GROUP: u64 = 32;

/// The shortest frame that is sent: an Ethernet header.
const MIN_FRAME: usize = 14;
/// The shortest that the device takes; it pads to 64 bytes by itself from there on (7.2.3.2.4, PAYLEN).
const MIN_PAYLOAD: usize = 17;

/// A transmit queue.
pub struct IxgbeTx<B: Bar> {
    ring: PacketRing<B>,
    /// Where the next frame goes; the device knows of those before `published`.
    next: u64,
    published: u64,
    /// The oldest frame that is not reclaimed.
    clean: u64,
    /// Where the group begins that is not closed yet.
    group: u64,
    /// By the first descriptor of a closed group: its last, the one that the device writes back.
    ends: Box<[u64]>,
    /// Descriptors of a group, at most.
    group_len: u64,
    /// Frames that left the ring when it started over and have not been reported.
    gone: usize,
    refused: u64,
}

impl<B: Bar> IxgbeTx<B> {
    pub(super) fn new(ring: PacketRing<B>) -> IxgbeTx<B> {
        let size = ring.capacity() + 1;
        IxgbeTx {
            ends: (0..size).map(|_| 0).collect(),
            // Several groups in the shortest ring, or it would stand still between two reports.
            group_len: GROUP.min(size / 4),
            ring,
            next: 0,
            published: 0,
            clean: 0,
            group: 0,
            gone: 0,
            refused: 0,
        }
    }

    /// Puts a packet into the ring.
    #[inline(always)]
    fn put(&mut self, packet: Packet) {
        let word = tx::frame(packet.len());
        self.ring.put(self.next, packet, word);
        self.next += 1;
        if self.next - self.group == self.group_len {
            self.close_group();
        }
    }

    /// Has the device report the last frame, and with it all before it.
    #[inline(always)]
    fn close_group(&mut self) {
        let last = self.next - 1;
        self.ring.set_word(last, self.ring.word(last) | tx::REPORT_STATUS);
        self.ends[self.ring.index(self.group) as usize] = last;
        self.group = self.next;
    }

    /// The last frame of the oldest group, where that was reported.
    #[inline(always)]
    fn reported(&self) -> Option<u64> {
        if self.clean == self.group {
            return None;
        }
        let last = self.ends[self.ring.index(self.clean) as usize];
        tx::is_done(self.ring.word(last)).then_some(last)
    }

    /// After a reset of the card: frames that it had and did not report are lost, those that it never knew of are sent now.
    /// False while the reset lasts.
    #[cold]
    fn start_over(&mut self) -> bool {
        if !self.ring.gate_mut().renew() {
            return false;
        }
        let waiting = self.next - self.clean;
        while let Some(last) = self.reported() {
            self.drop_before(last + 1);
        }
        self.ring.gate().notice().add_lost(self.published - self.clean);
        self.drop_before(self.published);
        self.gone += (waiting - (self.next - self.clean)) as usize;

        self.ring.rewind(self.clean);
        let unknown = self.next - self.clean;
        (self.next, self.published, self.clean, self.group) = (0, 0, 0, 0);
        for position in 0..unknown {
            if let Some(packet) = self.ring.take(position) {
                self.put(packet);
            }
        }
        self.publish();
        true
    }

    fn drop_before(&mut self, end: u64) {
        while self.clean != end {
            drop(self.ring.take(self.clean));
            self.clean += 1;
        }
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.group != self.next {
            self.close_group();
        }
        if self.published != self.next && self.ring.publish(self.next) {
            self.published = self.next;
            self.note();
        }
    }

    #[inline(always)]
    fn note(&self) {
        self.ring.gate().notice().set(self.ring.index(self.clean), self.ring.index(self.published));
    }
}

impl<B: Bar> TxQueue for IxgbeTx<B> {
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        if self.ring.gate().is_stale() {
            self.start_over();
        }
        let mut count = core::mem::take(&mut self.gone);
        while let Some(last) = self.reported() {
            acquire();
            while self.clean <= last {
                if let Some(packet) = self.ring.take(self.clean) {
                    cache.put(packet);
                }
                self.clean += 1;
                count += 1;
            }
        }
        if self.clean != self.group {
            self.ring.gate().notice().add_vain_look();
        }
        self.note();
        count
    }

    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len().min(self.room());
        for mut packet in burst.drain(..count) {
            if packet.len() < MIN_PAYLOAD && !pad(&mut packet) {
                self.refused += 1;
                continue;
            }
            self.put(packet);
        }
        count
    }

    fn flush(&mut self) {
        if self.ring.gate().is_stale() {
            self.start_over();
        } else {
            self.publish();
        }
    }

    fn waiting(&self) -> usize {
        (self.next - self.clean) as usize
    }

    fn room(&self) -> usize {
        (self.ring.capacity() - (self.next - self.clean)) as usize
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

/// Makes a short frame as long as the device wants it; false where it is none at all.
#[cold]
fn pad(packet: &mut Packet) -> bool {
    let len = packet.len();
    let fits = len >= MIN_FRAME && packet.set_len(MIN_PAYLOAD);
    if fits {
        packet.bytes_mut()[len..].fill(0);
    }
    fits
}

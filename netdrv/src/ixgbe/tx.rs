//! Transmitting: reclaim, check, enqueue, flush.

use alloc::boxed::Box;

use super::descriptor::tx;
use super::ring::PacketRing;
use crate::device::TxQueue;
use crate::dma::acquire;
use crate::mmio::Bar;
use crate::packet::{Burst, Packet};
use crate::pool::{FreeBuffer, PoolCache};

/// Descriptors that one write-back reports, at most. A group also ends with the burst that it was flushed with, so that no
/// frame stays in the ring without one.
const GROUP: u64 = 32;

/// The shortest frame that is sent: an Ethernet header.
const MIN_FRAME: usize = 14;
/// The shortest that the device takes; it pads to 64 bytes by itself from there on (7.2.3.2.4, PAYLEN).
const MIN_PAYLOAD: usize = 17;

/// A transmit queue. The buffers of its ring are those that the device has or is to have.
pub struct IxgbeTx<B: Bar> {
    ring: PacketRing<B>,
    /// The device knows of the frames before this.
    published: u64,
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
        let size = ring.size() as u64;
        IxgbeTx {
            ends: (0..size).map(|_| 0).collect(),
            // Several groups in the shortest ring, or it would stand still between two reports.
            group_len: GROUP.min(size / 4),
            ring,
            published: 0,
            group: 0,
            gone: 0,
            refused: 0,
        }
    }

    /// From now on a write-back reports so many descriptors at most, instead of as many as suit the ring: for those who
    /// measure what that is worth.
    pub fn shorten_groups(&mut self, descriptors: u64) {
        self.group_len = descriptors.clamp(1, self.group_len);
    }

    /// Closes the groups that are full.
    #[inline(always)]
    fn close_full_groups(&mut self) {
        while self.ring.end() - self.group >= self.group_len {
            self.close_group(self.group + self.group_len);
        }
    }

    /// Ends the group before `end`: has the device report its last frame, and with it all before that.
    #[inline(always)]
    fn close_group(&mut self, end: u64) {
        let last = end - 1;
        self.ring.set_word(last, self.ring.word(last) | tx::REPORT_STATUS);
        self.ends[self.ring.index(self.group) as usize] = last;
        self.group = end;
    }

    /// How many frames the oldest group has, where it was reported.
    #[inline(always)]
    fn reported(&self) -> Option<usize> {
        let first = self.ring.first();
        if first == self.group {
            return None;
        }
        let last = self.ends[self.ring.index(first) as usize];
        tx::is_done(self.ring.word(last)).then_some((last + 1 - first) as usize)
    }

    /// After a reset of the card: frames that it had and did not report are lost, those that it never knew of are sent now.
    /// False while the reset lasts.
    #[cold]
    fn start_over(&mut self) -> bool {
        if !self.ring.gate_mut().renew() {
            return false;
        }
        while let Some(count) = self.reported() {
            self.gone += self.ring.discard(count);
        }
        let lost = self.published - self.ring.first();
        self.ring.gate().notice().add_lost(lost);
        self.gone += self.ring.discard(lost as usize);

        self.ring.rewind();
        for position in 0..self.ring.end() {
            self.ring.set_word(position, self.ring.word(position) & !tx::REPORT_STATUS);
        }
        (self.published, self.group) = (0, 0);
        self.close_full_groups();
        self.publish();
        true
    }

    #[inline(always)]
    fn publish(&mut self) {
        let end = self.ring.end();
        if self.group != end {
            self.close_group(end);
        }
        if self.published != end && self.ring.publish(end) {
            self.published = end;
            self.note();
        }
    }

    #[inline(always)]
    fn note(&self) {
        let clean = self.ring.index(self.ring.first());
        self.ring.gate().notice().set(clean, self.ring.index(self.published));
    }
}

impl<B: Bar> TxQueue for IxgbeTx<B> {
    #[inline(never)]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        if self.ring.gate().is_stale() {
            self.start_over();
        }
        let mut count = core::mem::take(&mut self.gone);
        while let Some(frames) = self.reported() {
            acquire();
            count += self.ring.give_back(frames, cache);
        }
        if self.ring.first() != self.group {
            self.ring.gate().notice().add_vain_look();
        }
        self.note();
        count
    }

    #[inline(never)]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len().min(self.room());
        let mut refused = 0;
        self.ring.append(burst.drain(..count).filter_map(|packet| {
            let packet = if packet.len() < MIN_PAYLOAD { pad(packet, &mut refused)? } else { packet };
            let words = [packet.address(), tx::frame(packet.len())];
            Some((FreeBuffer::of(packet), words))
        }));
        self.refused += refused;
        self.close_full_groups();
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
        (self.ring.end() - self.ring.first()) as usize
    }

    fn room(&self) -> usize {
        self.ring.room()
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

/// Makes a short frame as long as the device wants it. Where it is none at all it is dropped, and counted.
#[cold]
fn pad(mut packet: Packet, refused: &mut u64) -> Option<Packet> {
    let len = packet.len();
    if len < MIN_FRAME || !packet.set_len(MIN_PAYLOAD) {
        *refused += 1;
        return None;
    }
    packet.bytes_mut()[len..].fill(0);
    Some(packet)
}

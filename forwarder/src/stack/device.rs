//! The stack's side of a port, as smoltcp sees it: one frame in at a time, answers out into a lane.

use alloc::collections::VecDeque;
use alloc::vec;

use netdrv::packet::{MAX_BURST, Packet};
use netdrv::pool::PoolCache;
use smoltcp::phy::{Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::time::Instant;

use super::counters::StackCounters;
use super::echo;
use super::inspect::MAX_DATAGRAM;

/// The most frames that wait in a lane: less than a burst when a round over the sockets begins, one of each socket, and
/// the fragments of a datagram on a network with the smallest MTU.
pub(super) const LANE_CAPACITY: usize = MAX_BURST + echo::SOCKETS + MAX_DATAGRAM.div_ceil(552);

/// Frames that the stack has made and nobody has sent yet, oldest first.
pub(super) type Lane = VecDeque<Packet>;

/// A device for the time of one call into smoltcp. A received packet and unused buffers go home when it ends.
pub(super) struct StackDevice<'a> {
    /// The largest frame to send, in bytes, with the Ethernet header.
    frame_limit: usize,
    /// The frame to receive, or the one that was received.
    received: Received,
    /// A buffer for the next frame to send.
    spare: Option<Packet>,
    /// Where frames to send go.
    lane: &'a mut Lane,
    cache: &'a mut PoolCache,
    pub(super) counters: &'a mut StackCounters,
}

/// The one frame that may be received.
enum Received {
    Nothing,
    Waiting(Packet),
    Done(Packet),
}

impl<'a> StackDevice<'a> {
    /// A device with nothing to receive.
    pub(super) fn new(
        frame_limit: usize,
        lane: &'a mut Lane,
        cache: &'a mut PoolCache,
        counters: &'a mut StackCounters,
    ) -> StackDevice<'a> {
        StackDevice { frame_limit, received: Received::Nothing, spare: None, lane, cache, counters }
    }

    /// Puts a frame there to be received, in place of the one before.
    pub(super) fn deliver(&mut self, packet: Packet) {
        self.discard();
        self.received = Received::Waiting(packet);
    }

    fn discard(&mut self) {
        match core::mem::replace(&mut self.received, Received::Nothing) {
            Received::Waiting(packet) | Received::Done(packet) => self.cache.put(packet),
            Received::Nothing => {}
        }
    }

    /// Whether one more frame can be sent: the lane has room, and there is a buffer.
    fn can_send(&mut self) -> bool {
        if self.lane.len() >= LANE_CAPACITY {
            return false;
        }
        if self.spare.is_none() {
            self.spare = self.cache.take();
        }
        self.spare.is_some()
    }

    /// Makes a frame of `len` bytes. Says whether there was room for it.
    pub(super) fn send(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.transmit(Instant::ZERO).map(|token| token.consume(len, write)).is_some()
    }
}

impl Drop for StackDevice<'_> {
    fn drop(&mut self) {
        self.discard();
        if let Some(packet) = self.spare.take() {
            self.cache.put(packet);
        }
    }
}

impl Device for StackDevice<'_> {
    type RxToken<'t>
        = Receive<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Transmit<'t>
    where
        Self: 't;

    fn receive(&mut self, _now: Instant) -> Option<(Receive<'_>, Transmit<'_>)> {
        if !matches!(self.received, Received::Waiting(_)) || !self.can_send() {
            return None;
        }
        let transmit = Transmit { spare: &mut self.spare, lane: self.lane, counters: self.counters };
        Some((Receive(&mut self.received), transmit))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Transmit<'_>> {
        if !self.can_send() {
            return None;
        }
        Some(Transmit { spare: &mut self.spare, lane: self.lane, counters: self.counters })
    }

    /// Ethernet, and every checksum in software: the stack trusts no offload.
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = self.frame_limit;
        capabilities
    }
}

/// The right to look at the received frame.
pub(super) struct Receive<'t>(&'t mut Received);

impl RxToken for Receive<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        match core::mem::replace(self.0, Received::Nothing) {
            Received::Waiting(packet) | Received::Done(packet) => {
                let result = look(packet.bytes());
                *self.0 = Received::Done(packet);
                result
            }
            Received::Nothing => look(&[]),
        }
    }
}

/// The right to make one frame.
pub(super) struct Transmit<'t> {
    spare: &'t mut Option<Packet>,
    lane: &'t mut Lane,
    counters: &'t mut StackCounters,
}

impl TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        match self.spare.take().and_then(|packet| resized(packet, len)) {
            Some(mut packet) => {
                let result = write(packet.bytes_mut());
                self.lane.push_back(packet);
                self.counters.frames_made += 1;
                result
            }
            None => {
                // smoltcp keeps to `frame_limit`, which every buffer holds; were that ever broken, it would show here.
                self.counters.oversize += 1;
                write(&mut vec![0; len])
            }
        }
    }
}

/// The packet with `len` zeroes: what its writer leaves out must not show what the buffer held before.
fn resized(mut packet: Packet, len: usize) -> Option<Packet> {
    packet.set_len(len).then(|| {
        packet.bytes_mut().fill(0);
        packet
    })
}

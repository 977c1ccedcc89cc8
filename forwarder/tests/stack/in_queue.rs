//! A bounded queue of packets on their way to a stack, as a worker's is.

use std::collections::VecDeque;

use netdrv::packet::Packet;
use netdrv::pool::PoolCache;

/// First in, first out, with a bound: who passes more than the stack can take loses the excess, counted, and the
/// stack's share of the pool stays what it was planned to be.
///
/// Its iterator takes packets off the front, and ends where the queue is empty at that moment.
#[derive(Debug)]
pub(crate) struct InQueue {
    packets: VecDeque<Packet>,
    capacity: usize,
    overflow: u64,
}

impl InQueue {
    /// An empty queue of at most `capacity` packets.
    pub(crate) fn new(capacity: usize) -> InQueue {
        InQueue { packets: VecDeque::with_capacity(capacity), capacity, overflow: 0 }
    }

    /// Appends `packet`. Where the queue is full the packet ends here: its buffer goes home through `cache`, and the
    /// overflow counts one more.
    pub(crate) fn offer(&mut self, packet: Packet, cache: &mut PoolCache) {
        if self.packets.len() < self.capacity {
            self.packets.push_back(packet);
        } else {
            self.overflow += 1;
            cache.put(packet);
        }
    }

    /// Packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Packets that did not get in.
    pub(crate) fn overflow(&self) -> u64 {
        self.overflow
    }
}

impl Iterator for InQueue {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }
}

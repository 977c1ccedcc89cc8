//! What every driver offers: a device to control, and queues that move packets.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::packet::Burst;
use crate::pool::{Pool, PoolCache};
use crate::sync::{AtomicBool, Ordering};

/// A station address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The state of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Frames can pass.
    Up,
    /// They can't.
    Down,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Up => "up",
            Link::Down => "down",
        })
    }
}

/// What the user wants of a device's queues; the device gives what it has, and the driver says what that was.
#[derive(Clone, Copy, Debug)]
pub struct QueueWish {
    /// Queue pairs, at least 1.
    pub pairs: usize,
    /// Descriptors in a ring: a power of two, 64 to 4096.
    pub ring: usize,
    /// Entries of the function's MSI-X table that are ready for receive queues; 0 where nobody waits for interrupts.
    pub interrupts: u16,
    /// Transmit queues without which nothing will do; 0 where the device may have fewer. Where it has as many in a mode that
    /// has a price, it is put into that mode.
    pub tx_needed: usize,
}

/// The frames that a receive queue refused because of what the device wrote, since the queue was made.
/// Each had a descriptor, so each counts as received.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RxDrops {
    /// Longer than a buffer: the device spread it over several, or claimed to have written past the end.
    pub oversize: u64,
    /// Shorter than the device's own header.
    pub truncated: u64,
    /// A descriptor that the driver had not given to the device, or gave once and got twice.
    pub unknown_descriptor: u64,
    /// The device found an error in the frame.
    pub damaged: u64,
    /// In a buffer, and not taken, when the device was reset.
    pub reset: u64,
}

/// What a device counts beside its queues, since it was set up. None of these frames is in another count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DeviceCounters {
    /// Frames that came in and found no buffer.
    pub missed: u64,
    /// Frames that came in damaged, too short or too long.
    pub errors: u64,
    /// Frames that a transmit ring held when the device was reset: taken, and perhaps never sent.
    pub lost: u64,
    /// Resets since the device was set up.
    pub resets: u64,
    /// How often the link went up or down.
    pub link_changes: u64,
}

/// Receives on one ring.
pub trait RxQueue {
    /// Appends up to `limit` received packets to `burst`, fewer where the burst has less room, and gives the
    /// device the buffers that have come back to `cache`. Returns how many were appended; while the device goes on, the
    /// newest may be left to the next call.
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize;

    /// Received frames won't be looked at, but dropped or handed on as they are: they need not come to this core's caches. Where
    /// nobody says so, they will be.
    fn leave_unread(&mut self);

    /// Buffers of received frames may never come back to this core's cache, so it is no use to wait for them: whatever the ring
    /// lacks comes from the pool at once.
    fn keep_full(&mut self);

    /// Asks the device for one interrupt when the next frame comes in; [`receive`](Self::receive) takes that back. Returns
    /// false where frames have come in already: there is nothing to wait for.
    fn arm(&mut self) -> bool;

    /// What this queue has refused so far.
    fn drops(&self) -> RxDrops;
}

/// Transmits on one ring. `enqueue` only writes descriptors; the device learns of them in `flush`.
pub trait TxQueue {
    /// Sends the buffers of completed packets home. Returns how many frames the device has completed since the last call;
    /// while it goes on, the newest may be left to the next one.
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize;

    /// Moves packets from the front of `burst` into the ring until either ends. Returns how many.
    fn enqueue(&mut self, burst: &mut Burst) -> usize;

    /// Makes the enqueued packets visible to the device and notifies it if it asks for that: one doorbell a call. Where
    /// that can't be told at once, the next call of `flush`, or of `reclaim` with nothing to reclaim, makes sure.
    fn flush(&mut self);

    /// Packets in the ring: enqueued and not yet reclaimed.
    fn waiting(&self) -> usize;

    /// How many packets [`enqueue`](Self::enqueue) takes now.
    fn room(&self) -> usize;

    /// Packets that [`enqueue`](Self::enqueue) took and dropped, since the device can't send them: longer than its MTU
    /// allows.
    fn refused(&self) -> u64 {
        0
    }
}

/// What the device really gave, known once it is negotiated and before any buffer is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueShape {
    /// Receive queues.
    pub rx: usize,
    /// Transmit queues.
    pub tx: usize,
    /// Descriptors in each receive ring.
    pub rx_ring: usize,
    /// Descriptors in each transmit ring.
    pub tx_ring: usize,
}

impl QueueShape {
    /// The most buffers that the rings hold at a time.
    pub fn buffers(&self) -> usize {
        self.rx * self.rx_ring + self.tx * self.tx_ring
    }
}

/// The queues of a device; each is used by one core at a time.
pub struct Queues<R, T> {
    /// Receive queues; queue `i` is hardware queue `i`.
    pub rx: Vec<R>,
    /// Transmit queues, likewise.
    pub tx: Vec<T>,
}

/// Why a device moves no more packets, although nobody stopped it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceFault {
    /// The device says that it has failed and must be reset.
    NeedsReset,
    /// What the device wrote to a ring makes no sense; that queue is idle from then on.
    BrokenRing {
        /// The device's number of the queue.
        queue: usize,
    },
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceFault::NeedsReset => f.write_str("the device has failed and asks for a reset"),
            DeviceFault::BrokenRing { queue } => write!(f, "the device has broken the ring of queue {queue}"),
        }
    }
}

/// Control of one device. Nothing here is called for a packet.
pub trait NetDevice {
    /// The receive queue of this device.
    type Rx: RxQueue + Send;
    /// The transmit queue of this device.
    type Tx: TxQueue + Send;

    /// The driver's name, e.g. `virtio-net`.
    fn driver(&self) -> &'static str;

    /// The station address.
    fn mac(&self) -> Mac;

    /// The state of the link now.
    fn link(&self) -> Link;

    /// The largest payload of a frame that the network takes, in bytes (1500 on plain Ethernet).
    fn mtu(&self) -> u16;

    /// How many queues the device gave, and how long their rings are: what the pool must hold buffers for.
    fn shape(&self) -> QueueShape;

    /// How many of the receive queues, from queue 0 on, can interrupt: queue `i` by entry `i` of the function's MSI-X table.
    fn rx_interrupts(&self) -> usize;

    /// Posts buffers of `pool` on the receive rings, starts the device and hands out its queues: it is live from here on.
    /// `None` when they were taken before.
    fn take_queues(&mut self, pool: &'static Pool) -> Option<Queues<Self::Rx, Self::Tx>>;

    /// Looks after the device: its link, whether it still moves, a reset that is under way. Called every few milliseconds
    /// by one core, which forwards packets in between: it never waits for long.
    fn attend(&mut self) {}

    /// What the device counts by itself.
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }

    /// What has gone wrong since the device was set up, if anything.
    fn fault(&self) -> Option<DeviceFault>;

    /// Resets the device: it touches no memory any more, and queues dropped after this send their buffers home.
    /// A device that does not confirm the reset keeps its memory for ever.
    fn stop(&mut self);
}

/// Whether the device is known to have let go of its memory. Shared by a device and its queues: a queue that is dropped
/// earlier must leak its rings and buffers, since the device may still write to them.
#[derive(Clone, Default)]
pub struct Quiesced(Arc<AtomicBool>);

impl Quiesced {
    /// The device has confirmed that it is stopped.
    pub fn confirm(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn is_confirmed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

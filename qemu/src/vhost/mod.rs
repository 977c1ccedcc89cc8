//! A traffic port: a vhost-user backend that makes frames for the guest and takes those that come out of it.
//!
//! It listens on a unix socket, to which QEMU (or any vhost-user frontend) connects, and is the other end of a virtio
//! card's cable: with as many queue pairs as one likes, without a copy through the kernel, and with an eye on *which*
//! queue each frame came out of. One thread serves all queues; nothing on its way is locked.
//!
//! ```no_run
//! use std::time::Duration;
//! use qemu::vhost::{TrafficConfig, TrafficPort};
//!
//! # fn main() -> anyhow::Result<()> {
//! let port = TrafficPort::listen("/run/sluice/port0", TrafficConfig { queue_pairs: 4, ..Default::default() })?;
//! // Start the machine with a port on this socket, then:
//! port.wait_running(4, Duration::from_secs(10))?;
//! port.start(
//!     |frame: &mut Vec<u8>| {
//!         frame.extend_from_slice(&[0xff; 60]);
//!         true
//!     },
//!     |queue: u16, frame: &[u8]| println!("{} bytes from queue {queue}", frame.len()),
//! );
//! let report = port.stop();
//! assert_eq!(report.faults.total(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Whatever a guest writes into its rings, the port counts it as a fault and goes on. It outlives resets, new
//! negotiations, changes of the memory table and the frontend itself: the next one may connect.

mod connection;
mod counts;
mod device;
mod memory;
mod port;
mod ring;
mod service;
mod steering;
mod traffic;
mod window;
mod wire;

pub use counts::{Fault, Faults, PairCounts, Report};
pub(crate) use device::MAX_QUEUE_PAIRS;
pub use port::TrafficPort;
pub use steering::flow_queue;
pub use window::Window;

/// Where frames for the guest come from. A closure of this shape is one.
pub trait Source: Send + 'static {
    /// Appends the bytes of the next frame to `frame`, which is empty, and returns `true`; `false` when there is none
    /// now. It is asked again, at the latest after a millisecond.
    fn next(&mut self, frame: &mut Vec<u8>) -> bool;
}

impl<F: FnMut(&mut Vec<u8>) -> bool + Send + 'static> Source for F {
    fn next(&mut self, frame: &mut Vec<u8>) -> bool {
        self(frame)
    }
}

/// Where frames from the guest go to. A closure of this shape is one.
pub trait Sink: Send + 'static {
    /// Takes a frame that came out of the guest's transmit queue `queue`.
    fn frame(&mut self, queue: u16, frame: &[u8]);
}

impl<F: FnMut(u16, &[u8]) + Send + 'static> Sink for F {
    fn frame(&mut self, queue: u16, frame: &[u8]) {
        self(queue, frame);
    }
}

/// What a traffic port is like.
#[derive(Clone, Debug)]
pub struct TrafficConfig {
    /// Queue pairs that the card offers, 1 to 128.
    pub queue_pairs: u16,
    /// How the port learns that the guest has done something.
    pub drive: Drive,
    /// What happens to a frame for which the guest has no buffer.
    pub offer: Offer,
    /// The most frames a second that come out of each transmit queue; more of them wait in the guest's ring. Without, they come
    /// out as fast as the port can take them.
    pub line_rate: Option<u32>,
    /// Which receive queue a frame goes to.
    pub steering: Steering,
    /// Optional features that the card offers beside `VERSION_1` and `MQ`.
    pub features: Vec<Feature>,
    /// Each frame into the guest needs room in this window.
    pub takes: Option<Window>,
    /// Each frame out of the guest makes room in this window: the same one for a guest that reflects, the other port's
    /// for a guest that forwards.
    pub gives: Option<Window>,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        Self {
            queue_pairs: 1,
            drive: Drive::Event,
            offer: Offer::Lossless,
            line_rate: None,
            steering: Steering::FlowHash,
            features: vec![Feature::EventIndex],
            takes: None,
            gives: None,
        }
    }
}

/// How a traffic port learns that the guest has done something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// It looks all the time and asks for no kicks: the fastest, for a whole core.
    Poll,
    /// It looks all the time, and asks for kicks as if it slept. A guest without the event index obeys.
    PollKicked,
    /// It sleeps until it is kicked.
    Event,
}

/// What happens to a frame for which the guest has no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It waits, and holds up what comes behind.
    Lossless,
    /// It is counted and thrown away, as by a card that cannot hold the wire back. An injected frame waits all the same.
    Flood,
}

/// Which receive queue a frame goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// The one that [`flow_queue`] names, so that a flow stays on one queue and in order.
    FlowHash,
    /// Each in turn, whatever the frame is.
    RoundRobin,
    /// The first one, as if there were no other.
    FirstQueue,
}

/// An optional feature of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `VIRTIO_F_EVENT_IDX`: each side says at which index it wants to be notified (virtio 1.2, 2.7.10).
    EventIndex,
    /// `VIRTIO_F_IN_ORDER`: buffers are used in the order in which they were given, as they are in any case.
    InOrder,
}

#[cfg(test)]
mod tests;

//! A card port: an Intel 82599 that QEMU plugs in from another process, through vfio-user.
//!
//! QEMU has no 82599. It can have a PCI function behind a unix socket, though (`vfio-user-pci`, QEMU 10.1 and later), and
//! [`ixgbe_model`] is all of an 82599 but the transport. This module joins the two: it answers QEMU's messages, maps the
//! guest's memory for the card, raises its interrupts, and plugs its cable into a generator of frames, a datagram socket
//! or a tap interface.
//!
//! ```no_run
//! use qemu::vfio::{Cable, CardOptions, CardPort};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cable = Cable::Traffic { takes: None, gives: None };
//! let card = CardPort::listen("/run/sluice/port0", CardOptions::default(), cable)?;
//! // Start the machine with a port `card.spec()`, then:
//! card.start(
//!     |frame: &mut Vec<u8>| {
//!         frame.extend_from_slice(&[0xff; 60]);
//!         true
//!     },
//!     |queue: u16, frame: &[u8]| println!("{} bytes from queue {queue}", frame.len()),
//! );
//! let report = card.stop();
//! assert_eq!(report.violations, [""; 0]);
//! # Ok(())
//! # }
//! ```
//!
//! A virtual function of the card can be plugged in instead: this process then plays the host that lends it.
//!
//! One thread answers QEMU, one moves frames; both hold the card while they do. The card outlives resets of the machine
//! and the machine itself: the next one may be plugged in.

mod cable;
mod config_space;
mod engine;
mod function;
mod interrupts;
mod memory;
mod port;
mod server;
mod tap;

pub use cable::{Cable, CableCounts, Crossed};
pub use ixgbe_model::{
    Card, CardOptions, Fault, HostDriver, LentLink, Model, Notice, Policy, Presence, Trust,
};
pub use port::{CardPort, CardReport};

#[cfg(test)]
mod tests;

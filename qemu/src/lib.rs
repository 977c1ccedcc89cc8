//! The host side as a library: build the image, boot it in QEMU, feed it frames and check what comes out.
//!
//! The command `sluice` and the boot-and-forward tests are two users of the same few types:
//!
//! | type | what it stands for |
//! |---|---|
//! | [`Artefact`] | the built image: the stripped ELF and its symbol file |
//! | [`Machine`] | a virtual machine, described but not yet started |
//! | [`Guest`] | the running machine: its console, its metrics, its orderly stop |
//! | [`PortSpec`] | what a port of the machine is plugged into |
//! | [`vfio::CardPort`], [`vhost::TrafficPort`] | a card of our own behind such a port: an 82599, a virtio card |
//! | [`Endpoint`] | our end of a port: frames in, frames out |
//! | [`Flows`], [`Capture`] | frames to send, each of which is told when it comes out |
//! | [`Exchange`] | traffic between endpoints, in several directions at once |
//! | [`Counts`] | what became of it: lost, changed, reordered, duplicated, foreign |
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn main() -> anyhow::Result<()> {
//! let image = qemu::Artefact::build()?;
//! let sockets = tempfile::tempdir()?;
//! let port = qemu::Endpoint::bind(sockets.path(), 0)?;
//! let guest = qemu::Machine::new(&image).port(port.spec()).words("program=reflect").start()?;
//! port.connect(Duration::from_secs(10))?;
//! guest.wait_ready(Duration::from_secs(30))?;
//! port.send(&[0xff; 60], Duration::from_secs(1))?;
//! assert!(port.receive(Duration::from_secs(1))?.is_some());
//! let report = guest.stop()?;
//! assert_eq!(report.pool, report.home);
//! # Ok(())
//! # }
//! ```

pub mod accel;
pub mod artefact;
pub mod bench;
pub mod capture;
pub mod cli;
mod console;
pub mod demo;
pub mod emulator;
pub mod endpoint;
pub mod exchange;
pub mod flows;
pub mod frames;
pub mod guest;
pub mod interrupt;
pub mod iso;
pub mod machine;
pub mod metrics;
pub mod plug;
pub mod ports;
pub mod process;
mod progress;
mod report;
pub mod run;
pub mod symbols;
pub mod tally;
pub mod vfio;
pub mod vhost;

pub use accel::Accel;
pub use artefact::Artefact;
pub use capture::Capture;
pub use endpoint::Endpoint;
pub use exchange::{Exchange, Outcome};
pub use flows::{Flows, Source, Transform};
pub use guest::{Guest, Line, Ready, StopReport};
pub use iso::Iso;
pub use machine::{Boot, Chipset, Machine, Reset};
pub use metrics::Metrics;
pub use ports::{PortSpec, Rings};
pub use symbols::Symbols;
pub use tally::Counts;

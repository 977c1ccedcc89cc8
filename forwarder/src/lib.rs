//! The forwarder: verdict programs, the worker loop, and the map from cores to TX queues.
//!
//! [`Config::read`](config::Config::read) takes the settings, [`assemble`] turns the queues of all ports into one
//! [`Worker`] a core and a [`Control`] for everyone else, and [`Worker::run`] forwards.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod assemble;
pub mod config;
mod control;
pub mod idle;
mod local;
mod meter;
pub mod metrics;
mod needs;
mod ports;
pub mod programs;
mod ring;
pub mod stack;
pub mod stats;
pub mod steer;
#[cfg(test)]
mod testing;
pub mod txmap;
pub mod txpath;
pub mod verdict;
mod versioned;
mod wake;
pub mod wire;
mod worker;

pub use assemble::{Assembly, PortParts, assemble};
pub use control::{Control, StoppedQueues};
pub use idle::Cpu;
pub use meter::Clock;
pub use needs::{buffers_outside_rings, heap};
pub use worker::Worker;

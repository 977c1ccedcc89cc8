//! Network card drivers: packets, pools, rings, and the devices that own them.
//!
//! The crate knows no platform: whatever runs it implements [`hal::Hal`]. The image does so on bare metal, and tests
//! and benchmarks do in a process, over the same driver code.
#![no_std]

extern crate alloc;

pub mod device;
pub mod dma;
mod fifo;
pub mod hal;
pub mod ixgbe;
pub mod mmio;
pub mod packet;
pub mod pool;
pub mod port;
mod prefetch;
pub mod process;
pub mod rss;
pub mod sync;
pub mod virtio;

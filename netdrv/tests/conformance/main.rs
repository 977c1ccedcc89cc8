//! One suite that every driver passes, against a fake device that punishes mistakes.
//!
//! `bench.rs` says what a driver brings to it: itself, and a device that frames can be fed to and collected
//! from. The tests in `traffic.rs`, `hostile.rs` and `sequences.rs` know no more than that. `virtio/` is the
//! bench of virtio-net, whose device side of split queues is rust-vmm's, and tests what only virtio has:
//! negotiation, control commands, notifications, PCI. `ixgbe/` is that of Intel's cards, against a model of them that knows no
//! driver, and tests what only those have: the order of their registers, resets, RSS.

mod bench;
mod hal;
mod hostile;
mod ixgbe;
mod sequences;
mod traffic;
mod virtio;

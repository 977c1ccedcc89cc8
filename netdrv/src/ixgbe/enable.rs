//! Telling a card of its rings: the same steps for a physical function and for a virtual one.

use super::access::ReadWrite;
use super::error::IxgbeError;
use super::registers::*;
use super::wait::{self, Clock, MILLISECOND};
use crate::mmio::Bar;
use crate::packet::FRAME_CAPACITY;

/// Where a ring is in memory.
#[derive(Clone, Copy)]
pub(super) struct RingPlace {
    /// The device's address of the first descriptor, a multiple of 128 (8.2.3.8.1).
    pub(super) address: u64,
    /// Bytes, a multiple of 128.
    pub(super) len: u32,
}

/// What the card is told of the length of buffers, which it knows in such units.
pub(super) const BUFFER_KILOBYTES: u32 = 2;
const _: () = assert!(FRAME_CAPACITY <= BUFFER_KILOBYTES as usize * 1024);

/// How long a queue may take to be enabled or disabled: some 10 µs by 4.6.7.1.1, and 10 ms in Intel's drivers.
const QUEUE_PATIENCE: u64 = 10 * MILLISECOND;

/// Prefetch when fewer than 32 descriptors are on chip, and one waits: with a smaller number one queue does not reach line
/// rate, and some cards hang. Write-back at once, since only descriptors that ask for it are written back (7.2.3.4).
const TX_THRESHOLDS: u32 = txdctl::thresholds(32, 1, 0);

/// One receive ring (4.6.7.1.1): described while it is off, then enabled, and empty until its tail is written.
pub(super) fn rx(
    (bar, clock): (&impl Bar, Clock),
    queue: usize,
    RingPlace { address, len }: RingPlace,
) -> Result<(), IxgbeError> {
    RDBAL.row(queue).write(bar, address as u32);
    RDBAH.row(queue).write(bar, (address >> 32) as u32);
    RDLEN.row(queue).write(bar, len);
    let buffers = srrctl::buffer_kilobytes(BUFFER_KILOBYTES);
    SRRCTL.row(queue).write(bar, buffers | srrctl::ADVANCED_ONE_BUFFER | srrctl::DROP);
    DCA_RXCTRL.row(queue).clear(bar, dca_rxctrl::RESERVED);
    RDH.row(queue).write(bar, 0);
    RDT.row(queue).write(bar, 0);
    let control = RXDCTL.row(queue);
    control.replace(bar, rxdctl::VLAN_STRIP, rxdctl::ENABLE);
    until_enabled((bar, clock), control, rxdctl::ENABLE)
}

/// One transmit ring (4.6.8.1).
pub(super) fn tx(
    (bar, clock): (&impl Bar, Clock),
    registers: &TxRings,
    queue: usize,
    RingPlace { address, len }: RingPlace,
) -> Result<(), IxgbeError> {
    registers.tdbal.row(queue).write(bar, address as u32);
    registers.tdbah.row(queue).write(bar, (address >> 32) as u32);
    registers.tdlen.row(queue).write(bar, len);
    registers.tdh.row(queue).write(bar, 0);
    registers.tdt.row(queue).write(bar, 0);
    let control = registers.txdctl.row(queue);
    control.write(bar, TX_THRESHOLDS | txdctl::ENABLE);
    until_enabled((bar, clock), control, txdctl::ENABLE)
}

fn until_enabled(
    (bar, clock): (&impl Bar, Clock),
    control: ReadWrite,
    enable: u32,
) -> Result<(), IxgbeError> {
    wait::until((bar, clock), control, (enable, enable), QUEUE_PATIENCE, "the queue to be enabled")
}

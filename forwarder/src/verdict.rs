//! What may become of a packet.

use core::fmt;

/// A port's number: ports count from 0 in PCI address order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortId(pub u16);

impl PortId {
    /// The number as an index into a table of ports.
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a program says about one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ends here.
    Drop,
    /// Goes to the local stack.
    Pass,
    /// Leaves by the port that it came in by.
    Tx,
    /// Leaves by the port named.
    Redirect(PortId),
    /// The program could not decide: a fault in it, or a frame that it can't handle. Ends here.
    Aborted,
}

/// The kinds of [`Verdict`], as counters know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VerdictKind {
    /// [`Verdict::Drop`]
    Drop,
    /// [`Verdict::Pass`]
    Pass,
    /// [`Verdict::Tx`]
    Tx,
    /// [`Verdict::Redirect`]
    Redirect,
    /// [`Verdict::Aborted`]
    Aborted,
}

impl VerdictKind {
    /// Every kind, in the order of the counters.
    pub const ALL: [VerdictKind; 5] =
        [VerdictKind::Drop, VerdictKind::Pass, VerdictKind::Tx, VerdictKind::Redirect, VerdictKind::Aborted];

    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            VerdictKind::Drop => "drop",
            VerdictKind::Pass => "pass",
            VerdictKind::Tx => "tx",
            VerdictKind::Redirect => "redirect",
            VerdictKind::Aborted => "aborted",
        }
    }
}

impl Verdict {
    /// The kind, for counting.
    #[inline(always)]
    pub fn kind(self) -> VerdictKind {
        match self {
            Verdict::Drop => VerdictKind::Drop,
            Verdict::Pass => VerdictKind::Pass,
            Verdict::Tx => VerdictKind::Tx,
            Verdict::Redirect(_) => VerdictKind::Redirect,
            Verdict::Aborted => VerdictKind::Aborted,
        }
    }
}

/// Why a received packet ended here. Every packet that does has exactly one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The program said [`Verdict::Drop`].
    Verdict,
    /// The program said [`Verdict::Aborted`].
    Aborted,
    /// Shorter than an Ethernet header: no program sees it.
    Runt,
    /// The worker that is to decide on it takes no more for now (`rx=software`): no program sees it.
    SteerRingFull,
    /// Redirected to a port that does not exist.
    NoSuchPort,
    /// The output has no TX queue.
    TxUnavailable,
    /// The output's TX ring is full, and a burst waits for it already.
    TxRingFull,
    /// The output is the local stack's queue, and only the stack's part of it is free.
    TxRingReserved,
    /// Passed to a stack that takes no more for now.
    StackQueueFull,
    /// The output's device can't send such a frame: it is longer than its MTU allows.
    TxRefused,
    /// Refused at the RX ring: longer than a buffer.
    Oversize,
    /// Refused at the RX ring: shorter than the device's own header.
    Truncated,
    /// Refused at the RX ring: the device named a descriptor that it did not have.
    UnknownDescriptor,
    /// Refused at the RX ring: the device found an error in it.
    Damaged,
    /// In the RX ring, and not taken, when its device was reset.
    DeviceReset,
}

impl DropReason {
    /// Every reason, in the order of the counters.
    pub const ALL: [DropReason; 15] = [
        DropReason::Verdict,
        DropReason::Aborted,
        DropReason::Runt,
        DropReason::SteerRingFull,
        DropReason::NoSuchPort,
        DropReason::TxUnavailable,
        DropReason::TxRingFull,
        DropReason::TxRingReserved,
        DropReason::StackQueueFull,
        DropReason::TxRefused,
        DropReason::Oversize,
        DropReason::Truncated,
        DropReason::UnknownDescriptor,
        DropReason::Damaged,
        DropReason::DeviceReset,
    ];

    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            DropReason::Verdict => "verdict",
            DropReason::Aborted => "aborted",
            DropReason::Runt => "runt",
            DropReason::SteerRingFull => "steer_ring_full",
            DropReason::NoSuchPort => "no_such_port",
            DropReason::TxUnavailable => "tx_unavailable",
            DropReason::TxRingFull => "tx_ring_full",
            DropReason::TxRingReserved => "tx_ring_reserved",
            DropReason::StackQueueFull => "stack_queue_full",
            DropReason::TxRefused => "tx_refused",
            DropReason::Oversize => "oversize",
            DropReason::Truncated => "truncated",
            DropReason::UnknownDescriptor => "unknown_descriptor",
            DropReason::Damaged => "damaged",
            DropReason::DeviceReset => "device_reset",
        }
    }
}

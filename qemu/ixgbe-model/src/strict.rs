//! What real silicon punishes: each breach is kept, and a test that finds one fails.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::registers::{Place, Register};

/// How many breaches are kept; those that follow say nothing new.
const KEPT: usize = 1000;

/// A rule of the datasheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A ring was enabled without an address, or with a length that is zero or no multiple of 128 (8.2.3.8.3).
    EnabledUnprogrammed,
    /// A transmit ring was enabled while DMATXCTL.TE was clear (4.6.8).
    EnabledBeforeTransmitter,
    /// A transmit ring was enabled that the mode of MTQC does not have: without pools and classes there are 64 (7.2.1.2.1).
    QueueOutsideMode,
    /// A transmit ring was enabled whose traffic class has no packet buffer: it would never send (4.6.11).
    ClassWithoutBuffer,
    /// A ring was changed while it was enabled (4.6.7.1, 4.6.8.1).
    ChangedWhileEnabled,
    /// A tail was moved before the ring's ENABLE bit was set (4.6.7.1, 4.6.8.1).
    TailBeforeEnable,
    /// A tail outside its ring (8.2.3.8.6).
    TailOutsideRing,
    /// A ring was enabled with its head outside of it (8.2.3.8.4).
    HeadOutsideRing,
    /// PTHRESH and WTHRESH together exceed the 40 descriptors that the card caches (7.2.3.4).
    ThresholdsTooHigh,
    /// A ring or a buffer is outside of the memory that was handed over.
    OutsideMemory,
    /// Memory was taken away while an enabled ring lay in it (4.6.7.1.2, 4.6.8.2).
    RingFreedWhileEnabled,
    /// Another register was accessed within a millisecond of a reset (8.2.3.1.1).
    AccessDuringReset,
    /// RXCTRL.RXEN was set while frames could come in: the security path has to be stopped around it (4.6.7, erratum).
    ReceiverEnabledUnderTraffic,
    /// A reserved bit was set.
    ReservedBits,
    /// HLREG0.RXCRCSTRP and RDRXCTL.CRCStrip differ while the receiver is on (8.2.3.22.8).
    CrcStripDiffers,
    /// MTQC was changed while the transmit arbiter was on (8.2.3.9.15).
    MtqcWhileArbitrating,
    /// A transmit descriptor of a type that does not exist, or of length zero (7.2.3.2.4).
    BadTransmitDescriptor,
    /// RS on a descriptor that does not end its frame (7.2.3.2.4).
    StatusBeforeEnd,
    /// PAYLEN is not the length of the frame (7.2.3.2.4).
    PayloadLength,
    /// A frame shorter than 17 bytes or longer than the MAC takes (7.2.1.1, 7.2.3.2.4).
    FrameLength,
    /// A frame without IFCS leaves without a CRC (7.2.3.2.4).
    FrameWithoutCrc,
    /// A descriptor relies on a context that was never given (7.2.3.2.3).
    MissingContext,
    /// More descriptors of a ring than one frame may have (7.2.1.1: 40).
    TooManyDescriptors,
    /// The card was asked for something that the model does not do.
    NotModelled,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// The register, or the tail register of the ring, that it is about.
    pub place: Place,
    /// The value that broke it.
    pub value: u64,
    /// When, by the time that the card was told.
    pub at: Duration,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} = {:#x} at {:?}", self.rule, self.place, self.value, self.at)
    }
}

/// Accesses to one address that is no register of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnknownAccess {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// The last value that was written.
    pub last_written: u32,
}

/// What was done wrong, and what was not understood.
#[derive(Debug, Default)]
pub(crate) struct Strict {
    violations: Vec<Violation>,
    unknown: BTreeMap<u32, UnknownAccess>,
}

impl Strict {
    pub(crate) fn report(&mut self, now: Duration, rule: Rule, register: Register, index: usize, value: u64) {
        if self.violations.len() < KEPT {
            let place = Place { register, index };
            self.violations.push(Violation { rule, place, value, at: now });
        }
    }

    pub(crate) fn unknown_read(&mut self, offset: u32) {
        self.unknown.entry(offset).or_default().reads += 1;
    }

    pub(crate) fn unknown_write(&mut self, offset: u32, value: u32) {
        let access = self.unknown.entry(offset).or_default();
        access.writes += 1;
        access.last_written = value;
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn unknown(&self) -> &BTreeMap<u32, UnknownAccess> {
        &self.unknown
    }
}

/// Bits that a driver must leave zero. Only registers where a mistake would go unnoticed otherwise are here.
pub(crate) fn reserved_bits(register: Register) -> u32 {
    match register {
        // 128-byte alignment (8.2.3.8.1, 8.2.3.9.5); lengths likewise, and 19 bits of them (8.2.3.8.3).
        Register::RDBAL | Register::TDBAL => 0x7f,
        Register::RDLEN | Register::TDLEN => 0xfff0_007f,
        Register::RDH | Register::RDT | Register::TDH | Register::TDT => 0xffff_0000,
        // PTHRESH, HTHRESH, WTHRESH, ENABLE, SWFLSH (8.2.3.9.10).
        Register::TXDCTL => 0xf980_8080,
        // Vectors 0 to 63 and a valid bit in each byte (8.2.3.5.16).
        Register::IVAR => 0x4040_4040,
        Register::IVAR_MISC => 0xffff_4040,
        Register::RXCTRL => !0x3,
        _ => 0,
    }
}

/// Bits that are not there: they read as zero whatever is written.
pub(crate) fn missing_bits(register: Register) -> u32 {
    match register {
        // Bytes 4 and 5 of an address, and its valid bit (8.2.3.7.9).
        Register::RAH => 0x7fff_0000,
        _ => reserved_bits(register),
    }
}

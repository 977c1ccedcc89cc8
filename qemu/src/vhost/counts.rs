//! What a traffic port has seen: frames, bytes, and what was wrong with the rest.

use std::fmt;
use std::ops::AddAssign;

/// What crossed one queue pair, or a sum of them. *In* is into the guest, *out* is out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// Frames that were put in the guest's receive ring.
    pub frames_in: u64,
    /// Their bytes, without the virtio header.
    pub bytes_in: u64,
    /// Frames that were thrown away because the receive ring had no buffer ([`Offer::Flood`](super::Offer) only).
    pub no_buffer: u64,
    /// Frames that came out of the guest's transmit ring.
    pub frames_out: u64,
    /// Their bytes, without the virtio header.
    pub bytes_out: u64,
}

impl AddAssign for PairCounts {
    fn add_assign(&mut self, other: Self) {
        self.frames_in += other.frames_in;
        self.bytes_in += other.bytes_in;
        self.no_buffer += other.no_buffer;
        self.frames_out += other.frames_out;
        self.bytes_out += other.bytes_out;
    }
}

/// One thing that the guest, the frontend or the source did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A ring lies outside of memory, or its index jumped: the ring is left alone until it is set up anew.
    Ring,
    /// A chain of descriptors leads outside of memory, has no end, goes the wrong way or is too long.
    Chain,
    /// The header before a frame asks for an offload that was never agreed on, or is cut short.
    Header,
    /// A frame for the guest is longer than the buffer that the guest gave.
    Oversize,
    /// A vhost-user message that is malformed or makes no sense: the connection was closed.
    Request,
}

/// How often each [`Fault`] was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// [`Fault::Ring`].
    pub ring: u64,
    /// [`Fault::Chain`].
    pub chain: u64,
    /// [`Fault::Header`].
    pub header: u64,
    /// [`Fault::Oversize`].
    pub oversize: u64,
    /// [`Fault::Request`].
    pub request: u64,
}

impl Faults {
    pub(super) fn record(&mut self, fault: Fault) {
        let count = match fault {
            Fault::Ring => &mut self.ring,
            Fault::Chain => &mut self.chain,
            Fault::Header => &mut self.header,
            Fault::Oversize => &mut self.oversize,
            Fault::Request => &mut self.request,
        };
        *count += 1;
    }

    /// Faults of all kinds.
    pub fn total(&self) -> u64 {
        self.ring + self.chain + self.header + self.oversize + self.request
    }
}

/// Everything that a traffic port has counted since it began to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry a queue pair.
    pub pairs: Vec<PairCounts>,
    /// What went wrong, on all queues together.
    pub faults: Faults,
    /// Why a frontend was last refused: the newest [`Fault::Request`].
    pub last_refusal: Option<String>,
}

impl Report {
    /// The sum over all queue pairs.
    pub fn total(&self) -> PairCounts {
        self.pairs.iter().fold(PairCounts::default(), |mut sum, pair| {
            sum += *pair;
            sum
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PairCounts { frames_in, bytes_in, no_buffer, frames_out, bytes_out } = self.total();
        let Faults { ring, chain, header, oversize, request } = self.faults;
        writeln!(f, "in: {frames_in} frames, {bytes_in} bytes, {no_buffer} found no buffer")?;
        writeln!(f, "out: {frames_out} frames, {bytes_out} bytes")?;
        write!(
            f,
            "faults: ring {ring}, chain {chain}, header {header}, oversize {oversize}, request {request}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_own_count() {
        let mut faults = Faults::default();
        for fault in [Fault::Ring, Fault::Chain, Fault::Header, Fault::Oversize, Fault::Request] {
            faults.record(fault);
        }
        assert_eq!(faults, Faults { ring: 1, chain: 1, header: 1, oversize: 1, request: 1 });
        assert_eq!(faults.total(), 5);
    }

    #[test]
    fn the_total_is_the_sum_of_the_pairs() {
        let pair = PairCounts { frames_in: 1, bytes_in: 60, no_buffer: 2, frames_out: 3, bytes_out: 180 };
        let report = Report { pairs: vec![pair; 3], ..Default::default() };
        let total = PairCounts { frames_in: 3, bytes_in: 180, no_buffer: 6, frames_out: 9, bytes_out: 540 };
        assert_eq!(report.total(), total);
        assert!(report.to_string().starts_with("in: 3 frames, 180 bytes, 6 found no buffer\n"));
    }
}

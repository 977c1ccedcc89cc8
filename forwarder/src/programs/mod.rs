//! The verdict programs: one file each, with one function that looks at a packet and says what becomes of it.
//!
//! The set is closed. [`Program::decide`] matches once for a batch, and each arm is a loop of its own with the
//! program's function inlined.

mod drop;
mod forward;
mod pass;
mod reflect;

use arrayvec::ArrayVec;
use netdrv::packet::{Burst, MAX_BURST, Packet};

use crate::verdict::{PortId, Verdict};

/// What a program may know besides the packet.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The port that the packet came in by.
    pub port: PortId,
    /// How many ports there are.
    pub ports: u16,
}

/// The verdicts on a burst: the n-th is on the n-th packet.
pub type Verdicts = ArrayVec<Verdict, MAX_BURST>;

/// A verdict program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Drops everything.
    Drop,
    /// Passes everything to the local stack.
    Pass,
    /// Sends everything back to where it came from.
    Reflect,
    /// Sends everything out of the paired port.
    Forward,
}

impl Program {
    /// Decides on every packet of `burst`. `verdicts` is empty before, and as long as `burst` after.
    #[inline(always)]
    pub fn decide(self, context: Context, burst: &mut Burst, verdicts: &mut Verdicts) {
        match self {
            Program::Drop => each(burst, verdicts, |_| drop::verdict()),
            Program::Pass => each(burst, verdicts, |_| pass::verdict()),
            Program::Reflect => {
                // This one reads the frame, which the device left in memory or in another core's cache.
                burst.iter().for_each(Packet::prefetch);
                each(burst, verdicts, reflect::verdict);
            }
            Program::Forward => each(burst, verdicts, |_| forward::verdict(context)),
        }
    }

    /// Whether `port` has somewhere to send to, out of `ports`.
    pub fn serves(self, port: PortId, ports: u16) -> bool {
        match self {
            Program::Drop | Program::Pass | Program::Reflect => true,
            Program::Forward => forward::partner(port).0 < ports,
        }
    }
}

#[inline(always)]
fn each(burst: &mut Burst, verdicts: &mut Verdicts, decide: impl Fn(&mut Packet) -> Verdict) {
    verdicts.extend(burst.iter_mut().map(decide));
}

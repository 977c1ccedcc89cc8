//! The verdict programs: one file each, with one function that looks at a packet and says what becomes of it.
//!
//! The set is closed. [`Program::decide`] matches once for a batch, and each arm is a loop of its own with the
//! program's function inlined.

mod drop;
mod forward;
mod pass;
mod reflect;

use alloc::boxed::Box;

use netdrv::packet::{Burst, Packet};

use crate::verdict::{PortId, Verdict};

/// What a program may know besides the packet.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The port that the packet came in by.
    pub port: PortId,
    /// How many ports there are.
    pub ports: u16,
}

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
    /// Decides on every packet of `burst`, and has `settle` take packets off its front: those in a row that share a verdict together,
    /// so many at a time. The loop is compiled for each program on its own, with what becomes of the verdicts that it can give and no others.
    #[inline(always)]
    pub fn decide(
        self,
        context: Context,
        burst: &mut Box<Burst>,
        settle: impl FnMut(&mut Box<Burst>, usize, Verdict),
    ) {
        match self {
            Program::Drop => each(burst, settle, |_| drop::verdict()),
            Program::Pass => each(burst, settle, |_| pass::verdict()),
            Program::Reflect => each(burst, settle, reflect::verdict),
            Program::Forward => each(burst, settle, |_| forward::verdict(context)),
        }
    }

    /// Whether the program, or the stack that it passes to, looks at frames.
    pub(crate) fn reads(self) -> bool {
        match self {
            Program::Drop | Program::Forward => false,
            Program::Pass | Program::Reflect => true,
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
fn each(
    burst: &mut Box<Burst>,
    mut settle: impl FnMut(&mut Box<Burst>, usize, Verdict),
    decide: impl Fn(&mut Packet) -> Verdict,
) {
    // Of the first packet, if it was looked at already.
    let mut decided = None;
    while let Some(first) = burst.first_mut() {
        let verdict = decided.take().unwrap_or_else(|| decide(first));
        let mut alike = 1;
        while let Some(packet) = burst.get_mut(alike) {
            let next = decide(packet);
            if next != verdict {
                decided = Some(next);
                break;
            }
            alike += 1;
        }
        settle(burst, alike, verdict);
    }
}

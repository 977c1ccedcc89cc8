//! What a stack counts. Every frame that it takes is either handled or dropped for one reason:
//! `frames_in = handled + Σ drops`; and every frame that it makes is handed out or still waits in it.

use core::fmt;
use core::ops::{Index, IndexMut};

use crate::versioned::Versioned;

/// Why the stack did not handle a frame that it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackDrop {
    /// Addressed to nobody here; a program passed it all the same.
    NotLocal,
    /// A length, a field or a checksum is wrong.
    Malformed,
    /// From an address on no network of the port: it has no gateway, so an answer has nowhere to go.
    OffLink,
    /// From an address of ours: another station uses it, or a frame of ours came back.
    Impostor,
    /// A fragment of a datagram longer than [`MAX_DATAGRAM`](super::MAX_DATAGRAM).
    TooLong,
    /// For the datagram echo service, which has its hands full.
    EchoBusy,
    /// An echo datagram whose answer would go to an echo service, and so back and forth for ever, or to no port.
    EchoLoop,
    /// There was no fresh buffer for an answer.
    NoBuffer,
}

impl StackDrop {
    /// Every reason, in the order of the counters.
    pub const ALL: [StackDrop; 8] = [
        StackDrop::NotLocal,
        StackDrop::Malformed,
        StackDrop::OffLink,
        StackDrop::Impostor,
        StackDrop::TooLong,
        StackDrop::EchoBusy,
        StackDrop::EchoLoop,
        StackDrop::NoBuffer,
    ];

    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            StackDrop::NotLocal => "not_local",
            StackDrop::Malformed => "malformed",
            StackDrop::OffLink => "off_link",
            StackDrop::Impostor => "impostor",
            StackDrop::TooLong => "too_long",
            StackDrop::EchoBusy => "echo_busy",
            StackDrop::EchoLoop => "echo_loop",
            StackDrop::NoBuffer => "no_buffer",
        }
    }
}

impl fmt::Display for StackDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Frames by the reason that they were dropped for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Drops([u64; StackDrop::ALL.len()]);

impl Drops {
    /// All drops.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<StackDrop> for Drops {
    type Output = u64;

    fn index(&self, reason: StackDrop) -> &u64 {
        &self.0[reason as usize]
    }
}

impl IndexMut<StackDrop> for Drops {
    fn index_mut(&mut self, reason: StackDrop) -> &mut u64 {
        &mut self.0[reason as usize]
    }
}

/// The counters of one stack, since it was made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StackCounters {
    /// Frames taken.
    pub frames_in: u64,
    /// Frames taken that were sound, for this station, and looked at to the end. Whether they deserved an answer is
    /// for their protocol to say.
    pub handled: u64,
    /// Frames taken that were dropped.
    pub drops: Drops,
    /// Frames made: answers, and what the stack has to say of itself.
    pub frames_made: u64,
    /// Frames made that were handed out for sending. The others wait in the stack.
    pub frames_out: u64,
    /// Frames that were not made because they would not have fitted a buffer: a fault, not an event.
    pub oversize: u64,
    /// Echo datagrams given up because their sender's station did not say where it is, with those queued behind them.
    pub unresolved: u64,
    /// Addresses given up because another station had them.
    pub conflicts: u64,
}

impl StackCounters {
    const DROPS: usize = StackDrop::ALL.len();
    const WORDS: usize = StackCounters::DROPS + 7;

    /// Every counter, the drops first.
    fn words(&self) -> [u64; StackCounters::WORDS] {
        let StackCounters {
            frames_in,
            handled,
            drops,
            frames_made,
            frames_out,
            oversize,
            unresolved,
            conflicts,
        } = *self;
        let mut words = [0; StackCounters::WORDS];
        let (first, rest) = words.split_at_mut(StackCounters::DROPS);
        first.copy_from_slice(&drops.0);
        rest.copy_from_slice(&[frames_in, handled, frames_made, frames_out, oversize, unresolved, conflicts]);
        words
    }

    fn of_words(words: [u64; StackCounters::WORDS]) -> StackCounters {
        let [drops @ .., frames_in, handled, frames_made, frames_out, oversize, unresolved, conflicts] =
            words;
        let drops = Drops(drops);
        StackCounters { frames_in, handled, drops, frames_made, frames_out, oversize, unresolved, conflicts }
    }
}

/// The counters of one stack, as the worker that runs it publishes them.
pub(crate) struct StackStats(Versioned<{ StackCounters::WORDS }>);

impl StackStats {
    pub(crate) fn new() -> StackStats {
        StackStats(Versioned::new())
    }

    pub(crate) fn publish(&self, counters: &StackCounters) {
        self.0.publish(&counters.words());
    }

    pub(crate) fn read(&self) -> StackCounters {
        StackCounters::of_words(self.0.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let numbers = core::array::from_fn(|place| 1 + place as u64);
        let counters = StackCounters::of_words(numbers);
        assert_eq!(counters.words(), numbers, "each counter has a place of its own");
        let stats = StackStats::new();
        assert_eq!(stats.read(), StackCounters::default());
        stats.publish(&counters);
        assert_eq!(stats.read(), counters);
    }
}

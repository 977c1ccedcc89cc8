//! Flows that are checked: what was given of them, and what became of it.

use qemu::flows::{Arrival, Source};
use qemu::tally::Tally;
use qemu::{Counts, Flows};

/// Flows, and the tally of their frames.
pub(crate) struct Checked {
    flows: Flows,
    tally: Tally,
}

impl Checked {
    pub(crate) fn new(flows: Flows) -> Self {
        Self { flows, tally: Tally::default() }
    }

    /// Gives the next frame, and counts it as sent; false where there are no more.
    pub(crate) fn give(&mut self, frame: &mut Vec<u8>) -> bool {
        let given = self.flows.next(frame);
        if given {
            self.tally.sent();
        }
        given
    }

    /// Counts a frame that came out, and says which it was.
    pub(crate) fn arrived(&mut self, frame: &[u8]) -> Arrival {
        let arrival = self.flows.recognise(frame);
        self.tally.arrived(arrival);
        arrival
    }

    /// What has become of the frames so far.
    pub(crate) fn counts(&self) -> Counts {
        self.tally.counts()
    }

    /// How many frames there are in all.
    pub(crate) fn total(&self) -> u64 {
        self.flows.total()
    }
}

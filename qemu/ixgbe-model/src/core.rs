//! What all parts of the card share: registers, time, and what was done wrong.

use std::time::Duration;

use crate::fault::Faults;
use crate::options::CardOptions;
use crate::registers::{Register, Values};
use crate::strict::{Rule, Strict};
use crate::virtual_function::{PoolCounts, PoolHash, VIRTUAL_FUNCTIONS};

/// Passed to every part beside the part's own state.
pub(crate) struct Core {
    pub(crate) options: CardOptions,
    pub(crate) values: Values,
    pub(crate) strict: Strict,
    pub(crate) faults: Faults,
    pub(crate) now: Duration,
    /// Until then the partner wants nothing to be sent.
    pub(crate) paused_until: Duration,
    /// Virtual functions that there are; function n has pool n.
    pub(crate) virtual_functions: usize,
    pub(crate) pool_counts: [PoolCounts; VIRTUAL_FUNCTIONS],
    pub(crate) pool_hashes: [PoolHash; VIRTUAL_FUNCTIONS],
}

impl Core {
    pub(crate) fn new(options: CardOptions) -> Core {
        Core {
            options,
            values: Values::new(),
            strict: Strict::default(),
            faults: Faults::default(),
            now: Duration::ZERO,
            paused_until: Duration::ZERO,
            virtual_functions: 0,
            pool_counts: [PoolCounts::default(); VIRTUAL_FUNCTIONS],
            pool_hashes: [PoolHash::default(); VIRTUAL_FUNCTIONS],
        }
    }

    /// Notes that a rule was broken.
    pub(crate) fn report(&mut self, rule: Rule, register: Register, index: usize, value: u64) {
        self.strict.report(self.now, rule, register, index, value);
    }
}

//! How long the rings are.

use netdrv::packet::MAX_BURST;

use super::Steered;

/// Packets in one ring, at most: what a worker misses while it is kept from its ring for a round or two.
const LONGEST: usize = 256;
/// Packets in one ring, at least: a burst of one flow must fit.
const SHORTEST: usize = MAX_BURST;
/// Packets in all rings together, about. There are rings for every pair of workers, and each packet is a buffer of 2 KiB:
/// rings of the longest kind between 72 workers would be 2.7 GB. This is 17 MB, which a machine of 256 MiB has beside the
/// device rings of 72 cores.
const BUDGET: usize = 8192;

/// The measures of all rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Packets that a ring holds.
    pub(super) ring: usize,
    /// Packets that one worker may have in all its rings.
    pub(super) quota: usize,
    receivers: usize,
}

impl Shape {
    /// For `receivers` workers with a ring to each of `workers` but themselves.
    pub(crate) fn new(workers: usize, receivers: usize) -> Shape {
        let others = workers.saturating_sub(1);
        let ring = (BUDGET / (receivers * others).max(1)).clamp(SHORTEST, LONGEST);
        let quota = (BUDGET / receivers.max(1)).max(SHORTEST).min(ring * others);
        Shape { ring, quota, receivers }
    }

    /// Buffers that lie in the rings, at most.
    pub(crate) fn buffers(&self) -> usize {
        self.receivers * self.quota
    }

    /// Bytes that the rings take, to `workers` workers: their packets, and what both ends share and count.
    pub(crate) fn heap(&self, workers: usize) -> usize {
        let rings = self.receivers * workers.saturating_sub(1);
        rings * (self.ring * size_of::<Steered>() + 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_workers_have_long_rings() {
        assert_eq!(Shape::new(4, 1), Shape { ring: 256, quota: 3 * 256, receivers: 1 });
        assert_eq!(Shape::new(4, 4), Shape { ring: 256, quota: 3 * 256, receivers: 4 });
        assert_eq!(Shape::new(1, 1).buffers(), 0);
        assert_eq!(Shape::new(8, 0).buffers(), 0);
    }

    #[test]
    fn whatever_there_is_a_burst_fits_and_the_rings_stay_in_their_budget() {
        for workers in 1..=256 {
            for receivers in 1..=workers {
                let shape = Shape::new(workers, receivers);
                assert!((SHORTEST..=LONGEST).contains(&shape.ring));
                assert!(shape.quota >= SHORTEST || workers == 1);
                assert!(shape.buffers() <= BUDGET.max(receivers * SHORTEST), "{workers} {receivers}");
            }
        }
    }
}

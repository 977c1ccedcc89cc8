//! The wire behind a transmit queue: how fast frames may come out.

use std::time::Instant;

use super::traffic::BATCH;

/// A bound on frames a second, or none. A wire that was idle takes a batch at once, and no more.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    rate: Option<u32>,
    since: Instant,
    /// Frames since then, and those that could have come and did not.
    carried: u64,
}

impl Wire {
    /// A wire for `rate` frames a second, or for any number of them.
    pub(super) fn new(rate: Option<u32>) -> Self {
        Self { rate, since: Instant::now(), carried: 0 }
    }

    /// How many frames the wire takes now, a batch at most.
    pub(super) fn room(&self) -> usize {
        self.due().map_or(BATCH, |due| self.room_when(due))
    }

    /// A frame has come out.
    pub(super) fn carry(&mut self) {
        if let Some(due) = self.due() {
            self.carry_when(due);
        }
    }

    /// How many frames have had their time by now.
    fn due(&self) -> Option<u64> {
        self.rate.map(|rate| (self.since.elapsed().as_micros() * u128::from(rate) / 1_000_000) as u64)
    }

    fn room_when(&self, due: u64) -> usize {
        due.saturating_sub(self.carried).min(BATCH as u64) as usize
    }

    fn carry_when(&mut self, due: u64) {
        self.carried = self.carried.max(due.saturating_sub(BATCH as u64)) + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_without_a_rate_always_takes_a_batch() {
        let mut wire = Wire::new(None);
        (0..10 * BATCH).for_each(|_| wire.carry());
        assert_eq!(wire.room(), BATCH);
    }

    #[test]
    fn a_busy_wire_takes_a_frame_when_its_time_has_come() {
        let mut wire = Wire::new(Some(1));
        assert_eq!(wire.room_when(0), 0);
        for due in 1..100 {
            assert_eq!(wire.room_when(due), 1);
            wire.carry_when(due);
            assert_eq!(wire.room_when(due), 0);
        }
    }

    #[test]
    fn an_idle_wire_makes_up_for_a_batch_and_no_more() {
        let mut wire = Wire::new(Some(1));
        for left in (0..BATCH).rev() {
            wire.carry_when(1_000_000);
            assert_eq!(wire.room_when(1_000_000), left);
        }
        assert_eq!(wire.room_when(1_000_001), 1);
    }
}

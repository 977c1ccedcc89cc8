//! Where a core's time goes, in ticks of the platform's clock. One reading a round, none for a packet.

use core::time::Duration;

use crate::stats::WorkerStats;

/// The platform's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Ticks since some fixed point (the time-stamp counter); cheap, and never goes back on one core.
    pub now: fn() -> u64,
    /// Ticks a second.
    pub hz: u64,
}

impl Clock {
    /// The time in microseconds.
    pub(crate) fn micros(&self) -> i64 {
        (u128::from((self.now)()) * 1_000_000 / u128::from(self.hz)) as i64
    }
}

/// What a round of a worker was good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoundKind {
    /// Packets moved.
    Busy,
    /// Nothing to do.
    Idle,
    /// No round at all: the core slept.
    Asleep,
}

/// Sorts a core's time into busy and idle.
pub(crate) struct Meter {
    clock: Clock,
    last: u64,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Meter {
        Meter { clock, last: (clock.now)() }
    }

    /// Books the time since the last call. Returns the clock's reading.
    #[inline(always)]
    pub(crate) fn account(&mut self, kind: RoundKind, stats: &WorkerStats) -> u64 {
        let now = (self.clock.now)();
        let ticks = now.saturating_sub(self.last);
        self.last = now;
        match kind {
            RoundKind::Busy => stats.busy.add(ticks),
            RoundKind::Idle => stats.idle.add(ticks),
            RoundKind::Asleep => stats.asleep.add(ticks),
        }
        now
    }
}

/// A thing to do at intervals.
pub(crate) struct Every {
    interval: u64,
    next: u64,
}

impl Every {
    /// Due for the first time `millis` from now.
    pub(crate) fn millis(millis: u64, clock: Clock) -> Every {
        let interval = clock.hz / 1000 * millis;
        Every { interval, next: (clock.now)() + interval }
    }

    /// How long until it is due.
    pub(crate) fn remaining(&self, now: u64, clock: Clock) -> Duration {
        let ticks = self.next.saturating_sub(now);
        Duration::from_nanos((u128::from(ticks) * 1_000_000_000 / u128::from(clock.hz)) as u64)
    }

    #[inline(always)]
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.interval;
        }
        due
    }
}

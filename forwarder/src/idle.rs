//! What a worker does when there is nothing to do (`idle=`).
//!
//! `poll` looks again at once. `adaptive` sleeps after an empty spell: every RX queue is asked for an interrupt, and the
//! core halts until one comes, or until another core, which has made work for it, [wakes](crate::idle::Wake) it. It
//! never sleeps for longer than what else needs it allows: that is the bound on every wake-up, also where a device has no interrupt
//! to send.

use core::time::Duration;

use crate::meter::{Clock, RoundKind};

/// How idle workers wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleMode {
    /// They look again at once.
    Poll,
    /// They sleep after an empty spell.
    Adaptive,
}

/// How a core sleeps: until an interrupt or for the time given, whichever comes first, and not at all where the function
/// says that there is work. That is asked in such a way that an interrupt after the question ends the sleep.
pub type Sleep = fn(Duration, &mut dyn FnMut() -> bool);

/// How a worker's core is woken from its sleep by another.
pub type Wake = fn(worker: usize);

/// What workers ask of the cores that they run on.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// The time.
    pub clock: Clock,
    /// How the calling core sleeps.
    pub sleep: Sleep,
    /// How the core of any worker is woken.
    pub wake: Wake,
}

/// How long a worker looks for packets in vain before it sleeps: longer than a gap between bursts. After a sleep that no
/// packet ended it sleeps again at once.
const SPELL_US: u64 = 500;
/// The longest sleep of a worker that is waiting for something that no one wakes it for: completions, a device without MSI-X.
pub(crate) const ATTENTIVE: Duration = Duration::from_millis(1);
/// The longest sleep of a worker that is woken for everything it may have to do.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);

/// Notices empty spells.
pub(crate) struct Spell {
    mode: IdleMode,
    ticks: u64,
    since: Option<u64>,
}

impl Spell {
    pub(crate) fn new(mode: IdleMode, clock: Clock) -> Spell {
        Spell { mode, ticks: clock.hz / 1_000_000 * SPELL_US, since: None }
    }

    /// Whether it is time to sleep, after a round of this kind that ended at `now`.
    #[inline(always)]
    pub(crate) fn is_over(&mut self, kind: RoundKind, now: u64) -> bool {
        match (kind, self.mode) {
            (RoundKind::Busy, _) => self.since = None,
            (RoundKind::Idle, IdleMode::Poll) => core::hint::spin_loop(),
            (RoundKind::Idle, IdleMode::Adaptive) => {
                let since = *self.since.get_or_insert(now);
                if now.saturating_sub(since) >= self.ticks {
                    return true;
                }
                core::hint::spin_loop();
            }
            (RoundKind::Asleep, _) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::clock;

    #[test]
    fn a_spell_ends_after_its_time_and_starts_over_with_work() {
        // The clock of the tests ticks in milliseconds; this one in microseconds.
        let clock = Clock { hz: 1_000_000, ..clock() };
        let mut spell = Spell::new(IdleMode::Adaptive, clock);
        assert!(!spell.is_over(RoundKind::Idle, 1_000));
        assert!(!spell.is_over(RoundKind::Idle, 1_000 + SPELL_US - 1));
        assert!(!spell.is_over(RoundKind::Busy, 1_000 + SPELL_US));
        assert!(!spell.is_over(RoundKind::Idle, 1_000 + SPELL_US + 1), "the spell has just begun");
        assert!(spell.is_over(RoundKind::Idle, 1_001 + 2 * SPELL_US));
        assert!(spell.is_over(RoundKind::Idle, 1_002 + 2 * SPELL_US), "and stays over until there is work");
    }

    #[test]
    fn a_poller_never_sleeps() {
        let mut spell = Spell::new(IdleMode::Poll, Clock { hz: 1_000_000, ..clock() });
        assert!((0..10).all(|round| !spell.is_over(RoundKind::Idle, round * 1_000_000)));
    }
}

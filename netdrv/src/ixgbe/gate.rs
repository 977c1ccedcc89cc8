//! Keeps queues off a card that is being reset.
//!
//! Queues belong to workers on other cores, which can't be asked to stand still. So whoever resets the card closes a gate
//! that every queue passes for each access to a register, and waits until nobody is inside. A queue finds the gate closed,
//! or finds later that the card has begun another life, and then starts over by itself. Rings in memory need no gate: a card
//! that was reset has forgotten where they are.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The card's life: even while it runs, odd while it is reset. Written by the card's owner alone.
///
/// Lines of the two sides are apart, two each since CPUs fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Life(AtomicU32);

/// What a queue tells the card's owner.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Notice {
    /// The queue is at a register.
    inside: AtomicBool,
    /// The descriptor that the queue takes back next, and the one up to which the device has them, the latter in the
    /// upper half.
    progress: AtomicU64,
    /// Transmit queues: looks for a report that found none, since the card's owner asked.
    vain_looks: AtomicU32,
    /// Transmit queues: frames that the card had and did not report before it was reset.
    lost: AtomicU64,
}

impl Notice {
    /// Says how far the queue is: the descriptor that it takes back next, and the one up to which the device has them.
    #[inline(always)]
    pub(super) fn set(&self, clean: u32, published: u32) {
        self.progress.store(u64::from(published) << 32 | u64::from(clean), Ordering::Relaxed);
    }

    /// The same, to read.
    pub(super) fn progress(&self) -> (u32, u32) {
        let progress = self.progress.load(Ordering::Relaxed);
        (progress as u32, (progress >> 32) as u32)
    }

    /// Says that there is still no report.
    #[inline(always)]
    pub(super) fn add_vain_look(&self) {
        // Not one atomic step: a look that gets lost is one of many.
        self.vain_looks.store(self.vain_looks.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn take_vain_looks(&self) -> u32 {
        self.vain_looks.swap(0, Ordering::Relaxed)
    }

    pub(super) fn add_lost(&self, frames: u64) {
        self.lost.store(self.lost.load(Ordering::Relaxed) + frames, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The way of one queue to its registers.
pub(super) struct Gate {
    life: Arc<Life>,
    /// The life that the queue knows of.
    known: u32,
    notice: Arc<Notice>,
}

impl Gate {
    /// Whether the card is in another life than the queue: being reset, or reset already.
    #[inline(always)]
    pub(super) fn is_stale(&self) -> bool {
        self.life.0.load(Ordering::Relaxed) != self.known
    }

    /// Whether the card is being reset.
    pub(super) fn is_closed(&self) -> bool {
        is_closed(self.life.0.load(Ordering::Relaxed))
    }

    /// Takes the card's new life for the queue's. False while the card is being reset.
    pub(super) fn renew(&mut self) -> bool {
        let life = self.life.0.load(Ordering::Acquire);
        let runs = !is_closed(life);
        if runs {
            self.known = life;
        }
        runs
    }

    /// Does `access` to a register. False, and nothing done, where the card is in another life.
    #[inline(always)]
    pub(super) fn pass(&self, access: impl FnOnce()) -> bool {
        // The store comes before the load, as it does the other way round in `close`: one of the two sees the other.
        self.notice.inside.swap(true, Ordering::SeqCst);
        let open = self.life.0.load(Ordering::SeqCst) == self.known;
        if open {
            access();
        }
        self.notice.inside.store(false, Ordering::Release);
        open
    }

    pub(super) fn notice(&self) -> &Notice {
        &self.notice
    }
}

/// The card's owner at the gates of all queues.
#[derive(Default)]
pub(super) struct Gates {
    life: Arc<Life>,
    notices: Vec<Arc<Notice>>,
}

impl Gates {
    /// One more gate, for a queue that begins in this life of the card, or in the next where it is being reset.
    pub(super) fn add(&mut self) -> Gate {
        let notice = Arc::<Notice>::default();
        self.notices.push(notice.clone());
        let life = self.life.0.load(Ordering::Relaxed);
        let known = if is_closed(life) { life.wrapping_add(1) } else { life };
        Gate { life: self.life.clone(), known, notice }
    }

    /// Lets nobody in any more, until [`open`](Self::open).
    pub(super) fn close(&self) {
        let life = self.life.0.load(Ordering::Relaxed);
        if !is_closed(life) {
            self.life.0.store(life.wrapping_add(1), Ordering::SeqCst);
        }
    }

    /// Whether the last queue has left.
    pub(super) fn are_free(&self) -> bool {
        self.notices.iter().all(|notice| !notice.inside.load(Ordering::SeqCst))
    }

    /// Begins a new life.
    pub(super) fn open(&self) {
        let life = self.life.0.load(Ordering::Relaxed);
        if is_closed(life) {
            self.life.0.store(life.wrapping_add(1), Ordering::SeqCst);
        }
    }

    /// What the queues tell, in the order in which their gates were made.
    pub(super) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.iter().map(|notice| &**notice)
    }
}

const fn is_closed(life: u32) -> bool {
    life % 2 == 1
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_queue_that_missed_a_reset_is_kept_out_until_it_has_renewed() {
        let mut gates = Gates::default();
        let mut gate = gates.add();
        assert!(gate.pass(|| {}) && !gate.is_stale());
        gates.close();
        gates.close();
        assert!(!gate.pass(|| panic!("the card is being reset")) && gate.is_stale() && gate.is_closed());
        assert!(!gate.renew());
        gates.open();
        assert!(
            !gate.pass(|| panic!("the queue is of another life")) && gate.is_stale() && !gate.is_closed()
        );
        assert!(gate.renew() && !gate.is_stale() && gate.pass(|| {}));
    }

    #[test]
    fn nobody_is_at_a_register_between_close_and_open() {
        let mut gates = Gates::default();
        let mut queues: Vec<Gate> = (0..2).map(|_| gates.add()).collect();
        let (resetting, accesses) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for gate in &mut queues {
                let (resetting, accesses) = (&resetting, &accesses);
                scope.spawn(move || {
                    while accesses.load(Ordering::Relaxed) < 20_000 {
                        gate.pass(|| {
                            assert!(!resetting.load(Ordering::SeqCst), "an access amid a reset");
                            accesses.fetch_add(1, Ordering::Relaxed);
                        });
                        gate.renew();
                    }
                });
            }
            while accesses.load(Ordering::Relaxed) < 20_000 {
                gates.close();
                while !gates.are_free() {
                    std::thread::yield_now();
                }
                resetting.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                resetting.store(false, Ordering::SeqCst);
                gates.open();
                std::thread::yield_now();
            }
        });
    }
}

//! The hand-shake between a worker that goes to sleep and one that has made work for it. No wake-up is lost, and none is
//! sent to who is awake.
//!
//! | the sleeper | the one with work |
//! |---|---|
//! | raises its flag | puts the work where the sleeper looks |
//! | fence | fence |
//! | looks for work, and sleeps if there is none | reads the flag, and sends a wake-up if it is raised |
//!
//! One of the two fences is the later one, and who executes it sees what the other has written: the work is found, or the
//! flag. A wake-up that comes between the look and the sleep ends the sleep: that is the platform's promise, see
//! [`Sleep`](crate::idle::Sleep).
//!
//! Who sends the wake-up takes the flag down, so that the next one with work sends no second one. It need not: its work is
//! there before the sleeper, once awake, looks again.

use alloc::sync::Arc;

use netdrv::sync::{AtomicBool, Ordering, fence};

use crate::idle::Wake;

/// Whether a worker sleeps, or is about to. Two lines apart from the next, since the CPU fetches lines in pairs.
#[repr(align(128))]
pub(crate) struct SleepFlag(AtomicBool);

impl SleepFlag {
    pub(crate) fn new() -> SleepFlag {
        SleepFlag(AtomicBool::new(false))
    }

    /// For the sleeper, before its last look for work.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// For the sleeper, when it is awake. Returns whether it was sent a wake-up.
    pub(crate) fn lower(&self) -> bool {
        !self.0.swap(false, Ordering::Relaxed)
    }

    /// For one with work, after it and a fence: whether it has to send the wake-up.
    #[inline(always)]
    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// The flags of all workers, in the hands of one of them.
pub(crate) struct Roster {
    own: usize,
    /// None where nobody ever sleeps.
    flags: Arc<[SleepFlag]>,
    wake: Wake,
}

impl Roster {
    /// For worker `own` of all whose flags these are.
    pub(crate) fn new(own: usize, flags: Arc<[SleepFlag]>, wake: Wake) -> Roster {
        Roster { own, flags, wake }
    }

    /// This worker is about to sleep, and now looks for work for the last time.
    pub(crate) fn lie_down(&self) {
        self.flags[self.own].raise();
    }

    /// This worker is awake. Returns whether another one has sent it a wake-up.
    pub(crate) fn get_up(&self) -> bool {
        self.flags[self.own].lower()
    }

    /// Wakes those of `workers` that sleep, after work was made for them.
    #[inline(always)]
    pub(crate) fn rouse(&self, workers: impl IntoIterator<Item = usize>) {
        if self.flags.is_empty() {
            return;
        }
        fence(Ordering::SeqCst);
        for worker in workers {
            if self.flags[worker].take() {
                (self.wake)(worker);
            }
        }
    }

    /// Wakes all that sleep.
    pub(crate) fn rouse_all(&self) {
        self.rouse(0..self.flags.len());
    }
}

#[cfg(all(test, loom))]
pub(crate) mod models;
#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    use super::*;

    fn flags(count: usize) -> Arc<[SleepFlag]> {
        (0..count).map(|_| SleepFlag::new()).collect()
    }

    #[test]
    fn only_who_sleeps_is_woken_and_once() {
        static WOKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let flags = flags(3);
        let roster = |own| Roster::new(own, flags.clone(), |worker| WOKEN.lock().unwrap().push(worker));
        let [zero, one, two] = [roster(0), roster(1), roster(2)];
        zero.rouse([1, 2]);
        one.lie_down();
        zero.rouse([1, 2]);
        zero.rouse([1, 2]);
        two.rouse([1]);
        assert_eq!(*WOKEN.lock().unwrap(), [1]);
        assert!(one.get_up(), "it was sent one");
        one.lie_down();
        two.lie_down();
        zero.rouse_all();
        assert_eq!(*WOKEN.lock().unwrap(), [1, 1, 2]);
        two.lie_down();
        assert!(!two.get_up(), "nobody had work since");
        one.get_up();
        zero.rouse_all();
        assert_eq!(WOKEN.lock().unwrap().len(), 3);
    }

    #[test]
    fn where_nobody_sleeps_nobody_is_woken() {
        Roster::new(0, flags(0), |worker| panic!("{worker} was woken")).rouse([0, 7]);
    }

    /// A sleep here is a thread's park, which a wake-up before it ends as well.
    #[test]
    fn no_wake_up_is_lost() {
        const ITEMS: u64 = 20_000;
        const PATIENCE: Duration = Duration::from_secs(30);
        static SLEEPER: Mutex<Option<thread::Thread>> = Mutex::new(None);
        static WORK: AtomicU64 = AtomicU64::new(0);
        *SLEEPER.lock().unwrap() = Some(thread::current());
        let flags = flags(3);
        let wake = |_| SLEEPER.lock().unwrap().as_ref().unwrap().unpark();
        thread::scope(|scope| {
            for producer in 1..3 {
                let roster = Roster::new(producer, flags.clone(), wake);
                scope.spawn(move || {
                    for item in 0..ITEMS {
                        WORK.fetch_add(1, Ordering::Relaxed);
                        roster.rouse([0]);
                        if item % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
            let roster = Roster::new(0, flags.clone(), wake);
            let mut done = 0;
            while done < 2 * ITEMS {
                roster.lie_down();
                if WORK.load(Ordering::Relaxed) == done {
                    let begin = Instant::now();
                    thread::park_timeout(PATIENCE);
                    assert!(begin.elapsed() < PATIENCE, "a wake-up was lost");
                }
                roster.get_up();
                done = WORK.load(Ordering::Relaxed);
            }
        });
    }
}

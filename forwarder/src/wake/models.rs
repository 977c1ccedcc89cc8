//! The hand-shake, over sleeps that only a wake-up ends: a lost one is a deadlock, which the checker reports.

use core::cell::RefCell;
use core::time::Duration;
use std::vec::Vec;

use loom::thread::{self, Thread};
use netdrv::sync::{AtomicU64, check};

use super::*;

std::thread_local! {
    /// The threads of the workers. A run of a model is on one thread of the process, whatever threads the model has.
    static THREADS: RefCell<Vec<Thread>> = const { RefCell::new(Vec::new()) };
}

/// Makes the calling thread the only worker that can be woken, whatever its number.
pub(crate) fn sleep_here() {
    THREADS.set(Vec::from([thread::current()]));
}

/// A sleep without end, in the manner of [`Sleep`](crate::idle::Sleep).
pub(crate) fn sleep(_limit: Duration, ready: &mut dyn FnMut() -> bool) {
    if !ready() {
        thread::park();
    }
}

/// The wake-up.
pub(crate) fn wake(_worker: usize) {
    THREADS.with_borrow(|threads| threads.iter().for_each(Thread::unpark));
}

/// Two workers make so much work each for a third one, which sleeps while there is none.
fn two_wake_one(work: u64) {
    sleep_here();
    let flags: Arc<[SleepFlag]> = (0..3).map(|_| SleepFlag::new()).collect();
    let done: Arc<[AtomicU64]> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let makers = [1, 2].map(|own| {
        let (roster, done) = (Roster::new(own, flags.clone(), wake), done.clone());
        thread::spawn(move || {
            for count in 1..=work {
                done[own - 1].store(count, Ordering::Relaxed);
                roster.rouse([0]);
            }
        })
    });
    let roster = Roster::new(0, flags, wake);
    let sum = || done.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let mut seen = 0;
    while seen < 2 * work {
        sleep(Duration::MAX, &mut || {
            roster.lie_down();
            sum() > seen
        });
        roster.get_up();
        seen = sum();
    }
    makers.into_iter().for_each(|maker| maker.join().unwrap());
}

#[test]
fn no_wake_up_is_lost() {
    check(3, || two_wake_one(1));
}

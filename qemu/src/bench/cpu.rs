//! The clock, the core and the CPU time of a thread that measures.

#![allow(unsafe_code)] // Reads the time-stamp counter.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};

/// How long the counter is compared with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(50);

/// The time-stamp counter.
#[inline(always)]
pub(super) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter, and Linux lets processes read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks a second.
pub(super) fn hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        let (begin, since) = (Instant::now(), ticks());
        while begin.elapsed() < CALIBRATION {}
        ((ticks() - since) as f64 / begin.elapsed().as_secs_f64()) as u64
    })
}

/// The time of so many ticks.
pub(super) fn duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / hz() as f64)
}

/// The cores that this process may use.
///
/// # Errors
/// When the system does not say.
pub(super) fn cores() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot learn which cores may be used")?;
    Ok((0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true)).collect())
}

/// The first two cores that this process may use.
///
/// # Errors
/// When there are fewer.
pub(super) fn two_cores() -> Result<[usize; 2]> {
    let cores = cores()?;
    ensure!(cores.len() >= 2, "two threads have to run at a time, and there is one core");
    Ok([cores[0], cores[1]])
}

/// Keeps the calling thread on `core`.
///
/// # Errors
/// When the core can't be used.
pub(super) fn pin(core: usize) -> Result<()> {
    pin_to(&[core])
}

/// Keeps the calling thread, and those that it starts from now on, on `cores`.
///
/// # Errors
/// When they can't be used.
pub(super) fn pin_to(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core).with_context(|| format!("there is no core {core}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on cores {cores:?}"))
}

/// The CPU time that the calling thread has used.
pub(super) fn thread_time() -> Duration {
    time(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The clock of the calling thread's CPU time, for other threads of the process to read.
pub(super) fn this_thread() -> ClockId {
    // As `pthread_getcpuclockid` makes it (Linux, include/linux/posix-timers.h: CPUCLOCK_SCHED, per thread).
    const SCHED_OF_THREAD: i32 = 0b110;
    ClockId::from_raw(!gettid().as_raw() << 3 | SCHED_OF_THREAD)
}

/// What a clock of CPU time says; nothing, for one of a thread or a process that has ended.
pub(super) fn time(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Into::into)
}

//! Time since the entry, by the time-stamp counter (TSC).
//!
//! [`init`] finds the counter's frequency; until then the time stands at 0. Every wait here is bounded by the counter
//! itself, so that a clock which stands still costs milliseconds, never the boot.

mod calibration;
mod reference;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use log::{info, warn};
use raw_cpuid::{CpuId, Hypervisor};

use self::calibration::{CpuidReport, Frequency, choose};
pub(crate) use self::calibration::{ReferenceClock, measure};
pub use self::reference::tsc;
use crate::acpi;

/// The counter at the entry.
static ENTRY: AtomicU64 = AtomicU64::new(0);
/// The counter's frequency.
static HZ: AtomicU64 = AtomicU64::new(calibration::ASSUMED_HZ);
/// Nanoseconds per tick, as a fraction of 2^32.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Finds out how fast the counter runs, and counts the time from `entry_tsc` on. It takes up to 10 ms where the
/// frequency has to be measured, and needs [`acpi::init`] to know the clocks.
pub fn init(entry_tsc: u64) {
    let cpuid = CpuId::new();
    let frequency = choose(&CpuidReport::new(&cpuid), reference::measure_by_any(acpi::platform()));
    set_frequency(entry_tsc, frequency.hz);
    report(frequency, Stability::of(&cpuid));
}

fn set_frequency(entry_tsc: u64, hz: u64) {
    ENTRY.store(entry_tsc, Ordering::Relaxed);
    HZ.store(hz, Ordering::Relaxed);
    NS_PER_TICK.store(ns_per_tick(hz), Ordering::Relaxed);
}

fn report(frequency: Frequency, stability: Stability) {
    info!("tsc {frequency}, {stability}");
    if frequency.is_assumed() {
        warn!("no clock to measure the tsc against: every duration is a guess");
    }
    if stability == Stability::Varying {
        warn!("the tsc is not invariant: its rate may change with the core's");
    }
}

/// Whether the counter keeps its rate, and is the same on all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stability {
    /// CPUID promises it (SDM volume 3, 18.17.1).
    Invariant,
    /// QEMU's translator reads the host's counter for each core, and so promises what the host's does, though it
    /// sets no flag.
    OfHost,
    /// A hypervisor hides the flag, as it may move the machine to another host.
    Unpromised,
    /// A real processor whose counter follows the core's clock.
    Varying,
}

impl Stability {
    fn of(cpuid: &CpuId<raw_cpuid::CpuIdReaderNative>) -> Self {
        let power = cpuid.get_advanced_power_mgmt_info();
        let hypervisor = cpuid.get_hypervisor_info().map(|info| info.identify());
        match hypervisor {
            _ if power.is_some_and(|power| power.has_invariant_tsc()) => Self::Invariant,
            Some(Hypervisor::QEMU) => Self::OfHost,
            Some(_) => Self::Unpromised,
            None => Self::Varying,
        }
    }
}

impl fmt::Display for Stability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invariant => "invariant",
            Self::OfHost => "the host's",
            Self::Unpromised => "not declared invariant",
            Self::Varying => "not invariant",
        })
    }
}

/// Nanoseconds since the entry.
#[must_use]
pub fn now_ns() -> u64 {
    let ticks = tsc().saturating_sub(ENTRY.load(Ordering::Relaxed));
    ticks_to_ns(ticks, NS_PER_TICK.load(Ordering::Relaxed))
}

/// Microseconds since the entry.
#[must_use]
pub fn since_entry_us() -> u64 {
    now_ns() / 1_000
}

/// Ticks of the counter per second.
#[must_use]
pub fn tsc_hz() -> u64 {
    HZ.load(Ordering::Relaxed)
}

/// Ticks of the counter that a duration takes.
#[must_use]
pub fn ticks(duration: Duration) -> u64 {
    let ticks = duration.as_nanos() * u128::from(tsc_hz()) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Waits, without sleep.
pub fn delay_us(microseconds: u64) {
    // With no deadline to miss, the wait ends by time alone.
    wait_until(Duration::from_micros(microseconds), || false);
}

/// Waits, without sleep, until `done` or until the time is up. Returns what `done` said last.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = tsc();
    let limit = ticks(limit);
    loop {
        if done() {
            return true;
        }
        // Measured from the start, so that a counter that wraps or is behind by a little does no harm.
        if tsc().wrapping_sub(start) >= limit {
            return false;
        }
        core::hint::spin_loop();
    }
}

fn ns_per_tick(hz: u64) -> u64 {
    ((1_000_000_000u128 << 32) / u128::from(hz)) as u64
}

fn ticks_to_ns(ticks: u64, ns_per_tick: u64) -> u64 {
    ((u128::from(ticks) * u128::from(ns_per_tick)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        for hz in [100_000_000, 1_000_000_000, 2_599_998_000, 6_000_000_000] {
            let day = 86_400 * hz;
            let ns = ticks_to_ns(day, ns_per_tick(hz));
            assert!(ns.abs_diff(86_400_000_000_000) < 100_000, "a day at {hz} Hz is {ns} ns");
        }
        assert_eq!(ticks_to_ns(12345, 0), 0, "before the frequency is known");
    }
}

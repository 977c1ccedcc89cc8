//! The timer of each core's local APIC, which ends a sleep (SDM volume 3, 11.5.4).

use core::time::Duration;

use hermit_sync::OnceCell;
use log::{debug, warn};
use raw_cpuid::CpuId;

use super::registers::{self, Registers};
use super::{APIC, vector};
use crate::time::{self, ReferenceClock};

/// How the timer is told when to fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By the value of the time-stamp counter.
    TscDeadline,
    /// By a count of ticks.
    CountDown {
        /// Ticks per second.
        hz: u64,
    },
}

static KIND: OnceCell<Kind> = OnceCell::new();

/// Chooses how to use the timers of all cores, and readies that of the boot core.
pub(super) fn init() {
    let Some(&apic) = APIC.get() else { return };
    let has_deadline = CpuId::new().get_feature_info().is_some_and(|features| features.has_tsc_deadline());
    let kind = if has_deadline { Some(Kind::TscDeadline) } else { measure(apic) };
    match kind {
        Some(kind) => {
            debug!("timer: {kind:?}");
            // A second call finds the same.
            let _ = KIND.set(kind);
            init_core(apic);
        }
        None => warn!("the timer of the local apic does not run"),
    }
}

/// Readies the timer of the calling core. It does nothing on the boot core, before the kind is known.
pub(super) fn init_core(apic: Registers) {
    let Some(kind) = KIND.get() else { return };
    let mode = match kind {
        Kind::TscDeadline => registers::LVT_TSC_DEADLINE,
        Kind::CountDown { .. } => 0,
    };
    apic.write(&registers::TIMER_DIVIDE, registers::DIVIDE_BY_16);
    apic.write(&registers::LVT_TIMER, mode | u32::from(vector::TIMER));
}

/// Lets the calling core's timer interrupt it once, after a time from now. An earlier setting is replaced. To bound a
/// sleep it is called with interrupts off, in the question that [`sleep_unless`](crate::smp::sleep_unless) asks: otherwise the
/// interrupt may come, and be over, before the sleep begins.
///
/// A time that is longer than the counter can hold (68 s at 1 GHz) is cut.
pub fn arm(after: Duration) {
    match (APIC.get(), KIND.get()) {
        (Some(_), Some(Kind::TscDeadline)) => {
            registers::set_tsc_deadline(time::tsc().saturating_add(time::ticks(after)).max(1));
        }
        (Some(apic), Some(Kind::CountDown { hz })) => {
            apic.write(&registers::TIMER_INITIAL_COUNT, count(after, *hz));
        }
        _ => {}
    }
}

/// Takes the setting back. The interrupt may be on its way already.
pub fn disarm() {
    match (APIC.get(), KIND.get()) {
        (Some(_), Some(Kind::TscDeadline)) => registers::set_tsc_deadline(0),
        (Some(apic), Some(Kind::CountDown { .. })) => apic.write(&registers::TIMER_INITIAL_COUNT, 0),
        _ => {}
    }
}

/// Ticks for a time: at least one, as 0 would be no setting.
fn count(after: Duration, hz: u64) -> u32 {
    let ticks = after.as_nanos() * u128::from(hz) / 1_000_000_000;
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

/// Counts the ticks of the timer for half a millisecond.
fn measure(apic: Registers) -> Option<Kind> {
    apic.write(&registers::TIMER_DIVIDE, registers::DIVIDE_BY_16);
    apic.write(&registers::LVT_TIMER, registers::LVT_MASKED);
    apic.write(&registers::TIMER_INITIAL_COUNT, u32::MAX);
    let mut clock = CountDown { apic, captured: 0 };
    let window = time::measure(&mut clock, time::tsc, |window| window.tsc >= time::tsc_hz() / 2_000);
    apic.write(&registers::TIMER_INITIAL_COUNT, 0);
    let hz = window?.reference_hz(time::tsc_hz());
    (hz != 0).then_some(Kind::CountDown { hz })
}

/// The timer as a clock.
struct CountDown {
    apic: Registers,
    captured: u32,
}

impl ReferenceClock for CountDown {
    const MASK: u64 = 0xffff_ffff;

    fn capture(&mut self) {
        self.captured = self.apic.read(&registers::TIMER_CURRENT_COUNT);
    }

    fn count(&mut self) -> u64 {
        u64::from(!self.captured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rounded_down_to_one_and_cut() {
        const HZ: u64 = 62_500_000;
        assert_eq!(count(Duration::from_millis(1), HZ), 62_500);
        assert_eq!(count(Duration::ZERO, HZ), 1);
        assert_eq!(count(Duration::from_secs(3_600), HZ), u32::MAX);
    }
}

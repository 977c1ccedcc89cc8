//! How fast the time-stamp counter runs: who to ask, whom to believe, and how to measure when nobody says.

use core::fmt;

use raw_cpuid::{CpuId, CpuIdReader};

/// What is assumed when there is nothing to measure against.
pub(super) const ASSUMED_HZ: u64 = 2_000_000_000;
/// Frequencies that are believed. The slowest 64-bit processors ran at 1 GHz; emulators go lower.
const CREDIBLE: core::ops::RangeInclusive<u64> = 100_000_000..=10_000_000_000;

/// A frequency and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frequency {
    pub(super) hz: u64,
    source: Source,
}

/// Where a frequency is from, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// CPUID leaf 0x40000010, by which hypervisors state the rate that they emulate or scale to.
    Hypervisor,
    /// CPUID leaf 0x15: the ratio to the crystal, and the crystal's frequency.
    Crystal,
    /// CPUID leaf 0x15 without the crystal's frequency; the base frequency of leaf 0x16 stands for it.
    Ratio,
    /// Counted against the clock of this name.
    Measured(&'static str),
    /// CPUID leaf 0x16 alone: the core's nominal frequency, which the counter most often has.
    Base,
    /// Nobody knows.
    Assumed,
}

impl Frequency {
    pub(super) fn is_assumed(self) -> bool {
        self.source == Source::Assumed
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.hz / 100_000;
        write!(f, "{}.{} MHz ", tenths / 10, tenths % 10)?;
        match self.source {
            Source::Hypervisor => f.write_str("from the hypervisor"),
            Source::Crystal | Source::Ratio | Source::Base => f.write_str("from cpuid"),
            Source::Measured(clock) => write!(f, "measured by {clock}"),
            Source::Assumed => f.write_str("assumed"),
        }
    }
}

/// What CPUID says about frequencies; 0 where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuidReport {
    /// Leaf 0x40000010, in kHz.
    hypervisor_khz: u64,
    /// Leaf 0x15: ticks of the counter per tick of the crystal, as a fraction.
    numerator: u64,
    denominator: u64,
    /// Leaf 0x15.
    crystal_hz: u64,
    /// Leaf 0x16.
    base_mhz: u64,
}

impl CpuidReport {
    pub(super) fn new<R: CpuIdReader>(cpuid: &CpuId<R>) -> Self {
        let hypervisor = cpuid.get_hypervisor_info().and_then(|info| info.tsc_frequency());
        let ratio = cpuid.get_tsc_info();
        let base = cpuid.get_processor_frequency_info();
        Self {
            hypervisor_khz: hypervisor.unwrap_or(0).into(),
            numerator: ratio.as_ref().map_or(0, |info| info.numerator()).into(),
            denominator: ratio.as_ref().map_or(0, |info| info.denominator()).into(),
            crystal_hz: ratio.as_ref().map_or(0, |info| info.nominal_frequency()).into(),
            base_mhz: base.map_or(0, |info| info.processor_base_frequency()).into(),
        }
    }

    /// Statements that are exact.
    fn stated(&self) -> [(u64, Source); 3] {
        let has_ratio = self.numerator != 0 && self.denominator != 0;
        let by_crystal = if has_ratio { self.crystal_hz * self.numerator / self.denominator } else { 0 };
        // The crystal that leaf 0x15 leaves out is base / ratio, so the counter runs at the base frequency.
        let by_base = if has_ratio { self.base_hz() } else { 0 };
        [
            (self.hypervisor_khz * 1_000, Source::Hypervisor),
            (by_crystal, Source::Crystal),
            (by_base, Source::Ratio),
        ]
    }

    fn base_hz(&self) -> u64 {
        self.base_mhz * 1_000_000
    }
}

/// Chooses the frequency to believe. `measured` are the results of measuring against each clock, made only when they
/// are asked for.
pub(super) fn choose(cpuid: &CpuidReport, measured: impl Iterator<Item = (u64, &'static str)>) -> Frequency {
    let stated = cpuid.stated().into_iter();
    let measured = measured.map(|(hz, clock)| (hz, Source::Measured(clock)));
    let last_resort = [(cpuid.base_hz(), Source::Base), (ASSUMED_HZ, Source::Assumed)];
    stated
        .chain(measured)
        .chain(last_resort)
        .find(|(hz, _)| CREDIBLE.contains(hz))
        .map(|(hz, source)| Frequency { hz, source })
        .expect("the assumed frequency is credible")
}

/// A clock that counts at its own rate, to measure another by.
pub(crate) trait ReferenceClock {
    /// Its mask: the counter wraps to 0 after this value.
    const MASK: u64;

    /// Takes the count. This is what is timed, so it should be one access to the device.
    fn capture(&mut self);

    /// The count that was captured.
    fn count(&mut self) -> u64;
}

/// A count, and when it was taken: between two readings of the time-stamp counter.
#[derive(Clone, Copy, Debug)]
struct Sample {
    count: u64,
    before: u64,
    after: u64,
}

impl Sample {
    fn spread(&self) -> u64 {
        self.after.wrapping_sub(self.before)
    }

    /// The most likely time of the count.
    fn tsc(&self) -> u64 {
        self.before.wrapping_add(self.spread() / 2)
    }
}

/// What passed between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Ticks of the reference clock.
    pub(crate) count: u64,
    /// Ticks of the time-stamp counter.
    pub(crate) tsc: u64,
    /// By how many ticks of the time-stamp counter the two may be off.
    uncertainty: u64,
}

impl Window {
    /// The frequency of the time-stamp counter when that of the reference is known.
    pub(crate) fn tsc_hz(&self, reference_hz: u64) -> u64 {
        scale(reference_hz, self.tsc, self.count)
    }

    /// The frequency of the reference when that of the time-stamp counter is known.
    pub(crate) fn reference_hz(&self, tsc_hz: u64) -> u64 {
        scale(tsc_hz, self.count, self.tsc)
    }

    fn between<C: ReferenceClock>(start: &Sample, end: &Sample) -> Self {
        Self {
            count: end.count.wrapping_sub(start.count) & C::MASK,
            tsc: end.tsc().wrapping_sub(start.tsc()),
            uncertainty: start.spread() / 2 + end.spread() / 2,
        }
    }

    /// Off by less than 1 in 2000.
    fn is_sharp(&self) -> bool {
        self.uncertainty < self.tsc / 2_000
    }
}

/// `value * numerator / denominator`, 0 for a denominator of 0.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator);
    product.checked_div(u128::from(denominator)).map_or(0, |quotient| quotient as u64)
}

/// Lets the reference run against `tsc` until `enough` of a window has passed, and returns the window, or `None` for a
/// reference that stands still.
///
/// A busy host stops the virtual processor anywhere, for milliseconds. That does not hurt the distance between two
/// samples, as both clocks run on; it hurts a sample, when it falls between the reading of one clock and the other.
/// So of several tries that one is taken which took the least time, and a window that is not sharp is made longer.
pub(crate) fn measure<C: ReferenceClock>(
    clock: &mut C,
    mut tsc: impl FnMut() -> u64,
    enough: impl Fn(&Window) -> bool,
) -> Option<Window> {
    /// How often a window is made longer.
    const EXTENSIONS: u32 = 4;
    let start = sharpest_sample(clock, &mut tsc);
    let mut window = None;
    for extension in 1..=EXTENSIONS {
        run_until(clock, &mut tsc, &start, |passed| {
            enough(&Window {
                count: passed.count / u64::from(extension),
                tsc: passed.tsc / u64::from(extension),
                ..*passed
            })
        })?;
        let end = sharpest_sample(clock, &mut tsc);
        let passed = Window::between::<C>(&start, &end);
        window = Some(passed);
        if passed.is_sharp() {
            break;
        }
    }
    window
}

/// Waits for the window since `start` to be long enough; `None` when the clock stands still or goes nowhere.
fn run_until<C: ReferenceClock>(
    clock: &mut C,
    tsc: &mut impl FnMut() -> u64,
    start: &Sample,
    enough: impl Fn(&Window) -> bool,
) -> Option<()> {
    /// A clock that reads the same this often does not run: a reading takes 50 ns at least, a tick 1 us at most.
    const STANDSTILL: u32 = 256;
    /// Far more than any window takes, even if the host stops the machine in it: a tenth of a second on the fastest
    /// processor.
    const LONGEST: u64 = 1_000_000_000;
    let mut last = start.count;
    let mut unchanged = 0;
    while unchanged < STANDSTILL {
        let now = sample(clock, tsc);
        let passed = Window::between::<C>(start, &now);
        if enough(&passed) {
            return Some(());
        }
        if passed.tsc > LONGEST {
            return None;
        }
        unchanged = if now.count == last { unchanged + 1 } else { 0 };
        last = now.count;
    }
    None
}

fn sharpest_sample<C: ReferenceClock>(clock: &mut C, tsc: &mut impl FnMut() -> u64) -> Sample {
    const TRIES: u32 = 8;
    let first = sample(clock, tsc);
    (1..TRIES)
        .map(|_| sample(clock, tsc))
        .fold(first, |best, next| if next.spread() < best.spread() { next } else { best })
}

fn sample<C: ReferenceClock>(clock: &mut C, tsc: &mut impl FnMut() -> u64) -> Sample {
    let before = tsc();
    clock.capture();
    let after = tsc();
    Sample { count: clock.count(), before, after }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::string::ToString;

    use super::*;

    const MHZ: u64 = 1_000_000;

    #[test]
    fn believes_the_hypervisor_then_the_crystal_then_the_ratio() {
        let nothing = || core::iter::empty();
        let mut report = CpuidReport {
            hypervisor_khz: 2_600_000,
            numerator: 216,
            denominator: 2,
            crystal_hz: 24 * MHZ,
            base_mhz: 2_500,
        };
        assert_eq!(choose(&report, nothing()).to_string(), "2600.0 MHz from the hypervisor");
        report.hypervisor_khz = 0;
        assert_eq!(choose(&report, nothing()), Frequency { hz: 2_592 * MHZ, source: Source::Crystal });
        report.crystal_hz = 0;
        assert_eq!(choose(&report, nothing()), Frequency { hz: 2_500 * MHZ, source: Source::Ratio });
    }

    #[test]
    fn measures_before_it_takes_the_base_frequency() {
        let report = CpuidReport { base_mhz: 2_500, ..CpuidReport::default() };
        let measured = choose(&report, [(0, "hpet"), (2_599_999_999, "pit")].into_iter());
        assert_eq!(measured.to_string(), "2599.9 MHz measured by pit");
        assert_eq!(choose(&report, core::iter::empty()).source, Source::Base);
        assert!(choose(&CpuidReport::default(), [(5, "pit")].into_iter()).is_assumed());
    }

    #[test]
    fn measures_nothing_when_it_is_told() {
        let report = CpuidReport { hypervisor_khz: 3_000_000, ..CpuidReport::default() };
        let never = core::iter::from_fn(|| panic!("measured"));
        assert_eq!(choose(&report, never).hz, 3_000 * MHZ);
    }

    /// Two clocks on a host that stops the machine now and then.
    struct Host<'t> {
        /// Nanoseconds.
        now: &'t Cell<u64>,
        /// What the next accesses cost on top of their 500 ns.
        stops: &'t dyn Fn(u64) -> u64,
        accesses: u64,
        captured: u64,
    }

    const REFERENCE_HZ: u64 = 3_579_545;
    const TSC_GHZ: u64 = 3;

    impl ReferenceClock for Host<'_> {
        const MASK: u64 = 0xff_ffff;

        fn capture(&mut self) {
            self.accesses += 1;
            self.now.set(self.now.get() + 250);
            self.captured = self.now.get() * REFERENCE_HZ / 1_000_000_000;
            self.now.set(self.now.get() + 250 + (self.stops)(self.accesses));
        }

        fn count(&mut self) -> u64 {
            self.captured & Self::MASK
        }
    }

    fn measure_on_host(stops: &dyn Fn(u64) -> u64) -> (u64, u64) {
        // The reference wraps during the measurement.
        let begin = 0x00ff_ff00 * 1_000_000_000 / REFERENCE_HZ;
        let now = Cell::new(begin);
        let mut host = Host { now: &now, stops, accesses: 0, captured: 0 };
        let window = measure(&mut host, || now.get() * TSC_GHZ, |window| window.count >= REFERENCE_HZ / 500);
        (window.unwrap().tsc_hz(REFERENCE_HZ), now.get() - begin)
    }

    fn assert_close(hz: u64) {
        assert!(hz.abs_diff(TSC_GHZ * 1_000_000_000) < 3 * MHZ, "{hz}");
    }

    #[test]
    fn a_quiet_host_takes_two_milliseconds() {
        let (hz, took) = measure_on_host(&|_| 0);
        assert_close(hz);
        assert!((2_000_000..2_100_000).contains(&took), "{took}");
    }

    #[test]
    fn a_busy_host_does_not_spoil_the_result() {
        // Five readings of six are torn apart by 50 microseconds, and some by 10 milliseconds.
        assert_close(measure_on_host(&|access| if access % 6 == 0 { 0 } else { 50_000 }).0);
        assert_close(measure_on_host(&|access| if access % 100 == 3 { 10_000_000 } else { 0 }).0);
    }

    #[test]
    fn a_host_that_is_never_quiet_gets_a_longer_window() {
        let (hz, took) = measure_on_host(&|_| 30_000);
        assert!(hz.abs_diff(TSC_GHZ * 1_000_000_000) < 20 * MHZ, "{hz}");
        assert!((7_000_000..10_000_000).contains(&took), "{took}");
    }

    struct Dead(u64);

    impl ReferenceClock for Dead {
        const MASK: u64 = u64::MAX;

        fn capture(&mut self) {}

        fn count(&mut self) -> u64 {
            self.0
        }
    }

    /// Counts, but back and forth.
    struct Confused(u64);

    impl ReferenceClock for Confused {
        const MASK: u64 = 0xff;

        fn capture(&mut self) {
            self.0 ^= 1;
        }

        fn count(&mut self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_clock_that_goes_nowhere_is_given_up() {
        let mut tsc = 0;
        let advance = || {
            tsc += 100_000;
            tsc
        };
        assert_eq!(measure(&mut Confused(0), advance, |window| window.count >= 0xff), None);
    }

    #[test]
    fn a_clock_that_stands_still_is_given_up() {
        let mut tsc = 0;
        let advance = || {
            tsc += 1_000;
            tsc
        };
        assert_eq!(measure(&mut Dead(0xffff_ffff), advance, |window| window.count > 1), None);
        assert!(tsc < 1_000_000, "{tsc}");
    }
}

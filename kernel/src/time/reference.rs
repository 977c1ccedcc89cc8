//! The clocks of the machine: the time-stamp counter, and those it can be measured against.
#![allow(unsafe_code)] // Port and memory-mapped I/O, RDTSC.

use core::ptr::NonNull;

use x86_64::instructions::port::{Port, PortReadOnly, PortWriteOnly};

use super::calibration::{ReferenceClock, measure};
use crate::acpi::Platform;
use crate::paging;

/// The time-stamp counter. It is not ordered with what stands around it.
#[inline]
#[must_use]
pub fn tsc() -> u64 {
    // SAFETY: RDTSC has no precondition: CR4.TSD concerns user mode only.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The frequency of the time-stamp counter by each clock that is there and runs, with the clock's name; the best clock
/// first. A clock is touched only when the iterator gets there.
pub(super) fn measure_by_any(platform: &Platform) -> impl Iterator<Item = (u64, &'static str)> {
    let hpet = move || platform.hpet.and_then(Hpet::start).and_then(|hpet| hpet.tsc_hz());
    let pm_timer = move || platform.pm_timer.and_then(PmCounter::tsc_hz);
    let pit = || Pit::start().tsc_hz();
    let by_hpet = core::iter::once_with(hpet).flatten().map(|hz| (hz, "hpet"));
    let by_pm_timer = core::iter::once_with(pm_timer).flatten().map(|hz| (hz, "acpi timer"));
    let by_pit = core::iter::once_with(pit).flatten().map(|hz| (hz, "pit"));
    by_hpet.chain(by_pm_timer).chain(by_pit)
}

/// Measures for 2 ms at least.
fn tsc_hz_by<C: ReferenceClock>(clock: &mut C, hz: u64) -> Option<u64> {
    let window = measure(clock, tsc, |window| window.count >= hz / 500)?;
    Some(window.tsc_hz(hz))
}

/// The ACPI power management timer (ACPI 6.5, 4.8.3.3), of 24 or 32 bits; 24 are used: they last for 4.6 s.
struct PmCounter {
    port: PortReadOnly<u32>,
    captured: u32,
}

impl PmCounter {
    const HZ: u64 = 3_579_545;

    fn tsc_hz(port: u16) -> Option<u64> {
        tsc_hz_by(&mut Self { port: PortReadOnly::new(port), captured: 0 }, Self::HZ)
    }
}

impl ReferenceClock for PmCounter {
    const MASK: u64 = 0xff_ffff;

    fn capture(&mut self) {
        // SAFETY: The FADT says that the timer is at this port, and reading it has no side effects.
        self.captured = unsafe { self.port.read() };
    }

    fn count(&mut self) -> u64 {
        u64::from(self.captured) & Self::MASK
    }
}

/// The high precision event timer (HPET specification 1.0a). Only its main counter is used, by its lower half, which
/// lasts for 42 s at the highest rate.
struct Hpet {
    registers: NonNull<u8>,
    period_fs: u64,
    captured: u32,
}

impl Hpet {
    const LENGTH: u64 = 0x400;
    /// General capabilities (2.3.4); the upper half is the period in femtoseconds.
    const PERIOD: usize = 0x004;
    /// General configuration (2.3.5).
    const CONFIGURATION: usize = 0x010;
    /// Configuration: the main counter runs.
    const ENABLE_CNF: u32 = 1 << 0;
    /// Main counter (2.3.7).
    const MAIN_COUNTER: usize = 0x0f0;
    /// The longest period that the specification allows: 100 ns. The shortest is that of 1 GHz.
    const PERIODS_FS: core::ops::RangeInclusive<u64> = 1_000_000..=100_000_000;

    fn start(address: u64) -> Option<Self> {
        let registers = paging::map_mmio(address, Self::LENGTH).ok()?;
        let mut hpet = Self { registers, period_fs: 0, captured: 0 };
        hpet.period_fs = hpet.read(Self::PERIOD).into();
        if !Self::PERIODS_FS.contains(&hpet.period_fs) {
            return None;
        }
        let configuration = hpet.read(Self::CONFIGURATION);
        hpet.write(Self::CONFIGURATION, configuration | Self::ENABLE_CNF);
        Some(hpet)
    }

    fn tsc_hz(mut self) -> Option<u64> {
        const FEMTOSECONDS: u64 = 1_000_000_000_000_000;
        let hz = FEMTOSECONDS / self.period_fs;
        tsc_hz_by(&mut self, hz)
    }

    fn read(&self, offset: usize) -> u32 {
        // SAFETY: The offsets above are multiples of 4 within the mapping, and reading has no side effects.
        unsafe { self.registers.add(offset).cast::<u32>().read_volatile() }
    }

    fn write(&mut self, offset: usize, value: u32) {
        // SAFETY: As for `read`; only the bit is changed that lets the counter run.
        unsafe { self.registers.add(offset).cast::<u32>().write_volatile(value) }
    }
}

impl ReferenceClock for Hpet {
    const MASK: u64 = 0xffff_ffff;

    fn capture(&mut self) {
        self.captured = self.read(Self::MAIN_COUNTER);
    }

    fn count(&mut self) -> u64 {
        self.captured.into()
    }
}

/// Channel 2 of the programmable interval timer (Intel 8254), which only drives the speaker: nobody misses it.
struct Pit {
    command: PortWriteOnly<u8>,
    channel_2: Port<u8>,
}

impl Pit {
    const HZ: u64 = 1_193_182;
    const CHANNEL_2: u16 = 0x42;
    const COMMAND: u16 = 0x43;
    /// System control port B: bit 0 lets channel 2 count, bit 1 connects it to the speaker.
    const CONTROL_B: u16 = 0x61;
    const GATE: u8 = 1 << 0;
    const SPEAKER: u8 = 1 << 1;
    /// Channel 2 (bits 7:6), low byte then high byte (5:4), mode 2, which reloads itself (3:1), binary (0).
    const RATE_GENERATOR: u8 = 2 << 6 | 3 << 4 | 2 << 1;
    /// Channel 2: latch the count.
    const LATCH: u8 = 2 << 6;

    /// Lets the channel count down from 65536, over and over. A wrap takes 55 ms.
    fn start() -> Self {
        let mut pit =
            Self { command: PortWriteOnly::new(Self::COMMAND), channel_2: Port::new(Self::CHANNEL_2) };
        let mut control_b = Port::<u8>::new(Self::CONTROL_B);
        // SAFETY: These ports are the timer's and the speaker's on every PC; where there is no timer nobody answers.
        unsafe {
            let control = control_b.read();
            control_b.write(control & !Self::SPEAKER | Self::GATE);
            pit.command.write(Self::RATE_GENERATOR);
            pit.channel_2.write(0);
            pit.channel_2.write(0);
        }
        pit
    }

    /// The least of three results. A busy host may stop the machine for longer than a wrap, which then is not counted,
    /// so that the frequency looks too high.
    fn tsc_hz(mut self) -> Option<u64> {
        (0..3).map_while(|_| tsc_hz_by(&mut self, Self::HZ)).min()
    }
}

impl ReferenceClock for Pit {
    const MASK: u64 = 0xffff;

    fn capture(&mut self) {
        // SAFETY: Latches the count of channel 2, which `start` took over.
        unsafe { self.command.write(Self::LATCH) };
    }

    fn count(&mut self) -> u64 {
        // SAFETY: Reads what was latched, low byte first, as `start` programmed it.
        let bytes = unsafe { [self.channel_2.read(), self.channel_2.read()] };
        // It counts down.
        u64::from(u16::from_le_bytes(bytes).wrapping_neg())
    }
}

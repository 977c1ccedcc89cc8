//! Windows of a thread's work, and what many of them say.
//!
//! Other programs want the cores too. So work is measured in many windows of a millisecond or so, each with the CPU time
//! that its thread had; those in which a thread was interrupted are put aside, and the median of the rest counts.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::time::ClockId;

use super::cpu;
use crate::interrupt;

/// The share of a core that a thread must have had for a window to count.
const UNDISTURBED: f64 = 0.95;

/// One stretch of a thread's work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// When it began and ended, in ticks.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// CPU time that the thread had.
    pub(super) cpu: Duration,
    /// Packets that it moved.
    pub(super) packets: u64,
    /// The longest that anything took that was noted, in ticks.
    pub(super) slowest: u64,
    /// How long it had nothing to do, where that was noted, in ticks.
    pub(super) idle: u64,
}

impl Window {
    fn is_undisturbed(&self) -> bool {
        self.cpu.as_secs_f64() > UNDISTURBED * cpu::duration(self.end - self.begin).as_secs_f64()
    }

    fn overlaps(&self, other: &Window) -> bool {
        self.begin < other.end && other.begin < self.end
    }

    /// Ticks a packet.
    pub(super) fn cycles(&self) -> f64 {
        (self.end - self.begin) as f64 / self.packets as f64
    }

    /// Million packets a second.
    pub(super) fn mpps(&self) -> f64 {
        self.packets as f64 / cpu::duration(self.end - self.begin).as_secs_f64() / 1e6
    }
}

/// The windows of one thread, as others see them.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Window>>>);

impl Log {
    pub(super) fn windows(&self) -> MutexGuard<'_, Vec<Window>> {
        self.0.lock().expect("no thread panics while it has the list")
    }
}

/// Cuts one thread's work into windows of so many packets.
pub(super) struct Recorder {
    log: Log,
    length: u64,
    packets: u64,
    slowest: u64,
    idle: u64,
    begin: u64,
    cpu: Duration,
}

impl Recorder {
    /// For windows of `length` packets.
    pub(super) fn new(log: Log, length: u64) -> Recorder {
        Recorder { log, length, packets: 0, slowest: 0, idle: 0, begin: 0, cpu: Duration::ZERO }
    }

    /// Counts packets that moved.
    #[inline(always)]
    pub(super) fn note(&mut self, packets: usize) {
        self.packets += packets as u64;
        if self.packets >= self.length {
            self.close();
        }
    }

    /// Counts something that took so many ticks.
    #[inline(always)]
    pub(super) fn note_time(&mut self, ticks: u64) {
        self.slowest = self.slowest.max(ticks);
    }

    /// Counts so many ticks in which there was nothing to do.
    #[inline(always)]
    pub(super) fn note_idle(&mut self, ticks: u64) {
        self.idle += ticks;
    }

    #[cold]
    fn close(&mut self) {
        let (end, cpu) = (cpu::ticks(), cpu::thread_time());
        // The first one began before the thread ran.
        if self.begin > 0 {
            let Recorder { begin, packets, slowest, idle, .. } = *self;
            self.log.windows().push(Window { begin, end, cpu: cpu - self.cpu, packets, slowest, idle });
        }
        (self.packets, self.slowest, self.idle) = (0, 0, 0);
        (self.begin, self.cpu) = (cpu::ticks(), cpu::thread_time());
    }
}

/// Windows of two threads that work together, cut by whoever looks now and then.
pub(super) struct Sampler {
    clocks: [ClockId; 2],
    samples: Vec<Sample>,
}

struct Sample {
    at: u64,
    packets: u64,
    cpu: [Duration; 2],
}

impl Sampler {
    /// For the threads with these clocks of CPU time.
    pub(super) fn new(clocks: [ClockId; 2]) -> Sampler {
        Sampler { clocks, samples: Vec::new() }
    }

    /// So many packets have moved by now.
    pub(super) fn note(&mut self, packets: u64) {
        self.samples.push(Sample { at: cpu::ticks(), packets, cpu: self.clocks.map(cpu::time) });
    }

    /// The time between each look and the next, with the CPU time of the thread that had less; those only in which both
    /// had their cores.
    pub(super) fn windows(&self) -> Vec<Window> {
        let window = |pair: &[Sample]| {
            let [begin, end] = pair else { return None };
            let cpu = begin.cpu.iter().zip(end.cpu).map(|(&begin, end)| end.saturating_sub(begin)).min()?;
            let packets = end.packets - begin.packets;
            Some(Window { begin: begin.at, end: end.at, cpu, packets, slowest: 0, idle: 0 })
        };
        self.samples.windows(2).filter_map(window).filter(Window::is_undisturbed).collect()
    }
}

/// The windows of each thread in which every thread was undisturbed.
pub(super) fn undisturbed(threads: &[Vec<Window>]) -> Vec<Vec<Window>> {
    let disturbed: Vec<&Window> =
        threads.iter().flatten().filter(|window| !window.is_undisturbed()).collect();
    // A window also counts only where the others were at work for all of it.
    let begin = threads.iter().filter_map(|windows| windows.first()).map(|window| window.begin).max();
    let end = threads.iter().filter_map(|windows| windows.last()).map(|window| window.end).min();
    let (Some(begin), Some(end)) = (begin, end) else { return vec![Vec::new(); threads.len()] };
    let counts = |window: &&Window| {
        window.begin >= begin && window.end <= end && !disturbed.iter().any(|other| window.overlaps(other))
    };
    threads.iter().map(|windows| windows.iter().filter(counts).copied().collect()).collect()
}

/// The median of many values, and the quarters of them below and above.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Spread {
    /// All of `values`; zero where there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |share: usize| values.get(values.len() * share / 4).copied().unwrap_or_default();
        Spread { low: at(1), median: at(2), high: at(3) }
    }
}

/// How rates of what others count are measured: in windows, each so long, after something else.
pub(super) struct Timing {
    pub(super) warm_up: Duration,
    pub(super) windows: usize,
    pub(super) window: Duration,
}

impl Timing {
    /// By how many thousands a second each of `counts` grows.
    ///
    /// # Errors
    /// When somebody interrupts.
    pub(super) fn rates<const N: usize>(&self, counts: impl Fn() -> [u64; N]) -> Result<[Spread; N]> {
        thread::sleep(self.warm_up);
        let mut rates = [const { Vec::new() }; N];
        for _ in 0..self.windows {
            ensure!(!interrupt::happened(), "interrupted");
            let (begin, before) = (Instant::now(), counts());
            thread::sleep(self.window);
            let (after, millis) = (counts(), begin.elapsed().as_secs_f64() * 1e3);
            for (rates, (before, after)) in rates.iter_mut().zip(before.into_iter().zip(after)) {
                rates.push((after - before) as f64 / millis);
            }
        }
        Ok(rates.map(Spread::of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of so many thousandths of a second, in which the thread had a share of the core.
    fn window(begin: u64, end: u64, share: f64) -> Window {
        let ticks = |millis: u64| 1 + cpu::hz() / 1000 * millis;
        let cpu = Duration::from_millis(end - begin).mul_f64(share);
        Window {
            begin: ticks(begin),
            end: ticks(end),
            cpu,
            packets: 1000 * (end - begin),
            slowest: 0,
            idle: 0,
        }
    }

    #[test]
    fn the_quarters_of_a_spread() {
        let spread = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(spread, Spread { low: 2.0, median: 3.0, high: 4.0 });
        assert_eq!(Spread::of([7.0]), Spread { low: 7.0, median: 7.0, high: 7.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn a_window_counts_only_where_all_threads_had_their_cores() {
        let one = vec![window(0, 10, 1.0), window(10, 20, 1.0), window(20, 30, 0.5), window(30, 40, 1.0)];
        let other = vec![window(5, 15, 0.99), window(15, 25, 0.97), window(25, 38, 1.0)];
        let counted = undisturbed(&[one, other]);
        let begins = |windows: &[Window]| -> Vec<u64> { windows.iter().map(|window| window.begin).collect() };
        assert_eq!(
            begins(&counted[0]),
            [window(10, 20, 1.0).begin],
            "the first began alone, the last ended so"
        );
        assert_eq!(
            begins(&counted[1]),
            [window(5, 15, 1.0).begin],
            "the others met a thread without its core"
        );
    }

    #[test]
    fn rates_are_those_of_the_clock() {
        let window = window(0, 10, 1.0);
        assert!((window.mpps() - 1.0).abs() < 1e-3, "{}", window.mpps());
        assert!((window.cycles() - cpu::hz() as f64 / 1e6).abs() < 1.0, "{}", window.cycles());
    }

    #[test]
    fn a_sampler_counts_what_moved_while_both_had_their_cores() {
        let this = cpu::this_thread();
        let mut sampler = Sampler::new([this, this]);
        for packets in [0, 10, 30] {
            sampler.note(packets);
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_millis(1) {}
        }
        assert!(sampler.windows().len() <= 2);
        assert!(sampler.windows().iter().all(|window| [10, 20].contains(&window.packets)));
        // Nobody has the CPU time of a thread that is none.
        let mut sampler = Sampler::new([this, ClockId::from_raw(-1)]);
        (0..3).for_each(|packets| sampler.note(packets));
        assert!(sampler.windows().is_empty());
    }

    #[test]
    fn a_recorder_cuts_by_packets_and_keeps_the_slowest() {
        let log = Log::default();
        let mut recorder = Recorder::new(log.clone(), 100);
        for step in 0..12 {
            recorder.note_time(step);
            recorder.note(25);
        }
        let windows = log.windows();
        let seen: Vec<_> = windows.iter().map(|window| (window.packets, window.slowest)).collect();
        assert_eq!(seen, [(100, 7), (100, 11)], "the first is no window: nobody knows when it began");
    }
}

//! One boot before the generator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::contestant::{Contestant, Work};
use crate::bench::cpu;
use crate::bench::guest::{FLOWS, flow};
use crate::bench::measure::{Spread, Timing};
use crate::vhost::{Drive, Offer, Sink, Source, TrafficConfig, TrafficPort};
use crate::{Guest, Machine, interrupt};

const TIMING: Timing =
    Timing { warm_up: Duration::from_millis(750), windows: 9, window: Duration::from_millis(250) };
/// How long a boot may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether something has happened.
const LOOK: Duration = Duration::from_millis(2);

/// A machine that forwards, or will soon. The generator sends from before its start.
pub(in crate::bench) struct Run {
    guest: Guest,
    ports: Vec<TrafficPort>,
    work: Work,
    seen: Arc<Seen>,
    _sockets: TempDir,
}

/// What came out as it had to.
#[derive(Default)]
struct Seen {
    frames: AtomicU64,
    first: OnceLock<Instant>,
}

impl Run {
    /// Starts it, before ports that look all the time.
    pub(super) fn start(contestant: &Contestant, work: Work, cores: usize, memory_mib: usize) -> Result<Run> {
        let ports = TrafficConfig { drive: Drive::Poll, ..Default::default() };
        Run::start_before(&ports, contestant.machine(work, cores, memory_mib), work, cores)
    }

    /// Starts a machine with so many cores before ports like these, which flood it. The generator has the last of this
    /// process's cores, QEMU as many as the machine has from the first on.
    pub(in crate::bench) fn start_before(
        ports: &TrafficConfig,
        machine: Machine,
        work: Work,
        cores: usize,
    ) -> Result<Run> {
        let host = cpu::cores()?;
        ensure!(host.len() >= 2, "QEMU and the generator have to run at a time, and there is one core");
        let sockets =
            tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
        let seen = Arc::new(Seen::default());
        let listen = |port| -> Result<TrafficPort> {
            let config = TrafficConfig {
                // XDP on virtio-net wants a second pair for each core.
                queue_pairs: 2 * cores as u16,
                offer: Offer::Flood,
                ..ports.clone()
            };
            let port = TrafficPort::listen(sockets.path().join(format!("port{port}")), config)?;
            port.start(source(host[host.len() - 1]), sink(work, Arc::clone(&seen)));
            Ok(port)
        };
        let ports = (0..work.ports()).map(listen).collect::<Result<Vec<_>>>()?;
        let machine = ports.iter().fold(machine, |machine, port| machine.port(port.spec()));
        // QEMU inherits the cores of the thread that starts it.
        let start = || cpu::pin_to(&host[..cores.min(host.len())]).and_then(|()| machine.start());
        let guest = thread::scope(|scope| scope.spawn(start).join().expect("no start of QEMU panics"))?;
        Ok(Run { guest, ports, work, seen, _sockets: sockets })
    }

    /// Seconds from the start of QEMU until the first frame was forwarded; `None` where QEMU ended, or nothing came.
    pub(super) fn until_first(&self) -> Result<Option<f64>> {
        let begin = Instant::now();
        while self.forwarded() == 0 {
            ensure!(!interrupt::happened(), "interrupted");
            if self.guest.exited().is_some() || begin.elapsed() > PATIENCE {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
        let first = self.seen.first.get().copied().unwrap_or_else(Instant::now);
        Ok(Some((first - self.guest.spawned()).as_secs_f64()))
    }

    /// Thousands of frames a second.
    pub(in crate::bench) fn rate(&self) -> Result<Spread> {
        self.until_first()?.with_context(|| self.says("nothing is forwarded"))?;
        let [rates] = TIMING.rates(|| [self.forwarded()])?;
        let failed = self.guest.lines().into_iter().find(|line| line.text.starts_with("peer failed"));
        ensure!(failed.is_none(), "{failed:?}");
        ensure!(rates.median > 0.0, "{}", self.says("nothing is forwarded any more"));
        Ok(rates)
    }

    /// Seconds from the image's entry until it said that it forwards, where it says so.
    pub(super) fn boot_time(&self) -> Option<f64> {
        // It may say so a moment after the first frame.
        self.guest.wait_ready(TIMING.window).ok().map(|ready| ready.boot_us as f64 / 1e6)
    }

    /// What is wrong, with the console's last words.
    pub(super) fn says(&self, wrong: &str) -> String {
        format!("{wrong}; {}", self.guest.tail())
    }

    /// Frames that came out as they had to; for those who drop, frames that were taken.
    fn forwarded(&self) -> u64 {
        match self.work {
            Work::Reflect | Work::Forward => self.seen.frames.load(Ordering::Relaxed),
            Work::Drop => self.ports.iter().map(|port| port.counts().total().frames_in).sum(),
        }
    }
}

/// The flood, made beforehand so that it costs the generator nothing but copies. Its thread stays on `core`.
fn source(core: usize) -> impl Source {
    let flood: Vec<Vec<u8>> = (0..FLOWS).map(flow).collect();
    let (mut next, mut is_pinned) = (0, false);
    move |frame: &mut Vec<u8>| {
        if !is_pinned {
            is_pinned = true;
            cpu::pin(core).expect("the core may be used");
        }
        frame.extend_from_slice(&flood[next]);
        next = (next + 1) % flood.len();
        true
    }
}

/// Counts what is one of the flood's frames, as it has to look when it comes out: the guest may have words of its own to say.
fn sink(work: Work, seen: Arc<Seen>) -> impl Sink {
    let sent = flow(0);
    let addresses: [&[u8]; 2] = match work {
        Work::Reflect => [&sent[6..12], &sent[..6]],
        Work::Forward | Work::Drop => [&sent[..6], &sent[6..12]],
    };
    let addresses = addresses.concat();
    move |_: u16, frame: &[u8]| {
        if frame.starts_with(&addresses) {
            seen.first.get_or_init(Instant::now);
            seen.frames.fetch_add(1, Ordering::Relaxed);
        }
    }
}

//! A machine that forwards between two ports, and what is behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::bench::cpu;
use crate::bench::guest::{FLOWS, flow_of_length};
use crate::bench::measure::{Spread, Timing};
use crate::bench::vm::{Contestant, Work};
use crate::ports::mac_octets;
use crate::vhost::{Drive, Sink, Source, TrafficConfig, TrafficPort, Window};
use crate::{Guest, Machine, PortSpec, interrupt};

const TIMING: Timing =
    Timing { warm_up: Duration::from_millis(500), windows: 9, window: Duration::from_millis(250) };
/// How long a boot, or the first frame, may take on a busy machine; and the last frames after the source has ended.
const PATIENCE: Duration = Duration::from_secs(30);
const AFTERWARDS: Duration = Duration::from_secs(1);
/// Between two looks at whether a frame has come.
const LOOK: Duration = Duration::from_millis(2);
/// Memory of a machine, in MiB.
const MEMORY: usize = 256;
/// Frames under way at a time. As many as a ring has descriptors: what is measured is throughput, which RFC 2544 (26.1) has
/// as the rate at which nothing is lost. A flood would also measure how well machines that share a core starve each other.
const UNDER_WAY: usize = 256;

/// Where frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// In at port 0, out at port 1.
    PortToPort,
    /// In at port 0, out at port 1 to a Linux guest that reflects them, in again there, and out at port 0: from the physical
    /// port to a virtual one and back to the physical one.
    Pvp,
}

/// The machines of a path, and the ports at its ends: frames come from the first port, and go to the last.
pub(super) struct Chain {
    path: Path,
    guests: Vec<Guest>,
    ports: Vec<TrafficPort>,
    generator: usize,
    under_way: Window,
    _sockets: TempDir,
}

/// What came of frames of one size.
pub(super) struct Outcome {
    /// Thousands a second that came out as they had to.
    pub(super) kpps: Spread,
    /// Those that never came out.
    pub(super) lost: usize,
}

impl Chain {
    /// Boots `forwarder`, and on the path by way of it a Linux guest. The forwarder has the first core of this process, all
    /// else the last one.
    ///
    /// # Errors
    /// When something that is needed is missing, or does not boot.
    pub(super) fn start(path: Path, forwarder: &Contestant) -> Result<Chain> {
        let cores = cpu::cores()?;
        let [first, .., generator] = cores[..] else { bail!("a core for the generator is wanted as well") };
        let sockets =
            tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
        let socket = |name| sockets.path().join(name);
        let under_way = Window::new(UNDER_WAY);
        let listen = |name| {
            let window = Some(under_way.clone());
            let config = TrafficConfig {
                // XDP on virtio-net wants a second pair for each core.
                queue_pairs: 2,
                drive: Drive::Poll,
                takes: window.clone(),
                gives: window,
                ..Default::default()
            };
            TrafficPort::listen(socket(name), config)
        };
        let machine = forwarder.machine(Work::Forward, 1, MEMORY);
        let (mut guests, mut ports) = (Vec::new(), vec![listen("port0")?]);
        let machine = machine.port(ports[0].spec());
        let machine = match path {
            Path::PortToPort => {
                ports.push(listen("port1")?);
                machine.port(ports[1].spec())
            }
            Path::Pvp => {
                let (near, far) = (socket("near"), socket("far"));
                let linux = Contestant::linux()?.machine(Work::Reflect, 1, MEMORY);
                let linux = linux.port(PortSpec::Dgram { local: far.clone(), remote: near.clone() });
                guests.push(start(linux, generator)?);
                machine.port(PortSpec::Dgram { local: near, remote: far })
            }
        };
        guests.push(start(machine, first)?);
        let chain = Chain { path, guests, ports, generator, under_way, _sockets: sockets };
        chain.wait_ready()?;
        Ok(chain)
    }

    fn wait_ready(&self) -> Result<()> {
        for guest in &self.guests {
            let decisive =
                |line: &str| ["sluice ready", "peer ready"].iter().any(|word| line.starts_with(word));
            guest.wait_for_line(decisive, PATIENCE).context("a guest did not get ready")?;
            let failed = guest.lines().into_iter().find(|line| line.text.starts_with("peer failed"));
            ensure!(failed.is_none(), "{failed:?}");
        }
        Ok(())
    }

    /// Sends frames of `len` bytes all the time.
    ///
    /// # Errors
    /// When none comes out.
    pub(super) fn measure(&self, len: usize) -> Result<Outcome> {
        let frames: Vec<Vec<u8>> = (0..FLOWS).map(|number| self.frame(number, len)).collect();
        let seen = Arc::<AtomicU64>::default();
        let sink = sink(self.expected(&frames[0]), Arc::clone(&seen));
        let before = self.under_way.in_flight();
        self.run(frames, sink);
        let begin = Instant::now();
        while seen.load(Ordering::Relaxed) == 0 {
            ensure!(!interrupt::happened(), "interrupted");
            ensure!(begin.elapsed() < PATIENCE, "no frame of {len} bytes came out; {}", self.says());
            thread::sleep(LOOK);
        }
        let [kpps] = TIMING.rates(|| [seen.load(Ordering::Relaxed)])?;
        ensure!(kpps.median > 0.0, "no frames of {len} bytes come out any more; {}", self.says());
        self.run(Vec::new(), |_: u16, _: &[u8]| {});
        let begin = Instant::now();
        while self.under_way.in_flight() > before && begin.elapsed() < AFTERWARDS {
            thread::sleep(LOOK);
        }
        Ok(Outcome { kpps, lost: self.under_way.in_flight().saturating_sub(before) })
    }

    /// From now on these frames go in, one after the other without end, and what comes out goes to `sink`.
    fn run(&self, frames: Vec<Vec<u8>>, sink: impl Sink) {
        let source = |frames| source(frames, self.generator);
        match &self.ports[..] {
            [first, .., last] => {
                last.start(source(Vec::new()), sink);
                first.start(source(frames), |_: u16, _: &[u8]| {});
            }
            [only] => only.start(source(frames), sink),
            [] => {}
        }
    }

    /// A frame of flow `number`. Where it is to come back, it is for the guest, and from the port behind which that is: QEMU
    /// keeps what is for others from those who don't ask for it.
    fn frame(&self, number: u16, len: usize) -> Vec<u8> {
        let mut frame = flow_of_length(number, len);
        if self.path == Path::Pvp {
            frame[..6].copy_from_slice(&mac_octets(0));
            frame[6..12].copy_from_slice(&mac_octets(1));
        }
        frame
    }

    /// The beginning of what comes out for `frame`, and how long it is.
    fn expected(&self, frame: &[u8]) -> ([u8; 12], usize) {
        let mut addresses: [u8; 12] = std::array::from_fn(|index| frame[index]);
        match self.path {
            Path::PortToPort => {}
            Path::Pvp => addresses.rotate_left(6),
        }
        (addresses, frame.len())
    }

    fn says(&self) -> String {
        self.guests.iter().map(Guest::tail).collect::<Vec<_>>().join("; ")
    }
}

/// Starts a machine on `core`.
fn start(machine: Machine, core: usize) -> Result<Guest> {
    // QEMU inherits the cores of the thread that starts it.
    let start = move || cpu::pin(core).and_then(|()| machine.start());
    thread::scope(|scope| scope.spawn(start).join().expect("no start of QEMU panics"))
}

/// The frames in turn, without end; nothing where there are none. Its thread stays on `core`.
fn source(frames: Vec<Vec<u8>>, core: usize) -> impl Source {
    let (mut next, mut is_pinned) = (0, false);
    move |frame: &mut Vec<u8>| {
        if !is_pinned {
            is_pinned = true;
            cpu::pin(core).expect("the core may be used");
        }
        let Some(flow) = frames.get(next) else { return false };
        frame.extend_from_slice(flow);
        next = (next + 1) % frames.len();
        true
    }
}

/// Counts what has these addresses and this length: guests have words of their own to say.
fn sink((addresses, len): ([u8; 12], usize), seen: Arc<AtomicU64>) -> impl Sink {
    move |_: u16, frame: &[u8]| {
        if frame.len() == len && frame.starts_with(&addresses) {
            seen.store(seen.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

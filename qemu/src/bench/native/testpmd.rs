//! DPDK's testpmd: a frontend that does the same work as ours, and a backend for both.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::{Pid, read, write};
use serde_json::Value;
use tempfile::TempDir;

use super::Work;
use super::run::Setup;
use crate::{emulator, interrupt, process};

/// Memory that each of them has, in MiB, all of it in huge pages.
const MEMORY: usize = 64;
/// Those pages.
pub(super) const HUGE_PAGES: usize = MEMORY / 2;
/// How long it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks whether it has started.
const LOOK: Duration = Duration::from_millis(5);

/// One of DPDK's ways to drive a virtio queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    /// The name in tables.
    pub(super) name: &'static str,
    device: &'static str,
    eal: Option<&'static str>,
}

/// Those that do best, each at something.
pub(super) const FLAGS: [Flags; 5] = [
    Flags { name: "split", device: "packed_vq=0,in_order=0", eal: None },
    Flags { name: "split, in order", device: "packed_vq=0,in_order=1", eal: None },
    Flags { name: "split, vectors", device: "packed_vq=0,in_order=0,vectorized=1", eal: None },
    Flags { name: "packed, in order", device: "packed_vq=1,in_order=1", eal: None },
    Flags {
        name: "packed, in order, AVX-512",
        device: "packed_vq=1,in_order=1,vectorized=1",
        eal: Some("--force-max-simd-bitwidth=512"),
    },
];

/// A testpmd at work; it ends when this is dropped.
pub(super) struct Testpmd {
    child: RefCell<Child>,
    telemetry: OwnedFd,
    folder: TempDir,
    ports: usize,
}

impl Testpmd {
    /// On `core`, before the backends at `sockets`.
    ///
    /// # Errors
    /// When testpmd is missing or does not start.
    pub(super) fn frontend(sockets: &[&Path], core: usize, flags: Flags, setup: Setup) -> Result<Self> {
        let mode = match setup.work {
            Work::Rxdrop | Work::Rxfilter => "rxonly",
            Work::Txonly => "txonly",
            Work::Reflect => "macswap",
            Work::Redirect => "io",
        };
        let device = |(number, socket): (usize, &&Path)| {
            let (socket, ring, flags) = (socket.display(), setup.ring, flags.device);
            let queue = format!("queues=1,queue_size={ring},mrg_rxbuf=0");
            format!("net_virtio_user{number},path={socket},{queue},{flags}")
        };
        let devices: Vec<_> = sockets.iter().enumerate().map(device).collect();
        Testpmd::start(core, flags.eal, &devices, mode, setup)
    }

    /// On `core`, listening at `socket`: what it gives and takes is what the frontend's work needs.
    ///
    /// # Errors
    /// As [`frontend`](Self::frontend).
    pub(super) fn backend(socket: &Path, core: usize, setup: Setup) -> Result<Self> {
        let mode = match setup.work {
            Work::Rxdrop | Work::Rxfilter => "txonly",
            Work::Txonly => "rxonly",
            Work::Reflect => "flowgen",
            Work::Redirect => bail!("DPDK's backend is one card, and redirect takes two"),
        };
        let device = format!("net_vhost0,iface={},queues=1", socket.display());
        let backend = Testpmd::start(core, None, &[device], mode, setup)?;
        backend.wait("it does not listen", || Ok(socket.exists()))?;
        Ok(backend)
    }

    fn start(core: usize, eal: Option<&str>, devices: &[String], mode: &str, setup: Setup) -> Result<Self> {
        let program = emulator::cache()?.join("dpdk/testpmd");
        ensure!(program.is_file(), "no testpmd; {} --peers fetches it", process::SETUP);
        let Setup { ring, batch, length, .. } = setup;
        let folder =
            tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
        let output = File::create(folder.path().join(OUTPUT))?;
        let mut command = Command::new(program);
        command
            .args(["--no-pci", "--in-memory", "--single-file-segments", "-m", &MEMORY.to_string()])
            .arg(format!("--lcores=0@{core},1@{core}"))
            .args(eal)
            .args(devices.iter().map(|device| format!("--vdev={device}")))
            .args([
                "--",
                "--nb-cores=1",
                "--no-lsc-interrupt",
                "--disable-link-check",
                "--total-num-mbufs=8192",
            ])
            .args([format!("--rxd={ring}"), format!("--txd={ring}"), format!("--burst={batch}")])
            .args([format!("--forward-mode={mode}"), format!("--txpkts={length}")])
            // Where it puts its socket (DPDK, "EAL parameters").
            .env("RUNTIME_DIRECTORY", folder.path())
            // It forwards until somebody types a line.
            .stdin(Stdio::piped())
            .stderr(output.try_clone()?)
            .stdout(output);
        let child = process::die_with_parent(&mut command).spawn().context("cannot start testpmd")?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let telemetry = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        let testpmd = Testpmd { child: RefCell::new(child), telemetry, folder, ports: devices.len() };
        testpmd.greet()?;
        Ok(testpmd)
    }

    /// Connects to the socket that answers questions.
    fn greet(&self) -> Result<()> {
        let address = UnixAddr::new(&self.folder.path().join("dpdk/rte/dpdk_telemetry.v2"))?;
        let telemetry = self.telemetry.as_raw_fd();
        self.wait("it does not start", || Ok(connect(telemetry, &address).is_ok()))?;
        setsockopt(&self.telemetry, ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs() as i64))?;
        self.hear().map(drop)
    }

    /// Packets that it has done its work with.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn moved(&self, work: Work) -> Result<u64> {
        let counter = match work {
            Work::Rxdrop | Work::Rxfilter => "ipackets",
            Work::Txonly | Work::Reflect | Work::Redirect => "opackets",
        };
        (0..self.ports).map(|port| self.count(port, counter)).sum()
    }

    fn count(&self, port: usize, counter: &str) -> Result<u64> {
        const STATS: &str = "/ethdev/stats";
        write(&self.telemetry, format!("{STATS},{port}").as_bytes())
            .with_context(|| self.says("it has ended"))?;
        // Before its ports have started, it has nothing to say of them.
        Ok(self.hear()?[STATS][counter].as_u64().unwrap_or(0))
    }

    fn hear(&self) -> Result<Value> {
        let mut answer = [0; 16 << 10];
        let len = read(&self.telemetry, &mut answer).with_context(|| self.says("it does not answer"))?;
        serde_json::from_slice(&answer[..len]).with_context(|| self.says("it does not answer in JSON"))
    }

    /// The CPU time of its process: all but nothing of it is the thread's that forwards.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn clock(&self) -> Result<ClockId> {
        let pid = Pid::from_raw(self.child.borrow().id() as i32);
        clock_getcpuclockid(pid).with_context(|| self.says("it has ended"))
    }

    fn wait(&self, otherwise: &str, mut has_come: impl FnMut() -> Result<bool>) -> Result<()> {
        let begin = Instant::now();
        while !has_come()? {
            ensure!(!interrupt::happened(), "interrupted");
            let has_ended = self.child.borrow_mut().try_wait()?.is_some();
            ensure!(!has_ended && begin.elapsed() < PATIENCE, "{}", self.says(otherwise));
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What is wrong, with its last words.
    fn says(&self, wrong: &str) -> String {
        let words = fs::read_to_string(self.folder.path().join(OUTPUT)).unwrap_or_default();
        let lines: Vec<&str> = words.lines().rev().take(8).collect();
        format!("testpmd: {wrong}: {}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Nothing that it holds outlives it; one that has ended is not there to be killed.
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Where it writes what it has to say.
const OUTPUT: &str = "output";

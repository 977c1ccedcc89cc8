//! The image behind traffic ports: many queues, and an eye on which of them each frame comes out of.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::flows::Source;
use qemu::tally::Tally;
use qemu::vhost::{Drive, TrafficConfig, TrafficPort, Window, flow_queue};
use qemu::{Counts, Flows, Guest, Machine, Reset, Transform};
use tempfile::TempDir;

use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;

/// Fewer than the smallest ring of the image, so that no ring overflows.
const WINDOW: usize = 192;
/// Between two looks at the counts.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn trials() -> Vec<Trial> {
    let reflects = |cores, queues| Setup { ports: 1, cores, queues };
    let forwards = |cores, queues| Setup { ports: 2, cores, queues };
    vec![
        test("traffic::one_queue_reflects", move || exchange(reflects(1, 1))),
        test("traffic::two_cores_and_queues_reflect", move || exchange(reflects(2, 2))),
        test("traffic::four_cores_and_queues_forward", move || exchange(forwards(4, 4))),
        test("traffic::fewer_queues_than_cores", move || exchange(forwards(4, 2))),
        test("traffic::more_queues_than_cores", move || exchange(forwards(2, 8))),
        test("traffic::sixty_four_queues", move || exchange(reflects(8, 64))),
        test("traffic::a_machine_that_is_reset_goes_on", reset),
    ]
}

/// A machine with so many cores, and ports with so many queue pairs each.
#[derive(Clone, Copy)]
struct Setup {
    ports: usize,
    cores: usize,
    queues: u16,
}

/// 1,000 flows cross the image from every port, nothing is lost, changed or out of order, and each frame comes out of
/// the queue of the core that took it in.
fn exchange(setup: Setup) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let lanes: Vec<_> = (0..setup.ports).map(|port| Lane::new(port, setup)).collect();
    let ports: Vec<_> = (0..setup.ports)
        .map(|port| listen(&folder, port, &lanes[port], &lanes[peer(port, setup)], setup))
        .collect::<Result<_>>()?;
    let guest = boot(&ports, setup)?;
    for (index, port) in ports.iter().enumerate() {
        port.wait_running(setup.cores.min(setup.queues.into()), PATIENCE).with_context(|| guest.log())?;
        port.start(lanes[index].source(), lanes[peer(index, setup)].sink());
    }
    for (index, lane) in lanes.iter().enumerate() {
        let counts = lane.wait_for_all(&guest).with_context(|| format!("from port {index}"))?;
        ensure!(counts.fault().is_none(), "from port {index}: {counts:?}");
    }
    let report = guest.stop()?;
    ensure!(report.pool > 0 && report.home == report.pool, "{} of {} home", report.home, report.pool);
    for port in ports {
        let report = port.stop();
        ensure!(report.faults.total() == 0, "{report}");
        let used = report.pairs.iter().filter(|pair| pair.frames_out > 0).count();
        ensure!(used == setup.cores.min(setup.queues.into()), "{used} queues sent: {report:?}");
    }
    Ok(())
}

/// The port at which frames come out that go in at `port`.
fn peer(port: usize, setup: Setup) -> usize {
    if setup.ports == 1 { port } else { port ^ 1 }
}

fn listen(folder: &TempDir, port: usize, into: &Lane, out: &Lane, setup: Setup) -> Result<TrafficPort> {
    let config = TrafficConfig {
        queue_pairs: setup.queues,
        drive: Drive::Event,
        takes: Some(into.window.clone()),
        gives: Some(out.window.clone()),
        ..Default::default()
    };
    TrafficPort::listen(folder.path().join(format!("port{port}")), config)
}

fn boot(ports: &[TrafficPort], setup: Setup) -> Result<Guest> {
    let program = if setup.ports == 1 { "program=reflect" } else { "program=forward" };
    let machine =
        Machine::new(image()?).cpus(setup.cores).memory_mib(256).words("on-panic=exit").words(program);
    let guest = ports.iter().fold(machine, |machine, port| machine.port(port.spec())).start()?;
    guest.wait_ready(PATIENCE)?;
    Ok(guest)
}

/// A reset of the machine amid traffic takes the rings away from under the port, which finds those of the next boot.
fn reset() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let config = TrafficConfig { queue_pairs: 2, ..Default::default() };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let monitor_path = folder.path().join("monitor");
    let guest = Machine::new(image()?)
        .cpus(2)
        .words("program=reflect")
        .on_reset(Reset::Reboots)
        .port(port.spec())
        .extra_args(["-monitor", &format!("unix:{},server=on,wait=off", monitor_path.display())])
        .start()?;
    let mut flows = Flows::new(0, Lane::FLOWS, u64::from(u32::MAX));
    port.start(move |frame: &mut Vec<u8>| flows.next(frame), |_: u16, _: &[u8]| {});
    let reflects_after_boot = |boot| {
        let boots = || guest.lines().iter().filter(|line| line.text.starts_with("sluice ready")).count();
        wait_until(&guest, "the image is ready", || boots() == boot)?;
        let before = port.counts().total().frames_out;
        wait_until(&guest, "frames come out", || port.counts().total().frames_out >= before + 2_000)
    };
    reflects_after_boot(1)?;
    let mut monitor = UnixStream::connect(&monitor_path)?;
    for boot in 2..=3 {
        monitor.write_all(b"system_reset\n")?;
        reflects_after_boot(boot)?;
    }
    let report = port.stop();
    ensure!(report.faults.total() == 0, "{report}");
    Ok(())
}

fn wait_until(guest: &Guest, what: &str, reached: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        ensure!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}\n{}", guest.log());
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// What goes in at one port and comes out of another, or of the same.
#[derive(Clone)]
struct Lane {
    state: Arc<Mutex<State>>,
    window: Window,
    /// Receive queues that the image uses.
    queues: usize,
}

struct State {
    flows: Flows,
    tally: Tally,
    /// Frames that came out of another queue than that of the core that took them in.
    astray: u64,
}

impl Lane {
    const FLOWS: u32 = 1000;
    const FRAMES: u64 = 20_000;

    fn new(port: usize, setup: Setup) -> Self {
        let transform = if setup.ports == 1 { Transform::MacsSwapped } else { Transform::Unchanged };
        let flows = Flows::new(port as u16, Self::FLOWS, Self::FRAMES).expect(transform);
        let state = State { flows, tally: Tally::default(), astray: 0 };
        let queues = setup.cores.min(setup.queues.into());
        Self { state: Arc::new(Mutex::new(state)), window: Window::new(WINDOW), queues }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it counts")
    }

    fn source(&self) -> impl qemu::vhost::Source + use<> {
        let lane = self.clone();
        move |frame: &mut Vec<u8>| {
            let mut state = lane.state();
            let given = state.flows.next(frame);
            if given {
                state.tally.sent();
            }
            given
        }
    }

    fn sink(&self) -> impl qemu::vhost::Sink + use<> {
        let lane = self.clone();
        move |queue: u16, frame: &[u8]| {
            let mut state = lane.state();
            let arrival = state.flows.recognise(frame);
            state.tally.arrived(arrival);
            state.astray += u64::from(flow_queue(frame, lane.queues) != usize::from(queue));
        }
    }

    fn wait_for_all(&self, guest: &Guest) -> Result<Counts> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = self.state();
            let counts = state.tally.counts();
            if counts.received >= Self::FRAMES {
                ensure!(state.astray == 0, "{} frames came out of another core's queue", state.astray);
                return Ok(counts);
            }
            drop(state);
            ensure!(Instant::now() < deadline, "{counts:?}\n{}", guest.log());
            std::thread::sleep(PAUSE);
        }
    }
}

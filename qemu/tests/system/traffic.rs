//! The image behind traffic ports: many queues, and an eye on which of them each frame comes out of.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::flows::Source;
use qemu::tally::Tally;
use qemu::vhost::{Drive, TrafficConfig, TrafficPort, Window, flow_queue};
use qemu::{Counts, Flows, Guest, Machine, Transform};
use tempfile::TempDir;

use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;

/// Fewer than the smallest ring of the image, so that no ring overflows.
const WINDOW: usize = 192;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("traffic::one_queue_reflects", || exchange(Setup { ports: 1, cores: 1, queues: 1 })),
        test("traffic::two_cores_and_queues_reflect", || exchange(Setup { ports: 1, cores: 2, queues: 2 })),
        test("traffic::four_cores_and_queues_forward", || exchange(Setup { ports: 2, cores: 4, queues: 4 })),
        test("traffic::fewer_queues_than_cores", || exchange(Setup { ports: 2, cores: 4, queues: 2 })),
        test("traffic::sixty_four_queues", || exchange(Setup { ports: 1, cores: 8, queues: 64 })),
        test("traffic::more_queues_than_cores", || exchange(Setup { ports: 2, cores: 2, queues: 8 })),
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
        Machine::new(image()?).cpus(setup.cores).memory_mib(128).words("on-panic=exit").words(program);
    let guest = ports.iter().fold(machine, |machine, port| machine.port(port.spec())).start()?;
    guest.wait_ready(PATIENCE)?;
    Ok(guest)
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
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

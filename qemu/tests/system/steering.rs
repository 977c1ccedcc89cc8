//! Flows that the cores spread themselves (`rx=software`): every one of them decides and sends.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forwarder::steer::worker_of;
use libtest_mimic::Trial;
use qemu::vhost::{Steering, TrafficConfig, TrafficPort, Window};
use qemu::{Flows, Machine, Transform};

use crate::checked::Checked;
use crate::frames::{frame_to, noise, reflected};
use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{Rig, check_stopped, wait_until};

/// Frames in the image at a time: fewer than the smallest ring holds.
const WINDOW: usize = 192;

const FLOWS: u32 = 1000;
const FRAMES: u64 = 20_000;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("steering::four_cores_on_one_receive_queue_send_from_four", || {
            one_receive_queue_feeds_all(Setup { cores: 4, pairs: 4 })
        }),
        test("steering::four_cores_on_a_card_with_one_queue_pair", || {
            one_receive_queue_feeds_all(Setup { cores: 4, pairs: 1 })
        }),
        test("steering::seventy_two_cores_on_a_card_with_one_queue_pair", || {
            one_receive_queue_feeds_all(Setup { cores: 72, pairs: 1 })
        }),
        test("steering::a_lone_frame_wakes_the_core_that_is_to_decide", lone_frames_come_back),
    ]
}

#[derive(Clone, Copy)]
struct Setup {
    cores: usize,
    /// Queue pairs of the card, of which the first alone receives.
    pairs: u16,
}

/// 1,000 flows come in by the first receive queue and are reflected by all cores, each from its own transmit queue where
/// there are as many: nothing is lost, changed or out of order, and every core sends what the hash gives it.
fn one_receive_queue_feeds_all(setup: Setup) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let lane = Lane::new(setup);
    let config = TrafficConfig {
        queue_pairs: setup.pairs,
        steering: Steering::FirstQueue,
        takes: Some(lane.window.clone()),
        gives: Some(lane.window.clone()),
        ..Default::default()
    };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let guest = Machine::new(image()?)
        .cpus(setup.cores)
        .memory_mib(256)
        .words("program=reflect rx=software on-panic=exit")
        .port(port.spec())
        .start()?;
    guest.wait_ready(PATIENCE)?;
    port.wait_running(setup.pairs.into(), PATIENCE).with_context(|| guest.log())?;
    port.start(lane.source(), lane.sink());
    let received = || lane.state().checked.counts().received;
    wait_until(&guest, "all frames come back", || received() >= FRAMES)?;

    let report = guest.stop()?;
    check_stopped(&report, 1)?;
    let state = lane.state();
    let counts = state.checked.counts();
    ensure!(counts.fault().is_none() && counts.received == FRAMES, "{counts:?}");
    ensure!(state.astray == 0, "{} frames came out of another core's queue", state.astray);
    for (core, &share) in state.shares.iter().enumerate() {
        let labels = [("core", &*core.to_string())];
        let forwarded = report.metrics.count("sluice_core_forwarded_packets_total", &labels);
        ensure!(forwarded == share && share > 0, "core {core} sent {forwarded} of its {share} frames");
    }
    let report = port.stop();
    ensure!(report.faults.total() == 0, "{report}");
    Ok(())
}

/// Frames of many flows, one at a time, after pauses in which all cores fall asleep.
fn lone_frames_come_back() -> Result<()> {
    const CORES: usize = 4;
    const FRAMES: usize = 200;
    let rig = Rig::boot(1, |machine| machine.words("program=reflect rx=software").cpus(CORES))?;
    for (number, pause) in noise(2).take(FRAMES).enumerate() {
        sleep(Duration::from_micros(10_000 * u64::from(pause) / 255));
        let station = [0x02, 0, 0, 0, 1, pause];
        let frame = frame_to(station, 60 + number, number);
        rig.send(0, &frame)?;
        ensure!(rig.receive(0)? == reflected(&frame), "frame {number} came back changed");
    }
    let report = rig.stop()?;
    for core in 0..CORES {
        let labels = [("core", &*core.to_string())];
        let count = |name| report.metrics.count(name, &labels);
        let (forwarded, wakeups) =
            (count("sluice_core_forwarded_packets_total"), count("sluice_core_wakeups_total"));
        ensure!(forwarded > 0, "core {core} forwarded nothing");
        // The first core owns the receive queue, which has an interrupt.
        ensure!(core == 0 || wakeups > 0, "core {core} was never woken");
    }
    check_stopped(&report, 1)
}

/// What goes in and comes back; clones are the same lane.
#[derive(Clone)]
struct Lane {
    state: Arc<Mutex<State>>,
    window: Window,
    setup: Setup,
}

struct State {
    checked: Checked,
    /// Frames that came back, by the core that had to decide on them.
    shares: Vec<u64>,
    /// Frames that came out of another core's queue.
    astray: u64,
}

impl Lane {
    fn new(setup: Setup) -> Self {
        let flows = Flows::new(0, FLOWS, FRAMES).expect(Transform::MacsSwapped);
        let state = State { checked: Checked::new(flows), shares: vec![0; setup.cores], astray: 0 };
        Self { state: Arc::new(Mutex::new(state)), window: Window::new(WINDOW), setup }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it counts")
    }

    fn source(&self) -> impl qemu::vhost::Source + use<> {
        let lane = self.clone();
        move |frame: &mut Vec<u8>| lane.state().checked.give(frame)
    }

    fn sink(&self) -> impl qemu::vhost::Sink + use<> {
        let lane = self.clone();
        move |queue: u16, frame: &[u8]| {
            let mut state = lane.state();
            state.checked.arrived(frame);
            if let Some(worker) = worker_of(frame, lane.setup.cores) {
                state.shares[worker] += 1;
                state.astray += u64::from(worker % usize::from(lane.setup.pairs) != usize::from(queue));
            }
        }
    }
}

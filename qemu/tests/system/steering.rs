//! Flows that the cores spread themselves (`rx=software`): every one of them decides and sends.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forwarder::steer::RxMode;
use forwarder::txmap::{StackNeed, Wish};
use libtest_mimic::Trial;
use qemu::vhost::{Steering, TrafficConfig, TrafficPort};
use qemu::{Machine, Transform};

use crate::frames::{frame_to, noise, reflected};
use crate::grid::cell::Cell;
use crate::grid::forwarding::check_shares;
use crate::grid::lane::{Lane, Route};
use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{Rig, check_stopped};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("steering::four_cores_on_one_receive_queue_send_from_four", || {
            one_receive_queue_feeds_all(4, 4)
        }),
        test("steering::four_cores_on_a_card_with_one_queue_pair", || one_receive_queue_feeds_all(4, 1)),
        test("steering::seventy_two_cores_on_a_card_with_one_queue_pair", || {
            one_receive_queue_feeds_all(72, 1)
        }),
        test("steering::a_lone_frame_wakes_the_core_that_is_to_decide", lone_frames_come_back),
    ]
}

/// 1,000 flows come in by the first receive queue of a card with so many queue pairs, and are reflected by all cores, each
/// from its own transmit queue where there are as many: nothing is lost, changed or out of order, and every core sends what
/// the hash gives it.
fn one_receive_queue_feeds_all(cores: usize, pairs: u16) -> Result<()> {
    let cell =
        Cell { workers: cores, pairs, stack: StackNeed::Nothing, tx: Wish::Auto, rx: RxMode::Software };
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let [lane] = Lane::several([Route { cell, plan: cell.plan()?, port: 0 }], Transform::MacsSwapped);
    let config = TrafficConfig {
        queue_pairs: pairs,
        steering: Steering::FirstQueue,
        takes: Some(lane.window()),
        gives: Some(lane.window()),
        ..Default::default()
    };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let guest = Machine::new(image()?)
        .cpus(cores)
        .memory_mib(256)
        .words("program=reflect rx=software on-panic=exit")
        .port(port.spec())
        .start()?;
    guest.wait_ready(PATIENCE)?;
    port.wait_running(pairs.into(), PATIENCE).with_context(|| guest.log())?;
    port.start(lane.source(), lane.sink());
    let shares = lane.wait_for_all(&guest)?;

    let report = guest.stop()?;
    check_stopped(&report, 1)?;
    check_shares(&report.metrics, cell, &[shares])?;
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

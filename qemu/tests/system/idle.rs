//! Cores that sleep when there is nothing to do.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::Machine;

use crate::frames::{frame, noise, reflected};
use crate::harness::test;
use crate::rig::{Rig, check_stopped};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("idle::adaptive_with_msix_wakes_for_every_frame", || {
            lone_frames_come_back("idle=adaptive", &[])
        }),
        test("idle::adaptive_without_msix_wakes_for_every_frame", || {
            lone_frames_come_back("idle=adaptive", &["-global", "virtio-net-pci.vectors=0"])
        }),
        test("idle::poll_never_sleeps", a_poller_never_sleeps),
        test("idle::cores_without_a_queue_do_not_work", cores_without_a_queue_do_not_work),
    ]
}

fn boot(words: &str, cores: usize, qemu_arguments: &[&str]) -> Result<Rig> {
    let describe = |machine: Machine| {
        machine.words(format!("program=reflect {words}")).cpus(cores).extra_args(qemu_arguments)
    };
    Rig::boot(1, describe)
}

/// Sends frames one at a time, after pauses from nothing to 20 ms: in the midst of an empty spell, at its end, and
/// long asleep. Each must come back before the next is sent.
fn lone_frames_come_back(words: &str, qemu_arguments: &[&str]) -> Result<()> {
    const FRAMES: usize = 400;
    let rig = boot(words, 1, qemu_arguments)?;
    for (number, pause) in noise(1).take(FRAMES).enumerate() {
        sleep(Duration::from_micros(20_000 * u64::from(pause) / 255));
        let frame = frame(60 + number, number);
        rig.send(0, &frame)?;
        ensure!(rig.receive(0)? == reflected(&frame), "frame {number} came back changed");
    }
    let asleep = asleep(&rig)?;
    ensure!(asleep > 0, "the core never slept");
    check_stopped(&rig.stop()?, 1)
}

fn a_poller_never_sleeps() -> Result<()> {
    let rig = boot("idle=poll", 1, &[])?;
    sleep(Duration::from_millis(50));
    let asleep = asleep(&rig)?;
    ensure!(asleep == 0, "the core slept for {asleep} ticks");
    check_stopped(&rig.stop()?, 1)
}

/// One port with one queue: of four cores three have nothing to do, and do nothing, whatever `idle` says.
fn cores_without_a_queue_do_not_work() -> Result<()> {
    let rig = boot("idle=poll", 4, &[])?;
    let metrics = rig.guest.metrics()?;
    for core in ["1", "2", "3"] {
        let ticks = metrics.count("sluice_core_cycles_total", &[("core", core)]);
        ensure!(ticks == 0, "core {core} worked for {ticks} ticks");
    }
    check_stopped(&rig.stop()?, 1)
}

fn asleep(rig: &Rig) -> Result<u64> {
    Ok(rig.guest.metrics()?.count("sluice_core_cycles_total", &[("state", "asleep")]))
}

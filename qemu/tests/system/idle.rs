//! Cores that have nothing to do.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::harness::test;
use crate::rig::{Rig, check_stopped};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("idle::poll_never_sleeps", a_poller_never_sleeps),
        test("idle::cores_without_a_queue_do_not_work", cores_without_a_queue_do_not_work),
    ]
}

fn boot(words: &str, cores: usize) -> Result<Rig> {
    Rig::boot(1, |machine| machine.words("program=reflect").words(words).cpus(cores))
}

fn a_poller_never_sleeps() -> Result<()> {
    let rig = boot("idle=poll", 1)?;
    sleep(Duration::from_millis(50));
    let asleep = asleep(&rig)?;
    ensure!(asleep == 0, "the core slept for {asleep} ticks");
    check_stopped(&rig.stop()?, 1)
}

/// One port with one queue: of four cores three have nothing to do, and do nothing, whatever `idle` says.
fn cores_without_a_queue_do_not_work() -> Result<()> {
    let rig = boot("idle=poll", 4)?;
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

//! What can be said of costs without measuring time: instructions, counted one by one.

use std::path::Path;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::bench::Way;
use qemu::bench::instructions::Counter;

use crate::harness::{Need, test_with};

const NEEDS: [Need; 2] = [Need::Program("valgrind"), Need::Program("objdump")];

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_with(&NEEDS, "bench::a_dedicated_queue_costs_no_lock", dedicated_is_free_of_locks)]
}

/// A worker with a queue of its own executes no atomic instruction from receiving a burst to sending it: under a lock it is
/// one a burst. The fences are the driver's, either way: one where it gives buffers, one where it sends.
fn dedicated_is_free_of_locks() -> Result<()> {
    let counter = Counter::new(Path::new(env!("CARGO_BIN_EXE_sluice")))?;
    let dedicated = counter.burst(Way::Dedicated, 32)?;
    let locked = counter.burst(Way::Locked, 32)?;
    ensure!(dedicated.atomic == 0.0 && dedicated.fences == 2.0, "a queue of its own: {dedicated:?}");
    ensure!(locked.atomic == 1.0 && locked.fences == 2.0, "under a lock: {locked:?}");
    ensure!(dedicated.instructions < locked.instructions, "{dedicated:?} against {locked:?}");
    ensure!(dedicated.instructions > 32.0, "nobody forwards 32 packets with {dedicated:?}");
    Ok(())
}

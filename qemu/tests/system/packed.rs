//! Packed rings, as QEMU has them on demand; everything else here is done over split ones.

use std::fs;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::Rings;

use crate::accounting::reflects_in_batches;
use crate::harness::test;
use crate::process::run;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("packed::flows_cross_both_ways", flows_cross_both_ways),
        test("packed::positions_wrap_three_times", || {
            reflects_in_batches(200_000, Rings::Packed, "ring=256")
        }),
        test("packed::short_rings", || reflects_in_batches(20_000, Rings::Packed, "ring=64 batch=64")),
        test("packed::no_core_sleeps", || reflects_in_batches(20_000, Rings::Packed, "idle=poll")),
    ]
}

/// 1,000 flows each way, nothing lost, changed or out of order; and the image says that it really took packed rings.
fn flows_cross_both_ways() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let log = log.to_str().expect("a path of ASCII letters");
    run(&[SLUICE, "demo", "--frames", "20000", "--rings", "packed", "--keep-log", log, "--", "log=debug"])?;
    let log = fs::read_to_string(log)?;
    let packed =
        log.lines().filter(|line| line.contains("virtio-net: ") && line.contains("RING_PACKED")).count();
    ensure!(packed == 2, "{packed} of 2 ports have packed rings:\n{log}");
    Ok(())
}

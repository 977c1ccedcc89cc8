//! Benchmarks: what can be said of costs without measuring time, which is instructions, counted one by one; and that time is
//! measured of something.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use qemu::bench::instructions::Counter;
use qemu::bench::{Way, budgets};
use serde_json::Value;

use crate::harness::{Need, test, test_with};
use crate::process::run;

const NEEDS: [Need; 2] = [Need::Program("valgrind"), Need::Program("objdump")];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_with(&NEEDS, "bench::a_dedicated_queue_costs_no_lock", dedicated_is_free_of_locks),
        test("bench::a_machine_that_forwards", measures_a_machine),
        test("bench::every_size_that_is_asked_for", sweeps_sizes),
        test("bench::from_port_to_port", measures_port_to_port),
        test_with(&NEEDS, "bench::every_stage_keeps_to_its_budget", budgets::check),
        test_with(&NEEDS, "bench::more_ports_cost_a_packet_nothing", grows),
    ]
}

/// A worker with a queue of its own executes no atomic instruction from receiving a burst to sending it: under a lock it is
/// one a burst. Neither executes a fence while packets come: the driver needs one where a ring comes to rest.
fn dedicated_is_free_of_locks() -> Result<()> {
    let counter = Counter::new(Path::new(env!("CARGO_BIN_EXE_sluice")))?;
    let dedicated = counter.burst(Way::Dedicated, 32)?;
    let locked = counter.burst(Way::Locked, 32)?;
    ensure!(dedicated.atomic == 0.0 && dedicated.fences == 0.0, "a queue of its own: {dedicated:?}");
    ensure!(locked.atomic == 1.0 && locked.fences == 0.0, "under a lock: {locked:?}");
    ensure!(dedicated.instructions < locked.instructions, "{dedicated:?} against {locked:?}");
    ensure!(dedicated.instructions > 32.0, "nobody forwards 32 packets with {dedicated:?}");
    Ok(())
}

/// `bench growth` finds that a packet costs the same among four ports as among two, but for a look at each.
fn grows() -> Result<()> {
    let report = report(&["growth", "--table", "ports", "--most", "4"])?;
    let rows = report["tables"][0]["rows"].as_array().context("no rows")?;
    let costs: Vec<f64> = rows.iter().filter_map(|row| row["one core"].as_f64()).collect();
    let [two, four] = costs[..] else { bail!("{report}") };
    ensure!(two > 32.0 && four < 1.05 * two, "{report}");
    Ok(())
}

/// `bench native` measures every combination, each once; it fails if frames come out other than they should.
fn sweeps_sizes() -> Result<()> {
    let sizes = ["--length", "60,1514", "--ring", "64,256", "--batch", "8"];
    let fixed = ["native", "--work", "reflect", "--format", "in-order", "--time", "20"];
    let report = report(&[&fixed[..], &sizes].concat())?;
    let rows = report["tables"][0]["rows"].as_array().context("no rows")?;
    let size =
        |row: &Value| ["B", "ring", "batch"].map(|column| row[column].as_f64().unwrap_or_default() as u64);
    let measured: Vec<[u64; 3]> = rows.iter().map(size).collect();
    ensure!(measured == [[60, 64, 8], [60, 256, 8], [1514, 64, 8], [1514, 256, 8]], "{report}");
    Ok(())
}

/// `bench vm` finds something to measure, and says what it was measured on.
fn measures_a_machine() -> Result<()> {
    let report = report(&["vm", "--table", "speed", "--work", "reflect", "--cores", "1"])?;
    let row = &report["tables"][0]["rows"][0];
    ensure!(row["work"] == "reflect" && row["Sluice"]["median"].as_f64() > Some(0.0), "{report}");
    ensure!(
        report["commit"].is_string() && report["machine"].as_str().is_some_and(|text| text.contains("cores"))
    );
    Ok(())
}

/// `bench tables` finds that every frame arrives, of whatever size.
fn measures_port_to_port() -> Result<()> {
    let report = report(&["tables", "--table", "port-to-port", "--sizes", "64,1514"])?;
    for (row, size) in [64.0, 1514.0].into_iter().enumerate() {
        let row = &report["tables"][0]["rows"][row];
        ensure!(row["bytes"] == size && row["kpps"]["median"].as_f64() > Some(0.0), "{report}");
        ensure!(row["lost"] == 0.0, "{report}");
    }
    Ok(())
}

/// Runs `sluice bench` with these arguments; what it wrote for programs.
fn report(arguments: &[&str]) -> Result<Value> {
    let said = run(&[&[env!("CARGO_BIN_EXE_sluice"), "bench"], arguments].concat())?;
    let path = said.lines().find_map(|line| line.strip_prefix("as JSON: ")).context("no JSON")?;
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

//! `sluice bench budgets`: how many instructions each stage of a packet's walk may cost, and does.
//!
//! Counted in the optimised command, one worker, reflect, 64 B, bursts of 32, split rings, on the null card.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};

use super::instructions::{Counter, Stage};
use super::sheet::{self, Entry, Sheet};
use crate::{artefact, process};

/// Packets in a burst.
const BATCH: usize = 32;
/// How far a stage may be above its budget, in percent: compilers differ by that much.
const TOLERANCE: f64 = 3.0;

/// Options of `sluice bench budgets`.
#[derive(Debug, Args)]
pub struct BudgetOptions {
    /// Makes what is counted the budget.
    #[arg(long)]
    pub set: bool,
}

/// One stage.
struct Reading {
    stage: Stage,
    /// Instructions a packet, and those that are allowed.
    counted: f64,
    budget: f64,
}

impl Reading {
    /// By how much the stage is above its budget, in percent.
    fn excess(&self) -> f64 {
        100.0 * (self.counted / self.budget - 1.0)
    }
}

/// Shows the table, or sets the budgets.
///
/// # Errors
/// When valgrind is missing or there is no budget.
pub(super) fn bench(options: &BudgetOptions) -> Result<()> {
    if options.set {
        return write(count()?);
    }
    let mut table = Sheet::new(
        "Instructions a packet: reflect, 64 B, batch 32, null card",
        ["stage", "counted", "budget", "above, %"],
    );
    for reading in read()? {
        table.row([
            Entry::text(reading.stage.name()),
            Entry::Number(reading.counted, 1),
            Entry::Number(reading.budget, 1),
            Entry::Number(reading.excess(), 1),
        ]);
    }
    sheet::publish("budgets", &[table])
}

/// Sees that every stage keeps to its budget.
///
/// # Errors
/// When one does not, by its name; and as [`bench`].
pub fn check() -> Result<()> {
    for reading in read()? {
        let (stage, Reading { counted, budget, .. }) = (reading.stage.name(), &reading);
        ensure!(*counted > 1.0, "{stage}: nobody does that with {counted:.1} instructions a packet");
        ensure!(
            reading.excess() <= TOLERANCE,
            "{stage}: {counted:.1} instructions a packet, {budget:.1} are allowed (`sluice bench budgets --set`, if \
             that is worth it)"
        );
    }
    Ok(())
}

fn read() -> Result<Vec<Reading>> {
    let text = fs::read_to_string(file()).with_context(|| format!("cannot read {}", file().display()))?;
    let budgets: Map<String, Value> = serde_json::from_str(&text).context("the budgets are no JSON")?;
    let reading = |(stage, counted): (Stage, f64)| {
        let budget = budgets.get(stage.name()).and_then(Value::as_f64);
        let budget = budget.with_context(|| format!("there is no budget for {}", stage.name()))?;
        Ok(Reading { stage, counted, budget })
    };
    Stage::ALL.into_iter().zip(count()?).map(reading).collect()
}

fn write(counted: [f64; Stage::ALL.len()]) -> Result<()> {
    let rounded = |count: f64| json!((count * 10.0).round() / 10.0);
    let budgets = Stage::ALL.iter().zip(counted).map(|(stage, count)| (stage.name().into(), rounded(count)));
    let budgets = Value::Object(budgets.collect());
    fs::write(file(), format!("{budgets:#}\n")).with_context(|| format!("cannot write {}", file().display()))
}

/// Instructions a packet of each stage.
fn count() -> Result<[f64; Stage::ALL.len()]> {
    let binary = optimised()?;
    let burst = Counter::new(&binary)?.stages(BATCH)?;
    Ok(burst.map(|instructions| instructions / BATCH as f64))
}

/// The optimised command, built.
fn optimised() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--release", "--bin", "sluice", "--manifest-path"]).arg(manifest);
    process::run(&mut build, "cargo")?;
    Ok(artefact::output_directory()?.with_file_name("release").join("sluice"))
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("budgets.json")
}

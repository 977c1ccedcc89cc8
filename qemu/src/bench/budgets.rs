//! `sluice bench budgets`: what each stage of a packet's walk may cost, and does, in instructions, reads and writes of memory,
//! and misses of a simulated cache.
//!
//! Counted in the optimised command, one worker, reflect, 64 B, bursts of 32, split rings, on the null card.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::instructions::{Cost, Counter, Stage};
use super::sheet::{self, Entry, Sheet};
use crate::{artefact, process};

/// Packets in a burst.
const BATCH: usize = 32;
/// Options of `sluice bench budgets`.
#[derive(Debug, Args)]
pub struct BudgetOptions {
    /// Makes what is counted the budget.
    #[arg(long)]
    pub set: bool,
}

/// One cost of one stage.
struct Reading {
    stage: Stage,
    cost: Cost,
    /// For each packet, and what is allowed.
    counted: f64,
    budget: f64,
}

impl Reading {
    /// By how much the stage is above its budget, in percent.
    fn excess(&self) -> f64 {
        100.0 * (self.counted - self.budget) / self.budget.max(0.01)
    }

    /// How far the stage may be above its budget: compilers differ by so much, and so do builds of one compiler in which
    /// words they keep on the stack. Where the stack happens to lie, which even the environment's length moves, makes a tenth
    /// of a miss or two; a line more that a packet touches makes a whole one.
    fn leeway(&self) -> f64 {
        match self.cost {
            Cost::Instructions => 0.03 * self.budget,
            Cost::References => 0.1 * self.budget,
            Cost::Misses => 0.3,
        }
    }

    /// Sees that the stage does something, and keeps to its budget.
    fn check(&self) -> Result<()> {
        let Reading { counted, budget, .. } = *self;
        let (stage, cost) = (self.stage.name(), self.cost.name());
        let least = if self.cost == Cost::Misses { 0.0 } else { 1.0 };
        ensure!(counted >= least, "{stage}: nobody does that with {counted:.1} {cost} a packet");
        ensure!(
            counted <= budget + self.leeway(),
            "{stage}: {counted:.2} {cost} a packet, {budget:.2} are allowed (`sluice bench budgets --set`, if that is \
             worth it)"
        );
        Ok(())
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
        "A packet's cost: reflect, 64 B, batch 32, null card; misses of a cache of 32 KB",
        ["stage", "cost", "counted", "budget", "above, %"],
    );
    for reading in read()? {
        table.row([
            Entry::text(reading.stage.name()),
            Entry::text(reading.cost.name()),
            Entry::Number(reading.counted, 2),
            Entry::Number(reading.budget, 2),
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
    read()?.iter().try_for_each(Reading::check)
}

fn read() -> Result<Vec<Reading>> {
    let text = fs::read_to_string(file()).with_context(|| format!("cannot read {}", file().display()))?;
    let budgets: Value = serde_json::from_str(&text).context("the budgets are no JSON")?;
    let mut readings = Vec::new();
    for (stage, costs) in Stage::ALL.into_iter().zip(count()?) {
        for (cost, counted) in Cost::ALL.into_iter().zip(costs) {
            let budget = budgets[stage.name()][cost.name()].as_f64();
            let budget =
                budget.with_context(|| format!("{}: there is no budget of {}", stage.name(), cost.name()))?;
            readings.push(Reading { stage, cost, counted, budget });
        }
    }
    Ok(readings)
}

fn write(counted: Costs) -> Result<()> {
    let rounded = |count: f64| json!((count * 100.0).round() / 100.0);
    let stage = |(stage, costs): (&Stage, [f64; Cost::ALL.len()])| {
        let costs = Cost::ALL.iter().zip(costs).map(|(cost, count)| (cost.name().into(), rounded(count)));
        (stage.name().into(), Value::Object(costs.collect()))
    };
    let budgets = Value::Object(Stage::ALL.iter().zip(counted).map(stage).collect());
    fs::write(file(), format!("{budgets:#}\n")).with_context(|| format!("cannot write {}", file().display()))
}

/// The costs of each stage.
type Costs = [[f64; Cost::ALL.len()]; Stage::ALL.len()];

/// What a packet costs each stage.
fn count() -> Result<Costs> {
    let binary = optimised()?;
    let burst = Counter::new(&binary)?.stages(BATCH)?;
    Ok(burst.map(|costs| costs.map(|count| count / BATCH as f64)))
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

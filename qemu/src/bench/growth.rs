//! `sluice bench growth`: what a packet costs when there is more of everything.
//!
//! Counted in instructions, without the null cards': so it can be told for more cores and ports than a machine has, and to
//! the instruction. Several workers have their rounds in turn, on one core.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use forwarder::steer::RxMode;

use super::instructions::Counter;
use super::sheet::{Entry, Sheet};
use super::walk::{Setup, Way};

/// Options of `sluice bench growth`.
#[derive(Debug, Args)]
pub struct GrowthOptions {
    /// Only what grows there; may be given again.
    #[arg(long = "table", value_enum)]
    pub tables: Vec<Growing>,
    /// Only up to so much of it.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    pub most: usize,
}

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Growing {
    /// Flows at a port.
    Flows,
    /// Ports, which forward to each other.
    Ports,
    /// Cores.
    Cores,
    /// Descriptors in a ring.
    Ring,
}

/// The tables.
///
/// # Errors
/// When valgrind is missing.
pub(super) fn count(options: &GrowthOptions) -> Result<Vec<Sheet>> {
    let binary = std::env::current_exe().context("nobody knows which program this is")?;
    let counter = Counter::new(&binary)?;
    let chosen = if options.tables.is_empty() { Growing::value_variants() } else { &options.tables };
    let chosen: BTreeSet<Growing> = chosen.iter().copied().collect();
    chosen.into_iter().map(|growing| table(growing, options.most, &counter)).collect()
}

fn table(growing: Growing, most: usize, counter: &Counter<'_>) -> Result<Sheet> {
    let one = Setup::default();
    // One receive queue feeds as many cores as an image with `rx=software` may well have.
    let spread = Setup { workers: 8, rx: RxMode::Software, ..one };
    let (what, columns, sizes): (_, _, &[usize]) = match growing {
        Growing::Flows => {
            let columns = vec!["flows", "one core", "rx=software, 8 cores"];
            ("reflect, by flows", columns, &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000])
        }
        Growing::Ports => ("forward, by ports", vec!["ports", "one core"], &[2, 4, 8, 16]),
        Growing::Cores => {
            let columns =
                vec!["cores", "queues of their own", "one TX queue for all", "rx=software, one RX queue"];
            ("reflect, by cores", columns, &[1, 2, 4, 8, 16, 32, 64, 72])
        }
        Growing::Ring => {
            ("reflect, by ring", vec!["ring", "one core"], &[64, 128, 256, 512, 1024, 2048, 4096])
        }
    };
    let mut sheet = Sheet::new(format!("Instructions a packet, 64 B, batch 32: {what}"), columns);
    for &size in sizes.iter().take_while(|&&size| size <= most) {
        let setups = match growing {
            Growing::Flows => [one, spread].map(|setup| Setup { flows: size as u32, ..setup }).to_vec(),
            Growing::Ports => vec![Setup { ports: size, ..one }],
            Growing::Cores => {
                [one, Setup { way: Way::Shared, ..one }, Setup { rx: RxMode::Software, flows: 1000, ..one }]
                    .map(|setup| Setup { workers: size, ..setup })
                    .to_vec()
            }
            Growing::Ring => vec![Setup { ring: size, ..one }],
        };
        let mut row = vec![Entry::Number(size as f64, 0)];
        for setup in setups {
            row.push(Entry::Number(counter.packet(setup)?, 1));
        }
        sheet.row(row);
    }
    Ok(sheet)
}

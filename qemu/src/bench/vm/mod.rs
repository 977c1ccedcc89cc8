//! `bench vm`: a machine in QEMU that forwards between traffic ports of this process. Sluice, and beside it a Linux guest whose
//! XDP programs do the same work; both before the same generator, in turn.

mod contestant;
mod run;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

pub(super) use self::contestant::{Contestant, Work};
pub(super) use self::run::Run;
use super::measure::Spread;
use super::sheet::{Entry, Sheet};
use crate::interrupt;

/// Boots of each contestant whose time is taken.
const BOOTS: usize = 7;
/// Memory of a machine where it isn't what is asked for, in MiB.
const AMPLE: usize = 256;
/// Where the least memory is looked for, in MiB: below the first none is tried.
const LEAST: usize = 16;

/// Options of `sluice bench vm`.
#[derive(Debug, Args)]
pub struct VmOptions {
    /// Also measure a Linux guest with XDP, in turn; scripts/setup.sh --peers makes it.
    #[arg(long)]
    pub peers: bool,
    /// Only this table; may be given again.
    #[arg(long = "table", value_enum)]
    pub tables: Vec<Table>,
    /// Only this work; may be given again.
    #[arg(long = "work", value_enum)]
    pub works: Vec<Work>,
    /// With so many virtual cores; may be given again [default: 1 and 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cores: Vec<u16>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Table {
    /// Packets a second.
    Speed,
    /// Time from the start of QEMU to the first frame, and the size of what boots.
    Start,
    /// The least memory that forwards.
    Memory,
}

/// The tables that are asked for.
///
/// # Errors
/// When something that is needed is missing, or does not forward.
pub(super) fn measure(options: &VmOptions) -> Result<Vec<Sheet>> {
    let mut contestants = vec![Contestant::sluice()?];
    if options.peers {
        contestants.push(Contestant::linux()?);
    }
    let tables = all_or(&options.tables, &[Table::Speed, Table::Start, Table::Memory]);
    let sheet = |table| match table {
        Table::Speed => speed(&contestants, options),
        Table::Start => start(&contestants),
        Table::Memory => memory(&contestants),
    };
    tables.into_iter().map(sheet).collect()
}

/// Those that were chosen; all where none were.
fn all_or<T: Copy + Ord>(chosen: &[T], all: &[T]) -> BTreeSet<T> {
    if chosen.is_empty() { all } else { chosen }.iter().copied().collect()
}

fn speed(contestants: &[Contestant], options: &VmOptions) -> Result<Sheet> {
    let works = all_or(&options.works, &[Work::Reflect, Work::Forward, Work::Drop]);
    let cores = all_or(&options.cores, &[1, 2]);
    let mut columns = vec!["work", "cores"];
    columns.extend(contestants.iter().map(Contestant::name));
    if contestants.len() > 1 {
        columns.push("times");
    }
    let title = "In QEMU (TCG) over vhost-user, 1,000 flows, 64 B: frames forwarded, or dropped, in kpps";
    let mut sheet = Sheet::new(title, columns);
    for work in works {
        for &cores in &cores {
            let mut row = vec![Entry::text(work.name()), Entry::Number(cores.into(), 0)];
            let rate = |contestant| {
                let run = Run::start(contestant, work, cores.into(), AMPLE)?;
                run.rate().with_context(|| format!("{}, {}, {cores} cores", contestant.name(), work.name()))
            };
            let rates = contestants.iter().map(rate).collect::<Result<Vec<Spread>>>()?;
            row.extend(rates.iter().map(|&rate| Entry::Spread(rate, 0)));
            if let [ours, theirs] = rates[..] {
                row.push(Entry::Number(ours.median / theirs.median, 1));
            }
            sheet.row(row);
        }
    }
    Ok(sheet)
}

fn start(contestants: &[Contestant]) -> Result<Sheet> {
    let title = "Reflect, 1 core: from the start of QEMU to the first frame that came back";
    let mut sheet = Sheet::new(title, ["system", "seconds", "of which the image", "loaded, KB"]);
    let mut times = vec![(Vec::new(), Vec::new()); contestants.len()];
    for _ in 0..BOOTS {
        for (contestant, (first, own)) in contestants.iter().zip(&mut times) {
            let run = Run::start(contestant, Work::Reflect, 1, AMPLE)?;
            first.push(run.until_first()?.with_context(|| run.says("it ended before a frame came back"))?);
            own.extend(run.boot_time());
        }
    }
    for (contestant, (first, own)) in contestants.iter().zip(times) {
        sheet.row([
            Entry::text(contestant.name()),
            Entry::Spread(Spread::of(first), 3),
            Entry::Spread(Spread::of(own), 3),
            Entry::Number(contestant.size()? as f64 / 1000.0, 0),
        ]);
    }
    Ok(sheet)
}

fn memory(contestants: &[Contestant]) -> Result<Sheet> {
    let mut sheet = Sheet::new("Reflect, 1 core: the least memory that forwards", ["system", "MiB"]);
    for contestant in contestants {
        let forwards = |memory| -> Result<bool> {
            ensure!(!interrupt::happened(), "interrupted");
            Ok(Run::start(contestant, Work::Reflect, 1, memory)?.until_first()?.is_some())
        };
        ensure!(forwards(AMPLE)?, "{} does not forward with {AMPLE} MiB", contestant.name());
        sheet.row([Entry::text(contestant.name()), Entry::Number(least(LEAST, AMPLE, forwards)? as f64, 0)]);
    }
    Ok(sheet)
}

/// The least number above `below` that is `enough`, as `most` is: by halving what lies between.
fn least(below: usize, most: usize, enough: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let (mut below, mut most) = (below, most);
    while most - below > 1 {
        let middle = below.midpoint(most);
        if enough(middle)? { most = middle } else { below = middle }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_wherever_it_is() {
        for wanted in 17..=256 {
            assert_eq!(least(16, 256, |number| Ok(number >= wanted)).unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_not_chosen_is_all() {
        assert_eq!(all_or(&[], &[1, 2]), BTreeSet::from([1, 2]));
        assert_eq!(all_or(&[2, 2], &[1, 2]), BTreeSet::from([2]));
    }
}

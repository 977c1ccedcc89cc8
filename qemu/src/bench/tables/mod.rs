//! `bench tables`: the tables that stand in the patch threads of Linux's drivers and of Open vSwitch, with Sluice in the place of
//! what they measured.

mod batching;
mod chain;
mod doorbells;

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::chain::{Chain, Outcome, Path};
use super::guest::FLOWS;
use super::sheet::{Entry, Sheet};
use super::vm::Contestant;

/// The sizes of Open vSwitch's tables, in bytes without CRC.
const SIZES: [usize; 7] = [64, 128, 256, 512, 768, 1024, 1514];

/// Options of `sluice bench tables`.
#[derive(Debug, Args)]
pub struct TablesOptions {
    /// Also measure what takes a Linux guest, and that guest in the place of Sluice; scripts/setup.sh --peers makes it.
    #[arg(long)]
    pub peers: bool,
    /// Only this table; may be given again.
    #[arg(long = "table", value_enum)]
    pub tables: Vec<Table>,
    /// Frames of these sizes only, in bytes without CRC, 64 to 1514.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(64..=1514))]
    pub sizes: Vec<u16>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// What each measure of batching is worth to the driver of Intel's cards.
    Batching,
    /// What it is worth to ring doorbells only where a device asks for that.
    Doorbells,
    /// In at one port, out at the other, by size.
    PortToPort,
    /// From the wire to a Linux guest that sends it back, and to the wire again, by size.
    Pvp,
}

/// The tables that are asked for.
///
/// # Errors
/// When something that is needed is missing, or does not forward.
pub(super) fn measure(options: &TablesOptions) -> Result<Vec<Sheet>> {
    let is_wanted = |table| options.tables.is_empty() || options.tables.contains(&table);
    let mut sheets = Vec::new();
    if is_wanted(Table::Batching) {
        sheets.push(batching::table()?);
    }
    if is_wanted(Table::Doorbells) {
        sheets.push(doorbells::table(&Contestant::sluice()?)?);
    }
    if is_wanted(Table::PortToPort) {
        sheets.push(by_size("Port to port", Path::PortToPort, options)?);
    }
    if is_wanted(Table::Pvp) && options.peers {
        let title = "PVP: to port 0, from port 1 to a Linux guest that reflects by XDP, and all the way back";
        sheets.push(by_size(title, Path::Pvp, options)?);
    } else if is_wanted(Table::Pvp) {
        eprintln!("LEFT OUT: PVP, which takes a Linux guest; give --peers");
    }
    Ok(sheets)
}

/// A row for each size of frames, with Linux in the place of Sluice beside it where that is asked for.
fn by_size(way: &str, path: Path, options: &TablesOptions) -> Result<Sheet> {
    let mut forwarders = vec![Contestant::sluice()?];
    let mut columns = vec!["bytes", "kpps", "Gb/s", "lost"];
    if options.peers {
        forwarders.push(Contestant::linux()?);
        columns.extend(["Linux, kpps", "Linux, Gb/s", "Linux, lost", "times"]);
    }
    let chosen: Vec<usize> = options.sizes.iter().map(|&size| size.into()).collect();
    let sizes = if chosen.is_empty() { &SIZES[..] } else { &chosen };
    let measure = |forwarder| -> Result<Vec<Outcome>> {
        let chain = Chain::start(path, forwarder)?;
        sizes.iter().map(|&size| chain.measure(size)).collect()
    };
    let outcomes = forwarders.iter().map(measure).collect::<Result<Vec<_>>>()?;

    let title = format!("{way}: in QEMU (TCG), one core, {FLOWS} flows, frames going one way");
    let mut sheet = Sheet::new(title, columns);
    for (index, &size) in sizes.iter().enumerate() {
        let mut row = vec![Entry::Number(size as f64, 0)];
        for &Outcome { kpps, lost } in outcomes.iter().map(|outcomes| &outcomes[index]) {
            let gigabits = kpps.median * 8.0 * size as f64 / 1e6;
            row.extend([Entry::Spread(kpps, 0), Entry::Number(gigabits, 2), Entry::Number(lost as f64, 0)]);
        }
        if let [ours, theirs] = &outcomes[..] {
            row.push(Entry::Number(ours[index].kpps.median / theirs[index].kpps.median, 1));
        }
        sheet.row(row);
    }
    Ok(sheet)
}

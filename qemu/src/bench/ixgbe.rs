//! `sluice bench ixgbe`: the driver of Intel's cards and a worker, as shipped, on one core, before an 82599 in shared memory
//! that another core works.

pub(super) mod card;
mod floor;
mod lane;
pub(super) mod platform;

use anyhow::{Context, Result};
use clap::Args;

use self::card::FRAME_LEN;
use self::floor::Bare;
pub(super) use self::lane::TOGGLES;
use self::lane::{Measured, Setup};
use super::instructions::Counter;
use super::measure::{Spread, Window};
use super::sheet::{Entry, Sheet};

/// How often each set-up is measured: where memory happens to lie differs from one time to the next.
const TURNS: usize = 7;
/// Bursts of a worker that has the card on its own core, where it is timed.
const LONE_BURSTS: u64 = 10_000;

/// Options of `sluice bench ixgbe`.
#[derive(Debug, Args)]
pub struct IxgbeOptions {
    /// Packets in a burst, in the table by bursts.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    pub batches: Vec<usize>,
    /// Descriptors in a ring, in that table: a power of two, 64 to 4096.
    #[arg(long, default_value_t = 512)]
    pub ring: usize,
    /// Descriptors in a ring, in the table by rings.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024, 2048, 4096])]
    pub rings: Vec<usize>,
    /// Packets in a burst, in that table: 1 to 64.
    #[arg(long, default_value_t = 32)]
    pub batch: usize,
}

/// Options of `sluice bench walk-ixgbe`.
#[derive(Debug, Args)]
pub struct WalkIxgbeOptions {
    /// Descriptors in a ring: a power of two, 64 to 4096.
    #[arg(long)]
    pub ring: usize,
    /// Packets in a burst.
    #[arg(long)]
    pub batch: usize,
    /// Bursts.
    #[arg(long)]
    pub bursts: u64,
}

/// One worker for so many bursts, with the card on the same thread.
///
/// # Errors
/// When something can't run here.
pub(super) fn walk(options: &WalkIxgbeOptions) -> Result<()> {
    let WalkIxgbeOptions { ring, batch, bursts } = *options;
    lane::walk(Setup { ring, batch }, bursts).map(drop)
}

/// The tables.
///
/// # Errors
/// When something can't run here.
pub(super) fn measure(options: &IxgbeOptions) -> Result<Vec<Sheet>> {
    let IxgbeOptions { batches, ring, rings, batch } = options;
    let by_batch = batches.iter().map(|&batch| (batch, Setup { ring: *ring, batch }));
    let by_ring = rings.iter().map(|&ring| (ring, Setup { ring, batch: *batch }));
    Ok(vec![
        table(format!("ring {ring}"), "batch", by_batch)?,
        table(format!("batch {batch}"), "ring", by_ring)?,
        floor(*batch)?,
    ])
}

/// What a bare loop needs in a driver's place.
fn floor(batch: usize) -> Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("a bare loop before the same card, {FRAME_LEN} B, batch {batch}"),
        [
            "ring",
            "buffers more",
            "cycles of other work",
            "frames waiting",
            "cycles a packet",
            "card busy, %",
            "windows",
        ],
    );
    for (ring, spare, work) in [
        (256, 64, 0),
        (512, 64, 0),
        (512, 256, 0),
        (512, 512, 0),
        (512, 512, 8),
        (512, 512, 16),
        (1024, 1024, 0),
    ] {
        let mut waiting = Vec::new();
        let (windows, busy) = turns(|| {
            let (measured, frames) = floor::measure(Bare { setup: Setup { ring, batch }, spare, work })?;
            waiting.push(frames);
            Ok(measured)
        })?;
        sheet.row([
            Entry::Number(ring as f64, 0),
            Entry::Number(spare as f64, 0),
            Entry::Number(work as f64, 0),
            Entry::Spread(Spread::of(waiting), 0),
            Entry::Spread(Spread::of(windows.iter().map(Window::cycles)), 1),
            Entry::Spread(busy, 0),
            Entry::Number(windows.len() as f64, 0),
        ]);
    }
    Ok(sheet)
}

/// The windows of several turns, and how busy the card was in each, in percent.
fn turns(mut measure: impl FnMut() -> Result<Measured>) -> Result<(Vec<Window>, Spread)> {
    let (mut windows, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let measured = measure()?;
        busy.extend(measured.card_busy().map(|share| 100.0 * share));
        windows.extend(measured.windows);
    }
    Ok((windows, Spread::of(busy)))
}

/// A row for each set-up, which `column` names.
fn table(fixed: String, column: &'static str, setups: impl Iterator<Item = (usize, Setup)>) -> Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("82599 in shared memory, one core, reflect, {FRAME_LEN} B, {fixed}"),
        [
            column,
            "Mpps",
            "cycles a packet",
            "card busy, %",
            "cycles in one cache",
            "instructions a packet",
            "windows",
        ],
    );
    let binary = std::env::current_exe().context("nobody knows which program this is")?;
    let counter = Counter::new(&binary)?;
    for (label, setup) in setups {
        sheet.row(row(label, setup, &counter)?);
    }
    Ok(sheet)
}

fn row(label: usize, setup: Setup, counter: &Counter<'_>) -> Result<Vec<Entry>> {
    let instructions = counter.ixgbe_burst(setup.ring, setup.batch)?.instructions;
    let mut lone = Vec::new();
    let (windows, busy) = turns(|| {
        lone.push(lane::walk(setup, LONE_BURSTS)?);
        lane::measure(setup)
    })?;
    Ok(vec![
        Entry::Number(label as f64, 0),
        Entry::Spread(Spread::of(windows.iter().map(Window::mpps)), 2),
        Entry::Spread(Spread::of(windows.iter().map(Window::cycles)), 1),
        Entry::Spread(busy, 0),
        Entry::Spread(Spread::of(lone), 1),
        Entry::Number(instructions / setup.batch as f64, 1),
        Entry::Number(windows.len() as f64, 0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_reflected_and_every_buffer_comes_home() {
        for (ring, batch) in [(64, 1), (512, 32), (4096, 64)] {
            lane::walk(Setup { ring, batch }, 1000).unwrap();
        }
    }

    #[test]
    fn a_card_on_another_core_gets_every_frame_reflected() {
        lane::measure(Setup { ring: 512, batch: 32 }).unwrap();
    }

    #[test]
    fn a_bare_loop_swaps_the_addresses_of_every_frame() {
        floor::measure(Bare { setup: Setup { ring: 256, batch: 32 }, spare: 64, work: 0 }).unwrap();
    }
}

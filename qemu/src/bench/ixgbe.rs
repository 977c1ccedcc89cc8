//! `sluice bench ixgbe`: the driver of Intel's cards and a worker, as shipped, on one core, before an 82599 in shared memory
//! that another core works.

mod card;
mod lane;
mod platform;

use anyhow::Result;
use clap::Args;

use self::card::FRAME_LEN;
use self::lane::Setup;
use super::measure::{Spread, Window};
use super::sheet::{Entry, Sheet};

/// Packets in a burst.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The burst of the image's default.
const BATCH: usize = 32;
/// Lengths of rings.
const RINGS: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
/// How often each set-up is measured: where memory happens to lie differs from one time to the next.
const TURNS: usize = 7;

/// Options of `sluice bench ixgbe`.
#[derive(Debug, Args)]
pub struct IxgbeOptions {
    /// Descriptors in the rings of the table by bursts: a power of two, 64 to 4096.
    #[arg(long, default_value_t = 512)]
    pub ring: usize,
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
    lane::walk(Setup { ring, batch }, bursts)
}

/// The tables.
///
/// # Errors
/// When something can't run here.
pub(super) fn measure(options: &IxgbeOptions) -> Result<Vec<Sheet>> {
    Ok(vec![by_batch(options.ring)?, by_ring()?])
}

fn by_batch(ring: usize) -> Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("82599 in shared memory, reflect, {FRAME_LEN} B, ring {ring}"),
        ["batch", "Mpps", "cycles a packet", "windows"],
    );
    for batch in BATCHES {
        sheet.row(row(batch, Setup { ring, batch })?);
    }
    Ok(sheet)
}

fn by_ring() -> Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("82599 in shared memory, reflect, {FRAME_LEN} B, batch {BATCH}"),
        ["ring", "Mpps", "cycles a packet", "windows"],
    );
    for ring in RINGS {
        sheet.row(row(ring, Setup { ring, batch: BATCH })?);
    }
    Ok(sheet)
}

fn row(label: usize, setup: Setup) -> Result<Vec<Entry>> {
    let mut windows = Vec::new();
    for _ in 0..TURNS {
        windows.extend(lane::measure(setup)?);
    }
    Ok(vec![
        Entry::Number(label as f64, 0),
        Entry::Spread(Spread::of(windows.iter().map(Window::mpps)), 2),
        Entry::Spread(Spread::of(windows.iter().map(Window::cycles)), 1),
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
}

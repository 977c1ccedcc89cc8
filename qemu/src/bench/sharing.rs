//! `sluice bench sharing`: what it costs that cores share a TX queue.

use anyhow::Result;

use super::measure::{Spread, Window};
use super::sheet::{Entry, Sheet};
use super::walk::{self, Setup, Way};
use super::{guest, instructions};
use crate::Artefact;

/// Packets in a burst.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// How often two ways are measured that differ by little.
const TURNS: usize = 15;

/// Everything that there is to say; the tables.
///
/// # Errors
/// When something can't run here.
pub(super) fn measure() -> Result<Vec<Sheet>> {
    let image = Artefact::build()?;
    Ok(vec![instructions::table()?, alone()?, together()?, guest::table(&image)?])
}

/// One worker: what the lock costs that nobody else wants.
fn alone() -> Result<Sheet> {
    let mut sheet = Sheet::new(
        "One worker, reflect, 64 B, ring 256: cycles a packet with the null card's own",
        ["batch", "dedicated", "under a lock", "more, %", "more, a burst"],
    );
    for batch in BATCHES {
        let (dedicated, locked) = in_turn(batch)?;
        let more = locked.median - dedicated.median;
        sheet.row([
            Entry::Number(batch as f64, 0),
            Entry::Spread(dedicated, 1),
            Entry::Spread(locked, 1),
            Entry::Number(100.0 * more / dedicated.median, 1),
            Entry::Number(more * batch as f64, 0),
        ]);
    }
    Ok(sheet)
}

/// The cycles of both ways, measured in turn, so that what else the machine does, and where memory happens to lie, meets
/// both.
fn in_turn(batch: usize) -> Result<(Spread, Spread)> {
    let (mut dedicated, mut locked) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        for (way, cycles) in [(Way::Dedicated, &mut dedicated), (Way::Locked, &mut locked)] {
            let threads = walk::measure(Setup { way, batch, ..Setup::default() })?;
            cycles.push(Spread::of(threads[0].iter().map(Window::cycles)).median);
        }
    }
    Ok((Spread::of(dedicated), Spread::of(locked)))
}

/// Two workers on two cores: with queues of their own, and with one for both.
fn together() -> Result<Sheet> {
    let mut sheet = Sheet::new(
        "Two workers on two cores, reflect, 64 B: Mpps a worker",
        ["batch", "dedicated", "a lock each", "one queue for both"],
    );
    for batch in BATCHES {
        let mut row = vec![Entry::Number(batch as f64, 0)];
        for way in [Way::Dedicated, Way::Locked, Way::Shared] {
            let threads = walk::measure(Setup { workers: 2, way, batch, ..Setup::default() })?;
            row.push(Entry::Spread(Spread::of(threads.iter().flatten().map(Window::mpps)), 2));
        }
        sheet.row(row);
    }
    Ok(sheet)
}

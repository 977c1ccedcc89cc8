//! `sluice bench native`: the driver and the worker as shipped, in this process, before a vhost-user backend that polls on
//! another core.

mod backend;
mod frames;
mod frontend;
mod memory;
mod run;
mod serve;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use netdrv::virtio::Features;

use self::frames::SHORTEST;
use self::memory::Arena;
use self::run::Setup;
pub(super) use self::serve::serve;
use super::measure::{Spread, Window};
use super::sheet::{Entry, Sheet};

/// Options of `sluice bench native`.
#[derive(Debug, Args)]
pub struct NativeOptions {
    /// What the worker does; once for each [default: all].
    #[arg(long, value_enum)]
    pub work: Vec<Work>,
    /// Format of the rings; once for each [default: all].
    #[arg(long, value_enum)]
    pub format: Vec<Format>,
    /// Descriptors in a ring: a power of two.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(64..=4096))]
    pub ring: u16,
    /// Packets received at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batch: u16,
    /// Bytes of a frame, without CRC.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(SHORTEST as i64..=1514))]
    pub length: u16,
    /// The socket of a backend that polls on the second core, instead of our own.
    #[arg(long, value_name = "SOCKET")]
    pub backend: Option<PathBuf>,
    /// How long each is measured, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub time: u64,
}

/// Options of `sluice bench backend`.
#[derive(Debug, Args)]
pub struct BackendOptions {
    /// Where it listens.
    pub socket: PathBuf,
    /// Bytes of the frames that it gives, without CRC; 0 for none.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(0..=1514))]
    pub length: u16,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Receives and drops.
    Rxdrop,
    /// Sends frames from nowhere.
    Txonly,
    /// Sends what it receives back, addresses swapped.
    Reflect,
    /// Sends what it receives out of another port, both ways.
    Redirect,
}

/// The format of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Split rings, buffers used in any order.
    Split,
    /// Split rings with `VIRTIO_F_IN_ORDER`.
    InOrder,
    /// Packed rings, buffers used in any order.
    Packed,
    /// Packed rings with `VIRTIO_F_IN_ORDER`.
    PackedInOrder,
}

impl Format {
    fn features(self) -> u64 {
        let features = match self {
            Format::Split => Features::VERSION_1,
            Format::InOrder => Features::VERSION_1 | Features::IN_ORDER,
            Format::Packed => Features::VERSION_1 | Features::RING_PACKED,
            Format::PackedInOrder => Features::VERSION_1 | Features::RING_PACKED | Features::IN_ORDER,
        };
        features.bits()
    }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Measures; the table.
///
/// # Errors
/// When there are fewer than two cores, no backend, or frames come out other than they should.
pub(super) fn measure(options: &NativeOptions) -> Result<Vec<Sheet>> {
    let NativeOptions { work, format, ring, batch, length, backend, time } = options;
    let works = if work.is_empty() { Work::value_variants() } else { work };
    let formats = if format.is_empty() { Format::value_variants() } else { format };
    let pages = if Arena::get()?.is_huge() { "huge pages" } else { "small pages" };
    let title = format!("One worker before a backend, {length} B, ring {ring}, batch {batch}, {pages}");
    let pool = run::pool(usize::from(*ring))?;
    let mut sheet = Sheet::new(title, ["work", "rings", "Mpps", "cycles a packet", "windows"]);
    for &work in works {
        for &format in formats {
            let setup = Setup {
                pool,
                work,
                features: format.features(),
                ring: usize::from(*ring),
                batch: usize::from(*batch),
                length: usize::from(*length),
                time: Duration::from_millis(*time) / TURNS,
            };
            let mut windows = Vec::new();
            match backend {
                Some(_) if work == Work::Redirect => continue,
                Some(socket) => {
                    for _ in 0..TURNS {
                        windows.extend(run::before(socket, setup)?.windows);
                    }
                }
                None => {
                    check(setup)?;
                    for _ in 0..TURNS {
                        windows.extend(run::measure(setup)?.windows);
                    }
                }
            }
            sheet.row(row(work, format, &windows));
        }
    }
    Ok(vec![sheet])
}

fn row(work: Work, format: Format, windows: &[Window]) -> [Entry; 5] {
    [
        Entry::text(name(work)),
        Entry::text(name(format)),
        Entry::Spread(Spread::of(windows.iter().map(Window::mpps)), 1),
        Entry::Spread(Spread::of(windows.iter().map(Window::cycles)), 1),
        Entry::Number(windows.len() as f64, 0),
    ]
}

/// How often everything is set up anew: where memory happens to lie, and who happened to be ahead, meets all figures.
const TURNS: u32 = 10;

/// How long frames are looked at before any is counted.
const CHECKED: Duration = Duration::from_millis(50);

/// Lets frames through for a moment and looks at each: figures of a broken path mean nothing.
fn check(setup: Setup) -> Result<()> {
    let Setup { work, .. } = setup;
    let outcome = run::check(Setup { time: CHECKED, ..setup })?;
    ensure!(outcome.moved > 0, "{work:?}: no frame moved");
    ensure!(outcome.unaccounted == 0, "{work:?}: {} frames are not accounted for", outcome.unaccounted);
    for seen in &outcome.seen {
        let (changed, disordered) = (seen.changed, seen.disordered);
        ensure!(
            changed + disordered == 0,
            "{work:?}: of {} frames {changed} changed, {disordered} lost their place",
            seen.frames
        );
    }
    let seen: u64 = outcome.seen.iter().map(|seen| seen.frames).sum();
    ensure!(seen == outcome.sent, "{work:?}: {} frames sent, {seen} came out", outcome.sent);
    Ok(())
}

#[cfg(test)]
mod tests;

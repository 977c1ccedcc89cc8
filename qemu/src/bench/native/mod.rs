//! `sluice bench native`: the driver and the worker as shipped, in this process, before a vhost-user backend that polls on
//! another core.

mod backend;
mod contest;
mod frames;
mod frontend;
mod hugepages;
mod memory;
mod opposite;
mod run;
mod serve;
mod source;
mod testpmd;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use netdrv::virtio::Features;

use self::contest::{Contestant, Tables};
use self::frames::SHORTEST;
use self::hugepages::HugePages;
use self::memory::Arena;
use self::opposite::Whose;
use self::run::Setup;
pub(super) use self::serve::serve;
use super::sheet::Sheet;

/// Options of `sluice bench native`.
#[derive(Debug, Args)]
pub struct NativeOptions {
    /// What the worker does; once for each [default: all].
    #[arg(long, value_enum)]
    pub work: Vec<Work>,
    /// Format of the rings; once for each [default: all].
    #[arg(long, value_enum)]
    pub format: Vec<Format>,
    /// Descriptors in a ring: powers of two.
    #[arg(long, value_delimiter = ',', default_value = "256", value_parser = clap::value_parser!(u16).range(64..=4096))]
    pub ring: Vec<u16>,
    /// Packets received at a time.
    #[arg(long, value_delimiter = ',', default_value = "32", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batch: Vec<u16>,
    /// Bytes of a frame, without CRC.
    #[arg(long, value_delimiter = ',', default_value = "60")]
    #[arg(value_parser = clap::value_parser!(u16).range(SHORTEST as i64..=1514))]
    pub length: Vec<u16>,
    /// Also DPDK's testpmd, in turn, before the same backend; scripts/setup.sh --peers fetches it.
    #[arg(long, conflicts_with = "backend")]
    pub peers: bool,
    /// Before DPDK's own backend, instead of ours; no redirect, which takes two ports.
    #[arg(long, conflicts_with = "backend")]
    pub dpdk_backend: bool,
    /// The socket of a backend that polls on the second core, instead of our own; no redirect.
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
    /// Receives, looks at each frame whether it is for the local stack, and drops it: none is.
    Rxfilter,
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

/// Measures; the tables.
///
/// # Errors
/// When there are fewer than two cores, no backend, no peer, or frames come out other than they should.
pub(super) fn measure(options: &NativeOptions) -> Result<Vec<Sheet>> {
    let NativeOptions { work, format, ring, batch, length, peers, dpdk_backend, backend, time } = options;
    let works = if work.is_empty() { Work::value_variants() } else { work };
    let formats = if format.is_empty() { Format::value_variants() } else { format };
    let testpmds = usize::from(*peers) + usize::from(*dpdk_backend);
    let _pages = match testpmds {
        0 => None,
        _ => Some(HugePages::free(Arena::HUGE_PAGES + testpmds * testpmd::HUGE_PAGES)?),
    };
    let whose = match backend {
        Some(socket) => Whose::At(socket.clone()),
        None if *dpdk_backend => Whose::Dpdk,
        None => Whose::Own,
    };
    let has_one_card = !matches!(whose, Whose::Own);
    let largest = ring.iter().max().copied().unwrap_or_default();
    let pool = run::pool(usize::from(largest))?;
    let mut tables = Tables::new(Contestant::all(formats, *peers), whose)?;
    for &work in works.iter().filter(|&&work| work != Work::Redirect || !has_one_card) {
        for &length in length {
            for &ring in ring {
                for &batch in batch {
                    tables.measure(Setup {
                        pool,
                        work,
                        ring: usize::from(ring),
                        batch: usize::from(batch),
                        length: usize::from(length),
                        time: Duration::from_millis(*time),
                    })?;
                }
            }
        }
    }
    Ok(tables.sheets())
}

#[cfg(test)]
mod tests;

//! What each measure of batching is worth to the driver of Intel's cards: the table of the threads that brought it to Linux's
//! drivers, where the measures came one by one. Here all of them are always on; a benchmark alone does without one.

mod lane;
mod queues;

use std::time::Duration;

use anyhow::Result;

use self::lane::{BATCH, Outcome, RING, Rig, Without, Work};
use crate::bench::ixgbe::card::FRAME_LEN;
use crate::bench::measure::{Spread, Window};
use crate::bench::sheet::{Entry, Sheet};

/// How often each is measured: where memory happens to lie differs from one time to the next.
const TURNS: usize = 7;
/// How long to try each time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The measures: for which work each counts, its name, and how to do without.
const MEASURES: [(&[Work], &str, Without); 5] = [
    (
        &[Work::Txonly, Work::L2fwd],
        "TX batching: a report and a tail a burst, not a packet",
        Without { tx_batching: true, ..Without::NOTHING },
    ),
    (
        &[Work::Txonly, Work::L2fwd],
        "RS by the ring's length: a report in 32 descriptors, not in each",
        Without { report_distance: true, ..Without::NOTHING },
    ),
    (
        &[Work::Rxdrop, Work::L2fwd],
        "RX tail once for 16 buffers or more, not for each",
        Without { rx_tail: true, ..Without::NOTHING },
    ),
    (
        &[Work::Rxdrop, Work::L2fwd],
        "RX in bursts, not a frame at a time",
        Without { rx_batching: true, ..Without::NOTHING },
    ),
    (&[Work::L2fwd], "all of them", Without::EVERYTHING),
];

/// The table.
///
/// # Errors
/// When something can't run here.
pub(super) fn table() -> Result<Sheet> {
    let mut sheet = Sheet::new(
        format!(
            "An 82599 in shared memory before each core, worked by the other one; {FRAME_LEN} B, ring {RING}, batch {BATCH}"
        ),
        [
            "work",
            "cores",
            "measure",
            "without, Mpps a core",
            "with",
            "more, %",
            "tails a packet, without",
            "and with",
        ],
    );
    for cores in [1, 2] {
        let rig = Rig::new(cores)?;
        for work in [Work::Rxdrop, Work::Txonly, Work::L2fwd] {
            for (_, name, without) in MEASURES.iter().filter(|(works, ..)| works.contains(&work)) {
                sheet.row(row(&rig, work, name, *without)?);
            }
        }
    }
    Ok(sheet)
}

/// Without a measure and with it, in turn, so that what else the machine does meets both.
fn row(rig: &Rig, work: Work, name: &str, without: Without) -> Result<[Entry; 8]> {
    let (mut before, mut after) = (Outcome::default(), Outcome::default());
    for _ in 0..TURNS {
        before.add(rig.measure(work, without, PATIENCE)?);
        after.add(rig.measure(work, Without::NOTHING, PATIENCE)?);
    }
    let [slower, faster] = [&before, &after].map(Outcome::mpps);
    Ok([
        Entry::text(work.name()),
        Entry::Number(rig.workers() as f64, 0),
        Entry::text(name),
        Entry::Spread(slower, 1),
        Entry::Spread(faster, 1),
        Entry::Number(100.0 * (faster.median / slower.median - 1.0), 0),
        Entry::Number(before.tails_a_packet(), 2),
        Entry::Number(after.tails_a_packet(), 2),
    ])
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.windows.extend(other.windows);
        self.tails += other.tails;
        self.packets += other.packets;
    }

    fn mpps(&self) -> Spread {
        Spread::of(self.windows.iter().map(Window::mpps))
    }

    fn tails_a_packet(&self) -> f64 {
        self.tails as f64 / self.packets as f64
    }
}

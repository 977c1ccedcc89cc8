//! Those who are measured, in turn, and what the tables say of them.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::memory::Arena;
use super::opposite::Whose;
use super::run::{self, Setup};
use super::testpmd::{FLAGS, Flags};
use super::{Format, name};
use crate::bench::measure::{Spread, Window};
use crate::bench::sheet::{Entry, Sheet};
use crate::interrupt;

/// How often everything is set up anew: where memory happens to lie, and who happened to be ahead, meets all figures.
const TURNS: u32 = 10;
/// How long frames are looked at before any is counted.
const CHECKED: Duration = Duration::from_millis(50);

/// Who does the work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contestant {
    /// Our worker, with rings of that format.
    Sluice(Format),
    /// DPDK's testpmd.
    Dpdk(Flags),
}

impl Contestant {
    /// Ours with rings of these formats, and all of DPDK's ways where peers are wanted.
    pub(super) fn all(formats: &[Format], peers: bool) -> Vec<Contestant> {
        let ours = formats.iter().copied().map(Contestant::Sluice);
        let peers = FLAGS.into_iter().filter(|_| peers).map(Contestant::Dpdk);
        ours.chain(peers).collect()
    }

    fn system(self) -> &'static str {
        match self {
            Contestant::Sluice(_) => "Sluice",
            Contestant::Dpdk(_) => "DPDK",
        }
    }

    fn rings(self) -> String {
        match self {
            Contestant::Sluice(format) => name(format),
            Contestant::Dpdk(flags) => flags.name.into(),
        }
    }

    fn measure(self, setup: Setup, whose: &Whose) -> Result<Vec<Window>> {
        match self {
            Contestant::Sluice(format) => Ok(run::measure(setup, format, whose)?.windows),
            Contestant::Dpdk(flags) => run::peer(setup, flags, whose),
        }
    }
}

/// What one of them made of one set-up.
struct Score {
    contestant: Contestant,
    mpps: Spread,
    cycles: Spread,
    windows: usize,
}

/// The tables: what everyone did, and how ours compares, where there are peers.
pub(super) struct Tables {
    contestants: Vec<Contestant>,
    whose: Whose,
    all: Sheet,
    compared: Sheet,
}

impl Tables {
    /// Empty ones.
    ///
    /// # Errors
    /// When the system has no memory to share.
    pub(super) fn new(contestants: Vec<Contestant>, whose: Whose) -> Result<Tables> {
        let pages = if Arena::get()?.is_huge() { "huge pages" } else { "small pages" };
        let backend = match whose {
            Whose::Own => "our backend",
            Whose::Dpdk => "DPDK's net_vhost",
            Whose::At(_) => "a backend",
        };
        let all = Sheet::new(
            format!("One core before {backend} on another, {pages}"),
            ["work", "B", "ring", "batch", "system", "rings", "Mpps", "cycles a packet", "windows"],
        );
        let compared = Sheet::new(
            "The best of each: Mpps",
            ["work", "B", "ring", "batch", "Sluice", "DPDK", "times", "DPDK's rings"],
        );
        Ok(Tables { contestants, whose, all, compared })
    }

    /// Measures everybody, in turn.
    ///
    /// # Errors
    /// When something can't be set up, and when frames come out of ours other than they should.
    pub(super) fn measure(&mut self, setup: Setup) -> Result<()> {
        let formats = self.contestants.iter().filter_map(|contestant| match contestant {
            Contestant::Sluice(format) => Some(*format),
            Contestant::Dpdk(_) => None,
        });
        formats.into_iter().try_for_each(|format| check(setup, format, &self.whose))?;
        let mut windows: Vec<Vec<Window>> = self.contestants.iter().map(|_| Vec::new()).collect();
        let turn = Setup { time: setup.time / TURNS, ..setup };
        for _ in 0..TURNS {
            for (contestant, windows) in self.contestants.iter().zip(&mut windows) {
                windows.extend(contestant.measure(turn, &self.whose)?);
                ensure!(!interrupt::happened(), "interrupted");
            }
        }
        let score = |(&contestant, windows): (&Contestant, Vec<Window>)| Score {
            contestant,
            mpps: Spread::of(windows.iter().map(Window::mpps)),
            cycles: Spread::of(windows.iter().map(Window::cycles)),
            windows: windows.len(),
        };
        let scores: Vec<Score> = self.contestants.iter().zip(windows).map(score).collect();
        for score in &scores {
            let mut row = about(setup);
            row.extend([
                Entry::text(score.contestant.system()),
                Entry::text(score.contestant.rings()),
                Entry::Spread(score.mpps, 1),
                Entry::Spread(score.cycles, 1),
                Entry::Number(score.windows as f64, 0),
            ]);
            self.all.row(row);
        }
        self.compared.rows.extend(compare(setup, &scores));
        Ok(())
    }

    /// As they are to be shown.
    pub(super) fn sheets(self) -> Vec<Sheet> {
        let Tables { all, compared, .. } = self;
        if compared.rows.is_empty() { vec![all] } else { vec![all, compared] }
    }
}

/// The columns that say what was done.
fn about(setup: Setup) -> Vec<Entry> {
    let number = |number: usize| Entry::Number(number as f64, 0);
    vec![Entry::text(name(setup.work)), number(setup.length), number(setup.ring), number(setup.batch)]
}

/// Our best beside DPDK's, where both were measured.
fn compare(setup: Setup, scores: &[Score]) -> Option<Vec<Entry>> {
    let best = |is_ours| {
        let scores =
            scores.iter().filter(|score| matches!(score.contestant, Contestant::Sluice(_)) == is_ours);
        scores.max_by(|one, other| one.mpps.median.total_cmp(&other.mpps.median))
    };
    let (ours, theirs) = (best(true)?, best(false)?);
    let mut row = about(setup);
    row.extend([
        Entry::Spread(ours.mpps, 1),
        Entry::Spread(theirs.mpps, 1),
        Entry::Number(ours.mpps.median / theirs.mpps.median, 2),
        Entry::text(theirs.contestant.rings()),
    ]);
    Some(row)
}

/// Lets frames through for a moment, and looks at each where the backend is ours: figures of a broken path mean nothing.
pub(super) fn check(setup: Setup, format: Format, whose: &Whose) -> Result<()> {
    let Setup { work, .. } = setup;
    let outcome = run::check(Setup { time: CHECKED, ..setup }, format, whose)?;
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
    ensure!(
        seen == outcome.sent || outcome.seen.is_empty(),
        "{work:?}: {} frames sent, {seen} came out",
        outcome.sent
    );
    Ok(())
}

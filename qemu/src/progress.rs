//! How far the traffic is: a live line on a terminal, a few plain lines elsewhere.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::time::Instant;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

use crate::exchange::Progress;

/// Where no terminal is, a line is written each time that this share is done.
const QUARTER: u64 = 25;

/// Shows how far the traffic is, on standard error.
pub(crate) enum Display {
    Live(ProgressBar),
    Plain { started: Instant, next_percent: u64 },
}

impl Display {
    pub(crate) fn start(total: u64) -> Self {
        if !stderr().is_terminal() {
            return Self::Plain { started: Instant::now(), next_percent: QUARTER };
        }
        let template = "{bar:40} {human_pos} of {human_len} frames, {rate}/s, {eta} left";
        let style = ProgressStyle::with_template(template).expect("the template is well-formed").with_key(
            "rate",
            |state: &ProgressState, out: &mut dyn Write| {
                write!(out, "{}", HumanCount(state.per_sec() as u64)).expect("a string takes everything");
            },
        );
        Self::Live(ProgressBar::new(total).with_style(style))
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        match self {
            Self::Live(bar) => bar.set_position(progress.received),
            Self::Plain { started, next_percent } => {
                let percent = progress.received * 100 / progress.total.max(1);
                if percent >= *next_percent {
                    *next_percent = percent / QUARTER * QUARTER + QUARTER;
                    let (received, total) = (HumanCount(progress.received), HumanCount(progress.total));
                    eprintln!("{percent:3} %  {received} of {total} frames, {:.1?}", started.elapsed());
                }
            }
        }
    }

    pub(crate) fn finish(self) {
        if let Self::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}

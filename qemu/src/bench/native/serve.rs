//! `sluice bench backend`: our backend for any frontend that one would like to compare with.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::BackendOptions;
use super::backend::{Backend, Habits};
use crate::bench::cpu;
use crate::interrupt;

/// Between two lines of figures.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// Serves one frontend after the other, until it is interrupted, and prints what moves.
///
/// # Errors
/// When there are fewer than two cores, or the socket can't be had.
pub(in crate::bench) fn serve(options: &BackendOptions) -> Result<()> {
    let [_, core] = cpu::two_cores()?;
    let gives = (options.length > 0).then_some(usize::from(options.length));
    let backend = Backend::listen(&[&options.socket], Habits { core, gives, checks: None })?;
    let mut before = (0, 0);
    while !interrupt::happened() {
        let begin = Instant::now();
        while begin.elapsed() < INTERVAL && !interrupt::happened() {
            thread::sleep(LOOK);
        }
        let now = (backend.given(), backend.taken());
        let mpps = |count: u64| count as f64 / begin.elapsed().as_secs_f64() / 1e6;
        println!("given {:.2} Mpps, taken {:.2} Mpps", mpps(now.0 - before.0), mpps(now.1 - before.1));
        before = now;
    }
    Ok(())
}

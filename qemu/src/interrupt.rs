//! Ctrl-C: remembered rather than deadly, so that folders are removed on the way out.
//!
//! The terminal sends the signal to QEMU and to tools as well; they end, and whoever waits for them gets an error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use signal_hook::consts::SIGINT;

/// What a process exits with that Ctrl-C has ended: 128 and the signal's number.
pub const EXIT_CODE: u8 = 130;

static HAPPENED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C only makes [`happened`] true; a second one ends the process.
///
/// # Errors
/// When the system refuses the handler.
pub fn catch() -> Result<()> {
    let flag = Arc::clone(HAPPENED.get_or_init(Arc::default));
    signal_hook::flag::register_conditional_shutdown(SIGINT, EXIT_CODE.into(), Arc::clone(&flag))
        .and_then(|_| signal_hook::flag::register(SIGINT, flag))
        .map(drop)
        .context("cannot handle Ctrl-C")
}

/// Whether Ctrl-C was typed.
pub fn happened() -> bool {
    HAPPENED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

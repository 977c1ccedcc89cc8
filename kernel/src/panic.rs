#![allow(unsafe_code)] // Reads the frame pointer.
//! The end after a panic or an exception: stop the other cores, say what happened, and do what `on-panic=`
//! says.
//!
//! A crash inside the report ends with one more line, and a crash inside of that ends without; a core that
//! crashes while another reports just stops. So the end always comes.

use core::arch::asm;
use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::backtrace::Backtrace;
use crate::{console, cpu, power, smp};

const NOBODY: usize = usize::MAX;
/// The core that crashed first.
static REPORTER: AtomicUsize = AtomicUsize::new(NOBODY);

/// Reports a panic and ends. [`entry!`](crate::entry) makes it the panic handler.
pub fn report(info: &PanicInfo<'_>) -> ! {
    let (rip, rbp): (u64, u64);
    // SAFETY: it only reads two registers.
    unsafe {
        asm!(
            "lea {}, [rip]",
            "mov {}, rbp",
            out(reg) rip,
            out(reg) rbp,
            options(nomem, nostack, preserves_flags),
        );
    }
    match info.location() {
        Some(location) => end(rip, rbp, format_args!("panic: {} at {location}", info.message())),
        None => end(rip, rbp, format_args!("panic: {}", info.message())),
    }
}

/// Says `what` happened at `rip`, and who called, then ends.
pub(crate) fn end(rip: u64, rbp: u64, what: fmt::Arguments<'_>) -> ! {
    let core = cpu::current();
    match REPORTER.compare_exchange(NOBODY, core, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {}
        Err(reporter) if reporter == core => end_again(),
        Err(_) => power::halt_forever(),
    }
    x86_64::instructions::interrupts::disable();
    // In this order, so that no line of another core is cut.
    let console = console::seize();
    cpu::halt_at_next_nmi();
    smp::halt_others();
    console.print(format_args!("sluice crashed: core {core}: {what}\n{}", Backtrace { rip, rbp }));
    power::crash()
}

/// A crash while this core reports the first: the report may have ended anywhere.
fn end_again() -> ! {
    static AGAIN: AtomicBool = AtomicBool::new(false);
    if !AGAIN.swap(true, Ordering::SeqCst) {
        console::seize().print(format_args!("sluice crashed again while it reported"));
    }
    power::crash()
}

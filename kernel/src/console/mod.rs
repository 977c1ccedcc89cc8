#![allow(unsafe_code)] // Breaks the lock after a crash.
//! The serial console. Where there is none, nothing is printed and nothing waits.
//!
//! A line is printed under a lock, so lines of several cores never mix. After a crash the lock may be held by a core
//! that has stopped, and then it is taken away from that core.

mod uart;

use core::fmt::{self, Write};
use core::hint;

use hermit_sync::SpinMutex;

use uart::Uart;

static CONSOLE: SpinMutex<Option<Uart>> = SpinMutex::new(None);

/// Finds and sets up the serial port.
pub(crate) fn init() {
    *CONSOLE.lock() = Uart::detect();
}

/// Prints one line, as it is: for the lines whose form is fixed. See also [`println!`](crate::println).
pub fn print_event(line: fmt::Arguments<'_>) {
    if let Some(uart) = CONSOLE.lock().as_mut() {
        // `Lines` takes whatever it is given.
        let _ = Lines(uart).write_fmt(format_args!("{line}\n"));
    }
}

/// Prints one formatted line on the serial console.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => { $crate::console::print_event(format_args!($($argument)*)) };
}

/// The next byte that was typed, if any. It never waits, not even for another core that prints.
#[must_use]
pub fn read_byte() -> Option<u8> {
    CONSOLE.try_lock()?.as_mut()?.receive()
}

/// Frees the console for a last report: gives the core that prints some time to end its line, then takes the lock
/// away from it. All other cores must have been told to stop.
pub(crate) fn break_lock() {
    // Long enough for a line at 115200 baud when the other core still runs, and unnoticed when it does not.
    const SPINS: u32 = 2_000_000;
    let free = (0..SPINS).any(|_| {
        hint::spin_loop();
        !CONSOLE.is_locked()
    });
    if !free {
        // SAFETY: whoever holds the lock has stopped or is this core, which will not go back to what it did. At worst
        // the last line of the other core is cut short.
        unsafe { CONSOLE.force_unlock() };
    }
}

/// Sends text, with a carriage return before each line feed, as terminals want it.
struct Lines<'a>(&'a mut Uart);

impl Write for Lines<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            match piece.strip_suffix('\n') {
                Some(line) => {
                    self.0.send(line.as_bytes());
                    self.0.send(b"\r\n");
                }
                None => self.0.send(piece.as_bytes()),
            }
        }
        Ok(())
    }
}

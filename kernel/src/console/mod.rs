#![allow(unsafe_code)] // Goes around the lock after a crash.
//! The serial console. Where there is none, nothing is printed and nothing waits.
//!
//! A line is printed under a lock, so lines of several cores never mix. A core that crashes takes the
//! console: it lets the line end that another core prints, and keeps the lock for good.

mod uart;

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use core::{hint, mem};

use hermit_sync::SpinMutex;

use uart::Uart;

static CONSOLE: SpinMutex<Option<Uart>> = SpinMutex::new(None);

/// Finds and sets up the serial port.
pub(crate) fn init() {
    *CONSOLE.lock() = Uart::detect();
}

/// Prints one line, as it is: for the lines whose form is fixed. See also [`println!`](crate::println).
pub fn print_event(line: fmt::Arguments<'_>) {
    print(CONSOLE.lock().as_mut(), line);
}

fn print(uart: Option<&mut Uart>, line: fmt::Arguments<'_>) {
    if let Some(uart) = uart {
        // `Lines` takes whatever it is given; an error would come from what is formatted.
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

/// Keeps all other cores from printing, for good: for a report after a crash. It gives a core that prints the
/// time to end its line; when that does not happen, because the line is this core's own, the line ends here.
pub(crate) fn seize() -> Seized {
    /// Long enough for a line at 115200 baud, and not noticed by whoever waits for the report.
    const ATTEMPTS: u32 = 2_000_000;
    static IS_SEIZED: AtomicBool = AtomicBool::new(false);
    let attempts = if IS_SEIZED.swap(true, Ordering::SeqCst) { 0 } else { ATTEMPTS };
    let lock = (0..attempts).find_map(|_| {
        hint::spin_loop();
        CONSOLE.try_lock()
    });
    let seized = Seized(());
    match lock {
        Some(lock) => mem::forget(lock),
        None => seized.print(format_args!("")),
    }
    seized
}

/// The console in the hands of the one core that still prints.
pub(crate) struct Seized(());

impl Seized {
    /// Prints one line.
    pub(crate) fn print(&self, line: fmt::Arguments<'_>) {
        // SAFETY: the lock is held for ever, by this core since the crash or by what it did before, and it
        // will not go back to that: nobody else uses what the lock guards.
        let console = unsafe { &mut *CONSOLE.data_ptr() };
        print(console.as_mut(), line);
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

//! The operator at the console: commands, one a line.

use core::fmt::{self, Write};

use arrayvec::ArrayString;
use forwarder::Control;
use kernel::power::{self, Code};
use kernel::{console, println};
use netdrv::pool::Pool;
use netdrv::port::{Rx, Tx};

use crate::ports::Ports;

/// The longest command that is read, in bytes; the rest of a longer line is part of it no more.
const MAX_COMMAND: usize = 80;

/// What was typed of the current line.
#[derive(Default)]
pub(crate) struct Operator {
    line: ArrayString<MAX_COMMAND>,
}

impl Operator {
    /// Takes what was typed, and carries out the commands that are complete.
    pub(crate) fn attend(&mut self, control: &Control<Rx, Tx>, ports: &Ports) {
        while let Some(byte) = console::read_byte() {
            if byte == b'\n' || byte == b'\r' {
                let line = core::mem::take(&mut self.line);
                carry_out(line.trim(), control, ports);
            } else {
                // A line that is too long is an unknown command by its beginning.
                let _ = self.line.try_push(char::from(byte));
            }
        }
    }
}

fn carry_out(command: &str, control: &Control<Rx, Tx>, ports: &Ports) {
    match command {
        "" => {}
        "metrics" => print_metrics(control, ports),
        "stop" => control.stop(),
        _ => println!("unknown command {command:?}; commands: metrics stop"),
    }
}

fn print_metrics(control: &Control<Rx, Tx>, ports: &Ports) {
    // Line by line: the console's lock is held for one line, not for all of them.
    let mut lines = Lines(ArrayString::new());
    if control.write_metrics(&ports.counters(), &mut lines).is_err() {
        log::error!("a metric's line is longer than {} bytes", lines.0.capacity());
    }
}

/// Prints what is written to it, a whole line at a time.
struct Lines(ArrayString<256>);

impl Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            self.0.try_push_str(piece.trim_end_matches('\n')).map_err(|_| fmt::Error)?;
            if piece.ends_with('\n') {
                println!("{}", self.0);
                self.0.clear();
            }
        }
        Ok(())
    }
}

/// After the workers have ended: the devices stop, every buffer comes home, the last counters are printed, the image ends.
pub(crate) fn wind_down(control: &Control<Rx, Tx>, mut ports: Ports, pool: &'static Pool) -> ! {
    let queues = control.wait_stopped();
    ports.stop();
    drop(queues);
    print_metrics(control, &ports);
    println!("sluice stopped pool={} home={}", pool.count(), pool.in_depot());
    power::stop(Code::Stopped)
}

//! The `log` facade on the serial console: `[   0.012345] INFO  kernel::smp: text`, with the seconds since
//! entry.

use log::{LevelFilter, Log, Metadata, Record};

use crate::{console, time};

struct Logger;

/// Installs the logger, at level info; `log::set_max_level` changes that.
pub(crate) fn init() {
    // It fails only when there is a logger already, which would be this one.
    let _ = log::set_logger(&Logger);
    log::set_max_level(LevelFilter::Info);
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let now = time::since_entry_us();
            let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
            let (level, target) = (record.level(), record.target());
            console::print_event(format_args!(
                "[{seconds:4}.{micros:06}] {level:5} {target}: {}",
                record.args()
            ));
        }
    }

    fn flush(&self) {}
}

//! The `log` facade on the serial console: `[   0.012345] INFO  kernel::smp: text`, with the seconds since entry.

use hermit_sync::OnceCell;
use log::{LevelFilter, Log, Metadata, Record};

use crate::console;

static CLOCK: OnceCell<fn() -> u64> = OnceCell::new();

/// Gives the logger its clock: microseconds since entry. Until then its lines say 0.
pub fn set_clock(clock: fn() -> u64) {
    // The first clock stays.
    let _ = CLOCK.set(clock);
}

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
            let now = CLOCK.get().map_or(0, |clock| clock());
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

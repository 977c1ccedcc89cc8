//! Too little memory ends the boot with the numbers and what helps, instead of a crash half-way through.

use forwarder::config::Config;
use forwarder::steer::RxMode;
use kernel::memory::{self, PAGE_SIZE};
use kernel::power::{self, Code};
use kernel::println;
use netdrv::pool::Pool;

/// What is left for those who allocate while the image forwards: fragments of datagrams, and the operator's answers.
const RESERVE: u64 = 256 << 10;
const MIB: u64 = 1 << 20;

/// Until [`need_no_more`], whoever asks for memory that isn't there ends the boot. [`check`] says more, where it comes first.
pub(crate) fn need() {
    memory::on_shortage(Some(|pages| {
        let free = memory::free_pages();
        println!(
            "sluice refused: memory: {} KiB are needed in one piece, and {} of {} KiB are free; allowed: {HELP}",
            pages * PAGE_SIZE / 1024,
            free * PAGE_SIZE / 1024,
            memory::ram_pages() * PAGE_SIZE / 1024,
        );
        power::stop(Code::Refused)
    }));
}

/// The image forwards: from here on a shortage is what it is to any program.
pub(crate) fn need_no_more() {
    memory::on_shortage(None);
}

/// What helps where it is not known what takes the most.
const HELP: &str = "more memory, fewer workers=, a smaller ring=";

/// Refuses a boot that would end in a shortage: there must be room for `buffers` packet buffers, and `heap` bytes beside.
pub(crate) fn check(config: &Config, workers: usize, buffers: usize, heap: usize) {
    let pool = pages(Pool::bytes(buffers));
    let beside = pages(heap as u64 + RESERVE);
    // The buffers are one piece. More memory makes the longest run longer, since that is the last.
    let lacking = (pool + beside)
        .saturating_sub(memory::free_pages())
        .max(pool.saturating_sub(memory::longest_free_run()));
    if lacking == 0 {
        return;
    }
    let there = memory::ram_pages() * PAGE_SIZE;
    // Firmware keeps a part of a mebibyte to itself.
    let needed = (there + lacking * PAGE_SIZE).div_ceil(MIB) + 1;
    let steered = match config.rx {
        RxMode::Software => ", rx=hardware",
        RxMode::Hardware => "",
    };
    println!(
        "sluice refused: memory: {needed} MiB are needed for {workers} workers with {buffers} packet buffers of {} MiB, \
         and there are {}; allowed: {HELP}{steered}",
        (pool * PAGE_SIZE).div_ceil(MIB),
        there.div_ceil(MIB),
    );
    power::stop(Code::Refused)
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE)
}

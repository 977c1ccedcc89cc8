//! The image in QEMU, seen from outside: it boots, forwards, counts, refuses and stops as it should.
//!
//! Each test has a virtual machine of its own. Waits are generous and bounded; nothing here measures time.
//! The usual options work: `cargo test -p qemu --test system -- boot --test-threads 1`.

mod accounting;
mod bench;
mod boot;
mod card;
mod checked;
mod cli;
mod console;
mod crashes;
mod flood;
mod frames;
mod grid;
mod harness;
mod hosts;
mod idle;
mod image;
mod judges;
mod lane;
mod linux;
mod lone;
mod memory;
mod outside;
mod packed;
mod process;
mod refusals;
mod rig;
mod stack;
mod steering;
mod traffic;
mod verdicts;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = [
        boot::trials(),
        verdicts::trials(),
        console::trials(),
        accounting::trials(),
        bench::trials(),
        refusals::trials(),
        memory::trials(),
        crashes::trials(),
        outside::trials(),
        cli::trials(),
        idle::trials(),
        packed::trials(),
        lone::trials(),
        hosts::trials(),
        stack::trials(),
        steering::trials(),
        card::trials(),
        judges::trials(),
        traffic::trials(),
        flood::trials(),
        grid::trials(),
    ];
    libtest_mimic::run(&arguments, tests.into_iter().flatten().collect()).exit_code()
}

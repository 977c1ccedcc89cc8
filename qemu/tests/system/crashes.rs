//! Panics and exceptions: the report tells what happened where, and `on-panic=` what comes of it.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::Machine;
use qemu::guest::EXIT_CRASHED;
use qemu::machine::Reset;

use crate::harness::test;
use crate::image::crash_image;
use crate::process::PATIENCE;

/// How the image crashes, and what its report must say.
const CRASHES: &[(&str, &[&str])] = &[
    ("panic", &["panic"]),
    ("null", &["page fault", "cr2=0x0000000000000000"]),
    ("ud2", &["invalid opcode"]),
    ("stack-overflow", &["page fault", "stack"]),
    ("write-rodata", &["page fault"]),
    ("exec-heap", &["page fault"]),
    ("double-fault", &["double fault"]),
];

pub(crate) fn trials() -> Vec<Trial> {
    let reports =
        CRASHES.iter().map(|&(crash, says)| test(format!("crashes::{crash}"), move || reports(crash, says)));
    let others = [test("crashes::panic_reboots", panic_reboots)];
    reports.chain(others).collect()
}

fn reports(crash: &str, says: &[&str]) -> Result<()> {
    let guest = Machine::new(crash_image()?).cpus(2).words(format!("crash={crash} on-panic=exit")).start()?;
    let exit_code = guest.wait_exit(PATIENCE)?;
    let log = guest.log();
    ensure!(exit_code == Some(EXIT_CRASHED), "exit code {exit_code:?}\n{log}");
    for text in says.iter().chain(&["core 0", "backtrace"]) {
        ensure!(log.contains(text), "the report does not say {text:?}:\n{log}");
    }
    Ok(())
}

/// By default the machine restarts after the report.
fn panic_reboots() -> Result<()> {
    let guest = Machine::new(crash_image()?).words("crash=panic").on_reset(Reset::Reboots).start()?;
    let mut panics = 0;
    guest.wait_for_line(
        |line| {
            panics += usize::from(line.contains("panic"));
            panics >= 2
        },
        PATIENCE,
    )?;
    Ok(())
}

//! Panics and exceptions: the report tells what happened where, and `on-panic=` what comes of it.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::guest::EXIT_CRASHED;
use qemu::{Machine, Reset, Symbols};

use crate::harness::test;
use crate::image::crash_image;
use crate::process::PATIENCE;

/// How the image crashes, and what its report must say.
const CRASHES: &[(&str, &str)] = &[
    ("panic", "panic: "),
    ("null", "exception 14 (page fault), error code 0x0: reading what is not mapped, address 0x0"),
    ("ud2", "exception 6 (invalid opcode)"),
    ("stack-overflow", "exception 14 (page fault), error code 0x2: writing what is not mapped"),
    ("write-rodata", "exception 14 (page fault), error code 0x3: writing without the right to"),
    ("exec-heap", "exception 14 (page fault), error code 0x11: executing without the right to"),
    ("double-fault", "exception 8 (double fault)"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let reports = CRASHES
        .iter()
        .map(|&(crash, cause)| test(format!("crashes::{crash}"), move || reports(crash, cause)));
    let others = [test("crashes::panic_reboots", panic_reboots)];
    reports.chain(others).collect()
}

/// The report names the core, the cause and the registers, and its backtrace can be read.
fn reports(crash: &str, cause: &str) -> Result<()> {
    let image = crash_image()?;
    let guest = Machine::new(image).cpus(2).words(format!("crash={crash} on-panic=exit")).start()?;
    let exit_code = guest.wait_exit(PATIENCE)?;
    let log = guest.log();
    ensure!(exit_code == Some(EXIT_CRASHED), "exit code {exit_code:?}\n{log}");
    let at = log.find("sluice crashed: core 0: ").with_context(|| format!("no report:\n{log}"))?;
    let report = &log[at..];
    ensure!(report.contains(cause), "the report does not say {cause:?}:\n{log}");
    ensure!(crash == "panic" || report.contains("  rip 00000000"), "the report has no registers:\n{log}");

    let (_, backtrace) =
        report.split_once("backtrace:\n").with_context(|| format!("no backtrace:\n{log}"))?;
    let symbols = Symbols::load(&image.symbols)?;
    let named: Vec<_> = backtrace.lines().map(|line| symbols.annotate(line)).collect();
    ensure!(
        named.iter().any(|line| line.contains("crash")),
        "nothing in the backtrace tells of the crash: {named:#?}"
    );
    Ok(())
}

/// By default the machine restarts after the report.
fn panic_reboots() -> Result<()> {
    let guest = Machine::new(crash_image()?).words("crash=panic").on_reset(Reset::Reboots).start()?;
    let mut panics = 0;
    let second_panic = |line: &str| {
        panics += usize::from(line.starts_with("sluice crashed: core 0: panic: "));
        panics == 2
    };
    guest.wait_for_line(second_panic, PATIENCE)?;
    Ok(())
}

//! `sluice run`: the image with its serial console on the terminal.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::cli::RunOptions;
use crate::guest::{EXIT_CRASHED, EXIT_REFUSED, EXIT_STOPPED};
use crate::plug::Plugged;
use crate::{Accel, Artefact, Guest, Machine, PortSpec, Reset, Symbols, interrupt};

/// Boots the image and stays until QEMU ends.
///
/// # Errors
/// When QEMU cannot start, and when the image ends in any other way than by `stop`.
pub fn run(image: &Artefact, options: &RunOptions) -> Result<()> {
    let plugged = Plugged::new(&options.ports)?;
    let machine = describe(image, options, plugged.specs())?;
    if options.show_command {
        println!("{}", machine.shell_command()?);
    }
    let guest = Arc::new(machine.start()?);
    let typed = Arc::downgrade(&guest);
    // Nobody waits for this thread: it may sleep in a read of the terminal when QEMU has long gone. So it must not own
    // the guest, whose files would stay.
    thread::spawn(move || pass_on_commands(&typed));
    let code = wait_for_end(&guest);
    for (port, report) in plugged.finish() {
        println!("traffic at port {port}\n{report}");
    }
    ensure!(!interrupt::happened(), "interrupted");
    judge(code)
}

fn describe(image: &Artefact, options: &RunOptions, ports: &[PortSpec]) -> Result<Machine> {
    let vm = &options.machine;
    let mut machine = Machine::new(image)
        .cpus(vm.cpus.unwrap_or(1).into())
        .memory_mib(vm.memory as usize)
        .chipset(vm.machine)
        .rings(vm.rings)
        .accel(vm.accel.unwrap_or_else(Accel::detect))
        .time_limit(None)
        .on_line(printer(image)?);
    // By default a crash ends QEMU, with its report as the last thing on the terminal.
    machine = if vm.words.iter().any(|word| word.starts_with("on-panic=")) {
        machine.on_reset(Reset::Reboots)
    } else {
        machine.words("on-panic=exit")
    };
    if ports.is_empty() {
        eprintln!("no --port given: the image gets one port in QEMU's user-mode network");
        machine = machine.port(PortSpec::User);
    }
    machine = ports.iter().cloned().fold(machine, Machine::port);
    if let Some(config) = &options.config {
        machine = machine.config(config);
    }
    Ok(machine.words(vm.words.join(" ")))
}

/// Shows each line of the console, with names behind the addresses of a crash report.
fn printer(image: &Artefact) -> Result<impl FnMut(&str) + Send + 'static> {
    let symbols = Symbols::load(&image.symbols)?;
    Ok(move |line: &str| {
        // A terminal that has gone away is no reason to end the image.
        let _ = writeln!(io::stdout(), "{}", symbols.annotate(line));
    })
}

fn pass_on_commands(guest: &Weak<Guest>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Some(guest) = guest.upgrade() else { return };
        if guest.send_command(&line).is_err() {
            return;
        }
    }
}

/// Waits until QEMU has ended; it is ended when the image has said its last word and sleeps.
fn wait_for_end(guest: &Guest) -> Option<i32> {
    let last_word = |line: &str| line.starts_with("sluice stopped ") || line.starts_with("sluice refused: ");
    while guest.exited().is_none() {
        if let Ok(line) = guest.wait_for_line(last_word, Duration::from_secs(3600)) {
            let by_itself = guest.wait_exit(Duration::from_secs(2));
            let meaning = if line.text.starts_with("sluice stopped") { EXIT_STOPPED } else { EXIT_REFUSED };
            return by_itself.unwrap_or_else(|_| {
                guest.kill();
                Some(meaning)
            });
        }
    }
    guest.exited()?.code()
}

fn judge(code: Option<i32>) -> Result<()> {
    match code {
        Some(EXIT_STOPPED | 0) => Ok(()),
        Some(EXIT_CRASHED) => bail!("the image crashed; its report is above"),
        Some(EXIT_REFUSED) => bail!("the image refused its configuration; its reason is above"),
        Some(code) => bail!("QEMU failed with exit code {code}"),
        None => bail!("QEMU was killed"),
    }
}

//! A machine with too little memory is told what it would take, and does not crash half-way through its boot.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::guest::EXIT_REFUSED;
use qemu::vhost::{TrafficConfig, TrafficPort};
use qemu::{Machine, PortSpec};

use crate::frames::frame;
use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{Rig, check_stopped};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("memory::what_is_needed_is_told_and_is_enough", || {
            needs_what_it_says(&Setup {
                cores: 72,
                pairs: 64,
                memory: 256,
                words: "rx=software stack=0@192.0.2.1/24,1@192.0.2.1/24",
                helps: "rx=hardware",
            })
        }),
        test("memory::long_rings_on_a_small_machine", || {
            needs_what_it_says(&Setup {
                cores: 2,
                pairs: 8,
                memory: 32,
                words: "ring=1024 stack=0@192.0.2.1/24",
                helps: "a smaller ring=",
            })
        }),
        test("memory::no_size_crashes", no_size_crashes),
        test("memory::twenty_four_mebibytes_forward", twenty_four_mebibytes_forward),
    ]
}

/// A machine with two ports that is too small.
struct Setup {
    cores: usize,
    /// Queue pairs of each port.
    pairs: u16,
    /// In MiB.
    memory: usize,
    words: &'static str,
    /// A setting that the refusal names.
    helps: &'static str,
}

/// The boot is refused with a number; a machine with that much memory forwards.
fn needs_what_it_says(setup: &Setup) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let config = TrafficConfig { queue_pairs: setup.pairs, ..Default::default() };
    let listen = |port| TrafficPort::listen(folder.path().join(format!("port{port}")), config.clone());
    let ports = [0, 1].into_iter().map(listen).collect::<Result<Vec<_>>>()?;
    let boot = |memory| {
        let machine = Machine::new(image()?).cpus(setup.cores).memory_mib(memory).words("on-panic=exit");
        ports.iter().fold(machine.words(setup.words), |machine, port| machine.port(port.spec())).start()
    };

    let refused = boot(setup.memory)?;
    let refusal = refused.wait_for_line(|line| line.starts_with("sluice refused: "), PATIENCE)?.text;
    ensure!(refused.wait_exit(PATIENCE)? == Some(EXIT_REFUSED), "{}", refused.log());
    let told = refusal
        .strip_prefix("sluice refused: memory: ")
        .and_then(|text| text.split_once(" MiB are needed for ")?.0.parse().ok());
    let needed = told.with_context(|| format!("it does not say what is needed: {refusal}"))?;
    ensure!(
        refusal.contains(&format!(" there are {};", setup.memory)),
        "it does not say what there is: {refusal}"
    );
    ensure!(refusal.contains("; allowed: more memory, "), "it does not say what helps: {refusal}");
    ensure!(refusal.contains(setup.helps), "it does not say that {} helps: {refusal}", setup.helps);
    ensure!((setup.memory..8 * setup.memory).contains(&needed), "{refusal}");

    let guest = boot(needed)?;
    guest.wait_ready(PATIENCE).with_context(|| guest.log())?;
    check_stopped(&guest.stop()?, ports.len())
}

/// From the least that the loader gives the image room in: it forwards, or it says that memory is short.
fn no_size_crashes() -> Result<()> {
    let mut refusals = 0;
    for memory in [18, 20, 22, 24, 26, 28, 30, 34, 40] {
        let words = "on-panic=exit stack=192.0.2.1/24";
        let machine = Machine::new(image()?).cpus(64).memory_mib(memory).words(words);
        let guest = machine.port(PortSpec::User).start()?;
        let word = |line: &str| line.starts_with("sluice ") && !line.starts_with("sluice crashed again");
        let line = guest.wait_for_line(word, PATIENCE).with_context(|| format!("{memory} MiB"))?.text;
        let is_refused = line.starts_with("sluice refused: memory: ");
        ensure!(is_refused || line.starts_with("sluice ready "), "{memory} MiB: {line}\n{}", guest.log());
        refusals += usize::from(is_refused);
    }
    ensure!(refusals > 0, "the least of these sizes is not small enough to try anything");
    Ok(())
}

/// The least that is promised, with two ports.
fn twenty_four_mebibytes_forward() -> Result<()> {
    let rig = Rig::boot(2, |machine| machine.memory_mib(24))?;
    let frame = frame(1514, 1);
    rig.send(0, &frame)?;
    ensure!(rig.receive(1)? == frame, "the frame came out changed");
    check_stopped(&rig.stop()?, 2)
}

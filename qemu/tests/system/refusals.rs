//! A word or key that the image does not understand stops the boot: it never forwards with half a configuration.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::guest::EXIT_REFUSED;
use qemu::{Endpoint, Guest, Machine, Reset};

use crate::frames::{frame, reflected};
use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::Rig;

/// Words that are refused, the key that the image names, and some of what it says is allowed.
const BAD_WORDS: &[(&str, &str, &str)] = &[
    ("speed=fast", "speed", "program"),
    ("program", "program", "workers="),
    ("program=", "program", "forward"),
    ("program=fly", "program", "reflect"),
    ("program=Drop", "program", "drop"),
    ("program=drop program=pass", "program", "once"),
    ("workers=0", "workers", "all"),
    ("workers=-1", "workers", "all"),
    ("workers=many", "workers", "all"),
    ("workers=99999999999999999999", "workers", "all"),
    ("tx=fast", "tx", "shared"),
    ("idle=never", "idle", "poll"),
    ("rx=magic", "rx", "hardware"),
    ("log=loud", "log", "trace"),
    ("ring=63", "ring", "4096"),
    ("ring=100", "ring", "power of two"),
    ("ring=32", "ring", "64"),
    ("ring=8192", "ring", "4096"),
    ("ring=0x100", "ring", "64"),
    ("batch=0", "batch", "1"),
    ("batch=65", "batch", "64"),
    ("batch=1.5", "batch", "64"),
    ("=drop", "", "program"),
    ("--help", "--help", "program"),
];

/// Config files that are refused, likewise.
const BAD_FILES: &[(&str, &str, &str)] = &[
    ("speed = \"fast\"\n", "speed", "program"),
    ("program = \"fly\"\n", "program", "reflect"),
    ("program = 7\n", "program", "reflect"),
    ("log = \"info\"\nring = 100\n", "ring", "power of two"),
    ("ring = \"many\"\n", "ring", "4096"),
    ("batch = 65\n", "batch", "64"),
    ("workers = 0\n", "workers", "all"),
    ("tx = \"fast\"\n", "tx", "shared"),
    ("idle = \"never\"\n", "idle", "poll"),
    ("rx = \"magic\"\n", "rx", "hardware"),
    ("log = \"loud\"\n", "log", "trace"),
    ("on-panic = \"later\"\n", "on-panic", "exit"),
    ("program = \"drop\"\nprogram = \"pass\"\n", "program", "once"),
    ("[port]\nring = 256\n", "port", "program"),
    ("program = \"drop\n", "", ""),
    ("ceci n'est pas une pipe\n", "", ""),
];

pub(crate) fn trials() -> Vec<Trial> {
    let words = BAD_WORDS.iter().map(|&(words, key, allowed)| {
        test(format!("refusals::words {words}"), move || refuses_words(words, key, allowed))
    });
    let files = BAD_FILES.iter().map(|&(file, key, allowed)| {
        test(format!("refusals::file {}", file.trim_end().escape_debug()), move || {
            refuses_file(file, key, allowed)
        })
    });
    let others = [
        test("refusals::words_over_long", || words_over_long(200)),
        test("refusals::words_longer_than_loaders_give", || words_over_long(400)),
        test("refusals::file_not_utf8", file_not_utf8),
        test("refusals::on_panic_itself", on_panic_itself),
        test("refusals::reason_can_be_read", reason_can_be_read),
        test("config::file_is_obeyed", file_is_obeyed),
        test("config::words_win_over_file", words_win_over_file),
    ];
    words.chain(files).chain(others).collect()
}

fn refuses_words(words: &str, key: &str, allowed: &str) -> Result<()> {
    let refusal = refusal(|machine| machine.words(words))?;
    check_refusal(&refusal, "command line", key, allowed, words)
}

fn refuses_file(text: &str, key: &str, allowed: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sluice.toml");
    fs::write(&path, text)?;
    let refusal = refusal(|machine| machine.config(&path))?;
    let line = text.lines().rfind(|line| line.contains(key)).unwrap_or("");
    check_refusal(&refusal, "module line ", key, allowed, line)
}

/// What the image said when it refused: the line that says so, and all lines from there on.
struct Refusal {
    line: String,
    rest: String,
}

/// Boots the image, which must refuse its configuration, exit, and forward nothing.
fn refusal(describe: impl FnOnce(Machine) -> Machine) -> Result<Refusal> {
    let sockets = tempfile::tempdir()?;
    let port = Endpoint::bind(sockets.path(), 0)?;
    let guest = describe(Machine::new(image()?).port(port.spec())).words("on-panic=exit").start()?;
    let exit_code = guest.wait_exit(PATIENCE)?;
    ensure!(exit_code == Some(EXIT_REFUSED), "exit code {exit_code:?}\n{}", guest.log());
    found_refusal(&guest)
}

fn found_refusal(guest: &Guest) -> Result<Refusal> {
    let log = guest.log();
    ensure!(!log.contains("sluice ready"), "it forwards all the same:\n{log}");
    let at =
        log.find("sluice refused: ").with_context(|| format!("it does not say that it refuses:\n{log}"))?;
    let (line, rest) = log[at..].split_once('\n').context("the line does not end")?;
    Ok(Refusal { line: line.to_owned(), rest: rest.to_owned() })
}

/// The refusal tells where, which key, what is allowed, and then quotes the line.
fn check_refusal(refusal: &Refusal, place: &str, key: &str, allowed: &str, quoted: &str) -> Result<()> {
    let Refusal { line, rest } = refusal;
    let (fault, allowed_values) =
        line.split_once("; allowed: ").with_context(|| format!("nothing allowed: {line}"))?;
    ensure!(fault.contains(place), "it does not say where: {line}");
    ensure!(fault.contains(key), "it does not name the key {key}: {line}");
    ensure!(line.contains(allowed), "it does not say that {allowed} is allowed: {line}");
    ensure!(!allowed_values.is_empty(), "it says that nothing is allowed: {line}");
    ensure!(rest.contains(quoted), "it does not show the line {quoted:?}:\n{line}\n{rest}");
    Ok(())
}

/// Longer than the image reads, or even longer than QEMU has room for (it overwrites its own boot information then).
/// What such a line says about the stop may be lost as well, so the test does not wait for an exit.
fn words_over_long(repetitions: usize) -> Result<()> {
    let words = "program=drop ".repeat(repetitions);
    let guest = Machine::new(image()?).words(words).start()?;
    let line = guest.wait_for_line(|line| line.starts_with("sluice refused: "), PATIENCE)?.text;
    ensure!(
        line.contains("command line") && line.contains("; allowed: ") && line.contains(" bytes"),
        "{line}"
    );
    ensure!(!guest.log().contains("sluice ready"), "it forwards all the same:\n{}", guest.log());
    Ok(())
}

fn file_not_utf8() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sluice.toml");
    fs::write(&path, b"program = \"\xff\xfe\"\n")?;
    let refusal = refusal(|machine| machine.config(&path))?;
    ensure!(refusal.line.contains("UTF-8"), "{}", refusal.line);
    Ok(())
}

/// There is no saying what the stop should do then: the image sleeps.
fn on_panic_itself() -> Result<()> {
    let guest = Machine::new(image()?).words("on-panic=later").start()?;
    guest.wait_for_line(|line| line == "on-panic=later", PATIENCE)?;
    check_refusal(&found_refusal(&guest)?, "command line", "on-panic", "exit", "on-panic=later")
}

/// Without `on-panic=exit` the machine stays as it is, so that the reason can be read.
fn reason_can_be_read() -> Result<()> {
    let guest = Machine::new(image()?).words("program=fly").on_reset(Reset::Reboots).start()?;
    guest.wait_for_line(|line| line == "program=fly", PATIENCE)?;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(guest.exited().is_none(), "QEMU has exited:\n{}", guest.log());
    ensure!(guest.log().matches("sluice refused").count() == 1, "it has booted again:\n{}", guest.log());
    Ok(())
}

/// Every key in a file, none on the command line.
fn file_is_obeyed() -> Result<()> {
    let rig = boot_with_file(
        "# a comment\nprogram = \"reflect\"\nworkers = 1\ntx = \"auto\"\nidle = \"poll\"\nrx = \"hardware\"\n\
         log = \"info\"\nring = 128\nbatch = 16\n",
        "",
    )?;
    let frame = frame(99, 1);
    rig.send(0, &frame)?;
    ensure!(rig.receive(0)? == reflected(&frame), "the file's program does not run");
    ensure!(rig.guest.log().contains("rx-ring=128"), "the file's ring is not used:\n{}", rig.guest.log());
    let cycles = |core| {
        rig.guest.metrics().map(|metrics| metrics.count("sluice_core_cycles_total", &[("core", core)]))
    };
    ensure!(cycles("0")? > 0 && cycles("1")? == 0, "the file's workers are not used:\n{}", rig.guest.log());
    rig.stop()?;
    Ok(())
}

fn words_win_over_file() -> Result<()> {
    let rig = boot_with_file("program = \"drop\"\nring = 64\n", "program=reflect")?;
    let frame = frame(99, 1);
    rig.send(0, &frame)?;
    ensure!(rig.receive(0)? == reflected(&frame), "the word does not win");
    ensure!(rig.guest.log().contains("rx-ring=64"), "the rest of the file is not used:\n{}", rig.guest.log());
    rig.stop()?;
    Ok(())
}

fn boot_with_file(text: &str, words: &str) -> Result<Rig> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sluice.toml");
    fs::write(&path, text)?;
    Rig::boot(1, |machine| machine.cpus(2).config(&path).words(words))
}

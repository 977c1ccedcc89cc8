//! The host command as people call it.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::frames::frame;
use crate::harness::{ISO_TOOLS, test, test_with};
use crate::process::{Background, output, run};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("cli::demo_succeeds", demo_succeeds),
        test("cli::demo_fails_when_a_frame_is_lost", demo_fails_when_a_frame_is_lost),
        test("cli::demo_replays_pcap", || demo_replays("capture.pcap", pcap)),
        test("cli::demo_replays_pcapng", || demo_replays("capture.pcapng", pcapng)),
        test("cli::run_passes_on_what_is_typed", run_passes_on_what_is_typed),
        test("cli::run_fails_when_the_image_refuses", run_fails_when_the_image_refuses),
        test_with(&ISO_TOOLS, "cli::iso_boots_as_a_cdrom", iso_boots_as_a_cdrom),
    ]
}

fn demo_succeeds() -> Result<()> {
    run(&[SLUICE, "demo", "--frames", "5000"]).map(drop)
}

fn demo_fails_when_a_frame_is_lost() -> Result<()> {
    let output = output(&[SLUICE, "demo", "--frames", "5000", "--lose", "5"])?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {reason}", output.status);
    ensure!(reason.contains("1 frame") && reason.contains("lost"), "the reason is not clear: {reason}");
    Ok(())
}

/// Replays 500 frames of all sizes from a file in one of the two formats.
fn demo_replays(name: &str, write: fn(&[Vec<u8>]) -> Vec<u8>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    let frames: Vec<_> = (0..500).map(|number| frame(60 + number * 37 % 1455, number)).collect();
    fs::write(&path, write(&frames))?;
    let table = run(&[SLUICE, "demo", "--pcap", display(&path)])?;
    ensure!(table.contains("500"), "the table does not tell of 500 frames:\n{table}");
    Ok(())
}

fn run_passes_on_what_is_typed() -> Result<()> {
    let mut sluice = Background::start(&[SLUICE, "run", "--port", "user", "--", "program=drop"])?;
    sluice.wait_for_line("sluice ready ")?;
    sluice.type_line("metrics")?;
    sluice.wait_for_line("sluice_pool_free_packets ")?;
    sluice.type_line("stop")?;
    sluice.wait_for_line("sluice stopped ")?;
    let status = sluice.wait_for_end()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

fn run_fails_when_the_image_refuses() -> Result<()> {
    let output = output(&[SLUICE, "run", "--port", "user", "--", "program=fly"])?;
    ensure!(output.status.code() == Some(1), "{}", output.status);
    let console = String::from_utf8_lossy(&output.stdout);
    ensure!(
        console.contains("sluice refused: command line: program: "),
        "the reason is not shown: {console}"
    );
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(error.contains("the image refused its configuration"), "the error is not clear: {error}");
    Ok(())
}

/// What `sluice iso` writes boots by itself; its words are in it.
fn iso_boots_as_a_cdrom() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sluice.iso");
    let iso = display(&path);
    run(&[SLUICE, "iso", "--words", "program=drop log=debug", "--output", iso])?;
    let command =
        "qemu-system-x86_64 -M q35 -m 64 -nodefaults -display none -serial stdio -nic user,model=virtio";
    let words: Vec<_> = command.split(' ').chain(["-cdrom", iso]).collect();
    let mut qemu = Background::start(&words)?;
    qemu.wait_for_line("DEBUG")?;
    qemu.wait_for_line("sluice ready ")?;
    Ok(())
}

fn display(path: &Path) -> &str {
    path.to_str().expect("temporary paths are plain ASCII")
}

/// The classic format (libpcap, `pcap-savefile(5)`): a file header, then each frame behind a header of its own.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, LINKTYPE_ETHERNET]);
    for frame in frames {
        let length = frame.len() as u32;
        file.extend(words(&[0, 0, length, length]));
        file.extend(frame);
    }
    file
}

/// The next generation (IETF draft pcapng): section header, interface description, then a block for each frame.
fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    file.extend(block(1, &words(&[LINKTYPE_ETHERNET, 0xffff])));
    for frame in frames {
        let length = frame.len() as u32;
        let mut body = words(&[0, 0, 0, length, length]);
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    file
}

const LINKTYPE_ETHERNET: u32 = 1;

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32 + 12;
    [&words(&[kind, length]), body, &words(&[length])].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

//! The image boots on every machine, through every loader, with few and many cores, little and much memory.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::{Boot, Chipset, Machine};

use crate::frames::{frame, reflected};
use crate::harness::{ISO_TOOLS, Need, test, test_with};
use crate::rig::Rig;

const OVMF: Need = Need::File("/usr/share/OVMF/OVMF_CODE_4M.fd");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("boot::pvh_on_q35", || boots(|machine| machine.chipset(Chipset::Q35))),
        test("boot::pvh_on_pc", || boots(|machine| machine.chipset(Chipset::Pc))),
        test("boot::pvh_on_microvm", || boots(|machine| machine.chipset(Chipset::Microvm))),
        test_with(&ISO_TOOLS, "boot::bios_iso", || boots(|machine| machine.boot(Boot::IsoBios))),
        test_with(&[&ISO_TOOLS[..], &[OVMF]].concat(), "boot::uefi_iso", || {
            boots(|machine| machine.boot(Boot::IsoUefi).memory_mib(256))
        }),
        test("boot::one_core", || boots_with_cores(1)),
        test("boot::two_cores", || boots_with_cores(2)),
        test("boot::four_cores", || boots_with_cores(4)),
        test("boot::seventy_two_cores", || boots_with_cores(72)),
        test("boot::memory_of_32_mib", || boots(|machine| machine.memory_mib(32))),
        test("boot::memory_of_6_gib", || boots(|machine| machine.memory_mib(6 * 1024))),
        test("boot::old_processor", || boots(|machine| machine.extra_args(["-cpu", "qemu64"]))),
    ]
}

fn boots_with_cores(cores: usize) -> Result<()> {
    boots_as(cores, |machine| machine.cpus(cores).memory_mib(128))
}

fn boots(describe: impl FnOnce(Machine) -> Machine) -> Result<()> {
    boots_as(1, describe)
}

/// The image gets ready once, with all its cores, reflects frames and gives back every buffer.
fn boots_as(cores: usize, describe: impl FnOnce(Machine) -> Machine) -> Result<()> {
    let rig = Rig::boot(1, |machine| describe(machine.words("program=reflect")))?;
    ensure!(rig.ready.cores == cores, "{} of {cores} cores forward", rig.ready.cores);
    for seed in 0..20 {
        let frame = frame(60 + 70 * seed, seed);
        rig.send(0, &frame)?;
        ensure!(rig.receive(0)? == reflected(&frame), "a frame of {} bytes came back changed", frame.len());
    }
    let ready = rig.guest.lines().iter().filter(|line| line.text.starts_with("sluice ready")).count();
    ensure!(ready == 1, "{ready} lines say that the image is ready");
    rig.stop()?;
    Ok(())
}

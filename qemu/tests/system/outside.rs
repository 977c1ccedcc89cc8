//! The image for people who start QEMU themselves: these command lines, and nothing of this project around them.

use std::os::unix::net::UnixDatagram;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::frames::{frame, reflected};
use crate::harness::test;
use crate::image::image;
use crate::process::{Background, PATIENCE};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("outside::q35_reflects", || reflects("q35")),
        test("outside::pc_reflects", || reflects("pc")),
        test("outside::microvm_reflects", || reflects("microvm,pcie=on")),
    ]
}

/// Boots the image by hand as `-M machine` and has 100 frames of any program reflected.
fn reflects(machine: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    let socket = UnixDatagram::bind(&ours)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;

    let elf = image()?.elf.display().to_string();
    let netdev = format!(
        "dgram,id=n0,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        theirs.display(),
        ours.display()
    );
    let mut command =
        format!("qemu-system-x86_64 -M {machine} -m 64 -nodefaults -display none -serial stdio");
    command.push_str(" -device virtio-net-pci,netdev=n0 -append program=reflect");
    let mut words: Vec<_> = command.split(' ').collect();
    words.extend(["-kernel", &elf, "-netdev", &netdev]);

    let mut qemu = Background::start(&words)?;
    qemu.wait_for_line("sluice ready")?;

    for number in 0..100 {
        let frame = frame(60 + 14 * number, number);
        socket.send_to(&frame, &theirs)?;
        let mut answer = [0; 2048];
        let length = socket.recv(&mut answer).with_context(|| format!("frame {number} did not come back"))?;
        ensure!(answer[..length] == reflected(&frame), "frame {number} came back changed");
    }
    Ok(())
}

//! Who forwards: what boots, and what it is told to do.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::{Accel, Artefact, Machine, emulator, process};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Work {
    /// Out of the port that it came in at, with its addresses swapped.
    Reflect,
    /// Out of the other one of two ports, as it is.
    Forward,
    /// Nothing.
    Drop,
}

impl Work {
    /// As Sluice's setting, the section of the XDP program and the table have it.
    pub(in crate::bench) fn name(self) -> &'static str {
        match self {
            Work::Reflect => "reflect",
            Work::Forward => "forward",
            Work::Drop => "drop",
        }
    }

    /// How many ports it takes.
    pub(in crate::bench) fn ports(self) -> usize {
        match self {
            Work::Reflect | Work::Drop => 1,
            Work::Forward => 2,
        }
    }
}

/// A system that forwards.
pub(in crate::bench) struct Contestant {
    system: System,
    artefact: Artefact,
}

enum System {
    Sluice,
    /// Debian's kernel, with XDP programs on its virtio-net driver; see scripts/setup-peers.sh.
    Linux {
        initrd: PathBuf,
    },
}

impl Contestant {
    /// Sluice, built if need be.
    pub(in crate::bench) fn sluice() -> Result<Contestant> {
        Ok(Contestant { system: System::Sluice, artefact: Artefact::build()? })
    }

    /// The Linux guest that the set-up has made.
    pub(in crate::bench) fn linux() -> Result<Contestant> {
        let folder = emulator::cache()?.join("peers");
        let (kernel, initrd) = (folder.join("vmlinuz"), folder.join("linux.initrd"));
        ensure!(kernel.is_file() && initrd.is_file(), "no Linux guest; {} --peers makes one", process::SETUP);
        let artefact = Artefact { elf: kernel.clone(), symbols: kernel };
        Ok(Contestant { system: System::Linux { initrd }, artefact })
    }

    pub(in crate::bench) fn name(&self) -> &'static str {
        match self.system {
            System::Sluice => "Sluice",
            System::Linux { .. } => "Linux, XDP",
        }
    }

    /// Bytes of what QEMU loads.
    pub(in crate::bench) fn size(&self) -> Result<u64> {
        let initrd = match &self.system {
            System::Sluice => 0,
            System::Linux { initrd } => initrd.metadata()?.len(),
        };
        Ok(self.artefact.size()? + initrd)
    }

    /// The machine, but for its ports.
    pub(in crate::bench) fn machine(&self, work: Work, cores: usize, memory_mib: usize) -> Machine {
        let machine = Machine::new(&self.artefact).accel(Accel::Tcg).extra_args(["-cpu", "max"]);
        let machine = machine.cpus(cores).memory_mib(memory_mib).words(format!("program={}", work.name()));
        match &self.system {
            System::Sluice => machine.words("on-panic=exit"),
            // The kernel without what guards it from guests of its own, and without its messages, which take time.
            System::Linux { initrd } => {
                machine.words("console=ttyS0 quiet panic=-1 mitigations=off").config(initrd)
            }
        }
    }
}

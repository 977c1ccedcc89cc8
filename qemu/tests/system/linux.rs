//! A Linux guest: Debian's kernel, with drivers that others wrote, and a shell on its console.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu::{Artefact, Guest, Machine, PortSpec, Reset, emulator};

/// How long a command of the guest may take, and its boot: an emulated processor on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(180);

/// Which programs the guest has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Programs {
    /// busybox, iperf3 and ethtool.
    Linux,
    /// These, and DPDK's testpmd.
    Dpdk,
}

/// A booted Linux guest.
pub(crate) struct LinuxGuest {
    guest: Guest,
}

impl LinuxGuest {
    /// Boots it with so many cores and these ports. No driver of a card is loaded yet.
    pub(crate) fn boot(programs: Programs, cpus: usize, ports: &[PortSpec]) -> Result<Self> {
        let folder = emulator::cache()?.join("guest");
        let initrd = match programs {
            Programs::Linux => "linux.initrd",
            Programs::Dpdk => "dpdk.initrd",
        };
        let kernel = folder.join("vmlinuz");
        let machine = Machine::new(&Artefact { elf: kernel.clone(), symbols: kernel })
            .cpus(cpus)
            .memory_mib(768)
            .words("console=ttyS0 quiet panic=-1 mitigations=off")
            .config(folder.join(initrd))
            .on_reset(Reset::Exits)
            .time_limit(Some(Duration::from_secs(600)))
            .extra_args(["-cpu", "max"]);
        let guest = ports.iter().cloned().fold(machine, Machine::port).start()?;
        guest.wait_for_line(|line| line == "guest ready", PATIENCE).context("Linux did not boot")?;
        Ok(Self { guest })
    }

    /// Runs a command to its successful end; returns what it printed.
    pub(crate) fn run(&self, command: &str) -> Result<String> {
        let (status, output) = self.try_run(command)?;
        ensure!(status == 0, "`{command}` in the guest ended with {status}: {output}");
        Ok(output)
    }

    /// Runs a command to its end; returns its exit status, and what it printed.
    pub(crate) fn try_run(&self, command: &str) -> Result<(u8, String)> {
        let begin = self.guest.lines().len();
        self.guest.send_command(command)?;
        let mut lines = Vec::new();
        let mut seen = 0;
        let mut status = None;
        self.guest
            .wait_for_line(
                |line| {
                    seen += 1;
                    if seen <= begin {
                        return false;
                    }
                    status = line.strip_prefix("status ").and_then(|number| number.parse().ok());
                    lines.push(line.to_owned());
                    status.is_some()
                },
                PATIENCE,
            )
            .with_context(|| format!("`{command}` in the guest has no end"))?;
        lines.pop();
        Ok((status.context("no status")?, lines.join("\n")))
    }

    /// Runs a command again and again until it succeeds; returns what it printed.
    pub(crate) fn wait_for(&self, command: &str) -> Result<String> {
        let patient = format!(
            "n=0; until {command} >/dev/null; do n=$((n+1)); [ $n -lt 200 ] || break; sleep 0.2; done; {command}"
        );
        self.run(&patient)
    }
}

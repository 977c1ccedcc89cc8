//! A virtual machine, described but not yet started.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::guest::{Guest, LineHook};
use crate::ports::{Bus, MAX_PORTS, PortSpec, Rings, Surroundings, escape};
use crate::{Accel, Artefact, Iso, emulator, process};

/// The I/O port of the exit device, QEMU's own default.
const EXIT_PORT: &str = "0x501";
/// The name of the guest's memory where others share it.
const SHARED_MEMORY: &str = "memory";
/// The UEFI firmware of Debian and Ubuntu: code, and the variables that each machine gets a copy of.
const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const OVMF_VARS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// QEMU's machine type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Chipset {
    /// PCI Express and ECAM.
    Q35,
    /// Conventional PCI through ports CF8/CFC.
    Pc,
    /// No firmware tables but the least, with PCI Express.
    Microvm,
}

impl Chipset {
    fn argument(self) -> &'static str {
        match self {
            Self::Q35 => "q35",
            Self::Pc => "pc",
            Self::Microvm => "microvm,pcie=on",
        }
    }
}

/// How the image comes into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    /// QEMU loads the ELF and enters it through PVH.
    Direct,
    /// SeaBIOS boots the ISO; GRUB loads the ELF through Multiboot2.
    IsoBios,
    /// OVMF boots the ISO; GRUB loads the ELF through Multiboot2.
    IsoUefi,
}

/// A virtual machine, described but not yet started.
///
/// The defaults: q35, one core, 64 MiB, no port, booted directly, the best accelerator, ended after two minutes.
pub struct Machine {
    artefact: Artefact,
    cpus: usize,
    memory_mib: usize,
    chipset: Chipset,
    accel: Accel,
    boot: Boot,
    ports: Vec<PortSpec>,
    rings: Rings,
    words: String,
    config: Option<PathBuf>,
    extra: Vec<OsString>,
    limit: Option<Duration>,
    reset: Reset,
    hook: Option<LineHook>,
}

/// What QEMU does when the guest resets the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// QEMU exits.
    Exits,
    /// The machine boots again.
    Reboots,
}

impl Machine {
    /// A machine that boots this image.
    pub fn new(artefact: &Artefact) -> Self {
        Self {
            artefact: artefact.clone(),
            cpus: 1,
            memory_mib: 64,
            chipset: Chipset::Q35,
            accel: Accel::detect(),
            boot: Boot::Direct,
            ports: Vec::new(),
            rings: Rings::default(),
            words: String::new(),
            config: None,
            extra: Vec::new(),
            limit: Some(Duration::from_secs(120)),
            reset: Reset::Exits,
            hook: None,
        }
    }

    /// The number of virtual cores.
    #[must_use]
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.cpus = cpus;
        self
    }

    /// The memory in MiB.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: usize) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// The machine type.
    #[must_use]
    pub fn chipset(mut self, chipset: Chipset) -> Self {
        self.chipset = chipset;
        self
    }

    /// The accelerator, instead of the best one.
    #[must_use]
    pub fn accel(mut self, accel: Accel) -> Self {
        self.accel = accel;
        self
    }

    /// How the image is loaded.
    #[must_use]
    pub fn boot(mut self, boot: Boot) -> Self {
        self.boot = boot;
        self
    }

    /// One more port; ports are numbered in the order of these calls.
    #[must_use]
    pub fn port(mut self, port: PortSpec) -> Self {
        self.ports.push(port);
        self
    }

    /// The rings of its virtio cards.
    #[must_use]
    pub fn rings(mut self, rings: Rings) -> Self {
        self.rings = rings;
        self
    }

    /// Words for the command line, behind those given before.
    #[must_use]
    pub fn words(mut self, words: impl AsRef<str>) -> Self {
        let separator = if self.words.is_empty() { "" } else { " " };
        self.words.push_str(separator);
        self.words.push_str(words.as_ref());
        self
    }

    /// The TOML file that is handed over as first module.
    #[must_use]
    pub fn config(mut self, config: impl Into<PathBuf>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// More arguments of QEMU, behind all others.
    #[must_use]
    pub fn extra_args<I: IntoIterator<Item: Into<OsString>>>(mut self, arguments: I) -> Self {
        self.extra.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// When QEMU is killed whatever it does; `None` lets it run for ever.
    #[must_use]
    pub fn time_limit(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit;
        self
    }

    /// What happens when the image resets the machine, by default an exit of QEMU.
    #[must_use]
    pub fn on_reset(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// A function that is called with every line of the console as it arrives, on the thread that reads it.
    #[must_use]
    pub fn on_line(mut self, hook: impl FnMut(&str) + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Starts QEMU.
    ///
    /// # Errors
    /// When QEMU, or a tool or firmware for the way of booting, is missing, or the description makes no sense.
    pub fn start(mut self) -> Result<Guest> {
        let scratch =
            tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
        let command = self.command(scratch.path())?;
        self.ports.iter().try_for_each(PortSpec::check)?;
        let hook = self.hook.take();
        Guest::spawn(command, self.limit, hook, scratch)
    }

    /// The command that [`Self::start`] would run, quoted for a shell.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn shell_command(&self) -> Result<String> {
        let scratch = scratch()?;
        let command = self.command(scratch.path())?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        shlex::try_join(words.iter().map(String::as_str)).context("an argument holds a NUL")
    }

    /// The command line of QEMU; files that only this machine needs are made in `scratch`.
    fn command(&self, scratch: &Path) -> Result<Command> {
        let qemu = if self.has_whole_cards() { emulator::path_for_whole_cards()? } else { emulator::path()? };
        let mut command = Command::new(qemu);
        self.add_arguments(&mut command, scratch)?;
        Ok(command)
    }

    fn add_arguments(&self, command: &mut Command, scratch: &Path) -> Result<()> {
        ensure!(self.ports.len() <= MAX_PORTS, "{} ports; at most {MAX_PORTS} fit", self.ports.len());
        let has_express = self.chipset == Chipset::Q35 || !self.has_whole_cards();
        ensure!(has_express, "a vfio-user port needs root ports and firmware: machine q35");
        if let Some(config) = &self.config {
            ensure!(config.is_file(), "the configuration {} is no file", config.display());
        }
        command
            .args(["-machine", &self.machine_argument(), "-accel", self.accel.argument()])
            .args(["-m", &format!("{}M", self.memory_mib), "-smp", &self.cpus.to_string()])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"])
            .args(["-device", &format!("isa-debug-exit,iobase={EXIT_PORT}")]);
        if self.shares_memory() {
            let memory =
                format!("memory-backend-memfd,id={SHARED_MEMORY},size={}M,share=on", self.memory_mib);
            command.args(["-object", &memory]);
        }
        if self.accel == Accel::Kvm {
            command.args(["-cpu", "host"]);
        }
        if self.reset == Reset::Exits {
            command.arg("-no-reboot");
        }
        match self.boot {
            Boot::Direct => self.add_kernel(command),
            Boot::IsoBios => self.add_iso(command, scratch)?,
            Boot::IsoUefi => {
                add_uefi(command, scratch)?;
                self.add_iso(command, scratch)?;
            }
        }
        let bus = if self.has_whole_cards() { Bus::Own } else { Bus::Common };
        let surroundings = Surroundings { accel: self.accel, bus, rings: self.rings };
        for (index, port) in self.ports.iter().enumerate() {
            command.args(port.arguments(index, surroundings));
        }
        command.args(&self.extra);
        Ok(())
    }

    fn machine_argument(&self) -> String {
        let chipset = self.chipset.argument();
        if self.shares_memory() {
            format!("{chipset},memory-backend={SHARED_MEMORY}")
        } else {
            chipset.into()
        }
    }

    /// Whether a port is a card that another process holds.
    fn has_whole_cards(&self) -> bool {
        self.ports.iter().any(PortSpec::is_whole_card)
    }

    /// Whether a port needs to reach the guest's memory from another process.
    fn shares_memory(&self) -> bool {
        self.ports.iter().any(PortSpec::needs_shared_memory)
    }

    fn add_kernel(&self, command: &mut Command) {
        command.arg("-kernel").arg(&self.artefact.elf);
        if !self.words.is_empty() {
            command.args(["-append", &self.words]);
        }
        if let Some(config) = &self.config {
            command.arg("-initrd").arg(config);
        }
    }

    fn add_iso(&self, command: &mut Command, scratch: &Path) -> Result<()> {
        ensure!(self.chipset != Chipset::Microvm, "microvm has no drive to boot an ISO from");
        let iso = scratch.join("sluice.iso");
        Iso::new(&self.artefact).words(&self.words).config(self.config.clone()).write(&iso)?;
        let drive = format!("if=none,id=iso,format=raw,readonly=on,file={}", escape(&iso.to_string_lossy()));
        command.args(["-drive", &drive, "-device", "ide-cd,drive=iso,bootindex=0"]);
        Ok(())
    }
}

/// A folder for the files that only one machine needs.
fn scratch() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("sluice-")
        .tempdir()
        .context("cannot create a folder for the machine's files")
}

/// OVMF and a private copy of its variables.
fn add_uefi(command: &mut Command, scratch: &Path) -> Result<()> {
    let vars = scratch.join("vars.fd");
    fs::copy(OVMF_VARS, &vars).with_context(|| {
        format!("{OVMF_VARS} is missing (Debian package ovmf); {} installs it", process::SETUP)
    })?;
    let vars = escape(&vars.to_string_lossy());
    command
        .args(["-drive", &format!("if=pflash,unit=0,format=raw,readonly=on,file={OVMF_CODE}")])
        .args(["-drive", &format!("if=pflash,unit=1,format=raw,file={vars}")]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_arguments(machine: &Machine) -> Result<String> {
        let mut command = Command::new("qemu");
        machine.add_arguments(&mut command, Path::new("/nonexistent"))?;
        Ok(command.get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    fn arguments(machine: &Machine) -> String {
        try_arguments(machine).unwrap()
    }

    fn machine() -> Machine {
        Machine::new(&Artefact { elf: "/x/sluice.elf".into(), symbols: "/x/sluice.sym.elf".into() })
    }

    #[test]
    fn a_direct_boot_hands_over_words_and_config() {
        let config = tempfile::NamedTempFile::new().unwrap();
        let text = arguments(&machine().words("program=drop").words("log=debug").config(config.path()));
        let expected = "-kernel /x/sluice.elf -append program=drop log=debug -initrd ";
        assert!(text.contains(&format!("{expected}{}", config.path().display())), "{text}");
    }

    #[test]
    fn the_description_reaches_the_command_line() {
        let text = arguments(&machine().cpus(4).memory_mib(32).chipset(Chipset::Microvm).accel(Accel::Tcg));
        assert!(text.starts_with("-machine microvm,pcie=on -accel tcg,thread=multi -m 32M -smp 4"), "{text}");
        assert!(text.contains("-no-reboot"), "{text}");
        let text = arguments(&machine().port(PortSpec::User).port(PortSpec::User).rings(Rings::Packed));
        assert_eq!(text.matches(",packed=on").count(), 2, "{text}");
        let text = arguments(&machine().on_reset(Reset::Reboots).port(PortSpec::User).extra_args(["-S"]));
        assert!(
            !text.contains("-no-reboot") && text.contains("netdev=port0") && text.ends_with("-S"),
            "{text}"
        );
    }

    #[test]
    fn memory_is_shared_only_where_a_port_needs_it() {
        assert!(!arguments(&machine().port(PortSpec::User)).contains("memory-backend"));
        let vhost_user = PortSpec::VhostUser { socket: "/run/a".into(), queues: 1 };
        let text = arguments(&machine().memory_mib(48).chipset(Chipset::Pc).port(vhost_user));
        assert!(text.starts_with("-machine pc,memory-backend=memory "), "{text}");
        assert!(
            text.contains("-m 48M")
                && text.contains("-object memory-backend-memfd,id=memory,size=48M,share=on")
        );
    }

    #[test]
    fn beside_a_card_of_another_process_every_port_has_a_bus_of_its_own() {
        let card = PortSpec::VfioUser { socket: "/run/a".into() };
        let text = arguments(&machine().port(PortSpec::User).port(card));
        assert!(text.contains("-object memory-backend-memfd"), "{text}");
        assert!(text.contains("id=root0") && text.contains("bus=root0"), "{text}");
        assert!(text.contains("id=root1") && text.contains("vfio-user-pci"), "{text}");
    }

    #[test]
    fn a_machine_that_cannot_be_is_refused() {
        let crowded = (0..=MAX_PORTS).fold(machine(), |machine, _| machine.port(PortSpec::User));
        assert!(try_arguments(&crowded).unwrap_err().to_string().contains("at most"));
        let unconfigured = machine().config("/no/such/file");
        assert!(try_arguments(&unconfigured).unwrap_err().to_string().contains("/no/such/file"));
        let microvm = machine().chipset(Chipset::Microvm).boot(Boot::IsoBios);
        assert!(try_arguments(&microvm).unwrap_err().to_string().contains("microvm"));
        let card = machine().chipset(Chipset::Pc).port(PortSpec::VfioUser { socket: "/run/a".into() });
        assert!(try_arguments(&card).unwrap_err().to_string().contains("q35"));
    }
}

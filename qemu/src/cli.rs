//! The command line of `sluice`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::bench::Bench;
use crate::flows::MAX_FLOWS;
use crate::plug::Plug;
use crate::ports::Rings;
use crate::{Accel, Chipset};

/// Builds the Sluice packet forwarder and boots it in QEMU.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, bin_name = "cargo run --")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `sluice` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build the image: target/sluice/sluice.elf, and its symbols beside it.
    Build,
    /// Boot the image in QEMU with its serial console on the terminal; type `metrics` or `stop`.
    Run(RunOptions),
    /// Send checked traffic through the image in both directions and show what became of it.
    Demo(DemoOptions),
    /// Write an ISO that boots the image by BIOS and by UEFI.
    Iso(IsoOptions),
    /// Measure; the tables are also written as JSON.
    #[command(subcommand)]
    Bench(Bench),
}

/// The virtual machine.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// Virtual cores [default: 2 for demo, 1 for run].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cpus: Option<u16>,
    /// Memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..))]
    pub memory: u32,
    /// Machine type.
    #[arg(long, value_enum, default_value_t = Chipset::Q35)]
    pub machine: Chipset,
    /// Accelerator, instead of KVM where it works and TCG elsewhere.
    #[arg(long, value_enum)]
    pub accel: Option<Accel>,
    /// The rings of virtio cards.
    #[arg(long, value_enum, default_value_t)]
    pub rings: Rings,
    /// Words for the image's command line, such as program=reflect.
    #[arg(last = true, value_name = "WORDS")]
    pub words: Vec<String>,
}

/// Options of `sluice run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// A port: dgram:LOCAL,REMOTE (unix sockets), tap:NAME[,queues=N], vhost-user:SOCKET[,queues=N], vhost-user:queues=N
    /// (1,000 UDP flows in, all that comes out counted), vfio-user:SOCKET, vfio:ADDRESS (a card of this machine), user, or
    /// an Intel card: 82599, x540 or x550 (the same flows), or a virtual function of one: 82599vf, x540vf or x550vf, each
    /// with :dgram:LOCAL,REMOTE or :tap:NAME for its cable; once for each port, numbered in this order
    /// [default: one user port].
    #[arg(long = "port", value_name = "SPEC")]
    pub ports: Vec<Plug>,
    /// Configuration in TOML, handed over as first module.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the QEMU command before it runs.
    #[arg(long)]
    pub show_command: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineOptions,
}

/// Options of `sluice demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Frames to send in each direction.
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub frames: u64,
    /// Flows that the frames of each direction belong to.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FLOWS)))]
    pub flows: u32,
    /// Replay a capture (pcap or pcapng) in at port 0 instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frames", "flows"])]
    pub pcap: Option<PathBuf>,
    /// Keep the image's console in a file.
    #[arg(long, value_name = "FILE")]
    pub keep_log: Option<PathBuf>,
    /// Drop the N-th received frame on purpose, to see the check fail.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub lose: Option<u64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineOptions,
}

/// Options of `sluice iso`.
#[derive(Debug, Args)]
pub struct IsoOptions {
    /// Words for the image's command line, such as "program=reflect workers=2".
    #[arg(long, default_value = "")]
    pub words: String,
    /// Configuration in TOML, handed over as first module.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to write the ISO [default: target/sluice/sluice.iso].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::PortSpec;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_ports_in_order_and_words_at_the_end() {
        let line = "sluice run --port tap:a,queues=2 --port user --cpus 4 --machine microvm -- program=drop log=debug";
        let Ok(Command::Run(options)) = parse(line) else { panic!("not parsed") };
        let ports = [PortSpec::Tap { name: "a".into(), queues: 2 }, PortSpec::User].map(Plug::Outside);
        assert_eq!(options.ports, ports);
        assert_eq!(options.machine.cpus, Some(4));
        assert_eq!(options.machine.machine, Chipset::Microvm);
        assert_eq!(options.machine.words, ["program=drop", "log=debug"]);
    }

    #[test]
    fn a_wrong_option_is_a_usage_error() {
        for line in [
            "sluice",
            "sluice bench-of-nothing",
            "sluice run --port bridge:x",
            "sluice run --cpus 0",
            "sluice demo --flows 0",
            "sluice demo --lose 0",
            "sluice demo --pcap a --frames 5",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}

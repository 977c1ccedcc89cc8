//! `sluice bench …`: how fast it is, and what each part of it costs.

pub mod budgets;
mod card;
mod cpu;
mod growth;
mod guest;
pub mod instructions;
mod ixgbe;
mod locks;
mod measure;
mod native;
mod ring;
mod sharing;
mod sheet;
mod tables;
mod vm;
mod walk;

use anyhow::Result;
use clap::{Args, Subcommand};
use forwarder::steer::RxMode;

pub use self::budgets::BudgetOptions;
pub use self::growth::GrowthOptions;
pub use self::ixgbe::{IxgbeOptions, WalkIxgbeOptions};
pub use self::native::{BackendOptions, Format, NativeOptions, Work};
pub use self::tables::TablesOptions;
pub use self::vm::VmOptions;
use self::walk::Setup;
pub use self::walk::Way;

/// What there is to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Kinds of locks around a shared TX queue, on two threads and on more threads than cores.
    Locks,
    /// The driver of Intel's cards before an 82599 in shared memory: bursts of 1 to 64, rings of 64 to 4096.
    Ixgbe(IxgbeOptions),
    /// Driver and worker in this process, before a vhost-user backend that polls on another core.
    Native(NativeOptions),
    /// The backend of `native` alone, for other frontends (split and packed rings, one queue pair).
    Backend(BackendOptions),
    /// What each stage costs a packet, beside what is allowed (qemu/budgets.json).
    Budgets(BudgetOptions),
    /// Instructions a packet as flows, ports, cores and rings grow.
    Growth(GrowthOptions),
    /// What sharing TX queues costs: in this process, instruction by instruction, and in QEMU.
    Sharing,
    /// What the authors of patches for Linux and Open vSwitch measured, with Sluice in their place.
    Tables(TablesOptions),
    /// A machine in QEMU: packets a second, time to the first frame, least memory.
    Vm(VmOptions),
    /// One worker for so many bursts: what counters of instructions run.
    #[command(hide = true)]
    Walk(WalkOptions),
    /// The same before an Intel card in shared memory.
    #[command(hide = true)]
    WalkIxgbe(WalkIxgbeOptions),
}

/// Options of `sluice bench walk`.
#[derive(Debug, Args)]
pub struct WalkOptions {
    /// The worker's way out.
    #[arg(long, value_enum)]
    pub way: Way,
    /// Packets in a burst.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batch: u16,
    /// Workers, which have their rounds in turn.
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// Ports; several forward.
    #[arg(long, default_value_t = 1)]
    pub ports: usize,
    /// Descriptors in a ring.
    #[arg(long, default_value_t = walk::RING)]
    pub ring: usize,
    /// Flows at each receive queue.
    #[arg(long, default_value_t = 1)]
    pub flows: u32,
    /// One receive queue feeds all workers (`rx=software`).
    #[arg(long)]
    pub spread: bool,
    /// Bursts.
    #[arg(long)]
    pub bursts: u64,
}

impl WalkOptions {
    fn setup(&self) -> Setup {
        let WalkOptions { way, batch, workers, ports, ring, flows, spread, .. } = *self;
        let rx = if spread { RxMode::Software } else { RxMode::Hardware };
        Setup { workers, way, batch: usize::from(batch), ports, ring, flows, rx }
    }
}

/// Measures.
///
/// # Errors
/// When the machine can't run what is to be measured.
pub fn bench(what: &Bench) -> Result<()> {
    match what {
        Bench::Locks => sheet::publish("locks", &locks::compare()?),
        Bench::Ixgbe(options) => sheet::publish("ixgbe", &ixgbe::measure(options)?),
        Bench::Native(options) => sheet::publish("native", &native::measure(options)?),
        Bench::Backend(options) => native::serve(options),
        Bench::Budgets(options) => budgets::bench(options),
        Bench::Growth(options) => sheet::publish("growth", &growth::count(options)?),
        Bench::Sharing => sheet::publish("sharing", &sharing::measure()?),
        Bench::Tables(options) => sheet::publish("tables", &tables::measure(options)?),
        Bench::Vm(options) => sheet::publish("vm", &vm::measure(options)?),
        Bench::WalkIxgbe(options) => ixgbe::walk(options),
        Bench::Walk(options) => walk::walk(options.setup(), options.bursts),
    }
}

//! Instructions of a packet's walk, counted by valgrind's callgrind: exact, and the same on a busy machine.
//!
//! A worker runs twice, for different numbers of bursts. What differs between the counts is the bursts'.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use forwarder::steer::RxMode;

use super::ixgbe;
use super::sheet::{Entry, Sheet};
use super::walk::{CHORES_MS, PACKETS, Setup, Way};
use crate::process;

/// Bursts of the shorter run and of the longer one.
const BURSTS: [u64; 2] = [200 * CHORES_MS, 400 * CHORES_MS];

/// The fewest bursts at a receive queue: a ring has gone around, and caches of buffers are full.
const FEWEST: u64 = 16 * CHORES_MS;

/// What one burst costs a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstCost {
    /// Instructions.
    pub instructions: f64,
    /// Those of them that change a word of memory atomically: with a `lock` prefix, or an `xchg` with memory, which has
    /// it implied. Every lock is taken by one.
    pub atomic: f64,
    /// Full memory fences: `mfence`, or the `lock or` of nothing to the thread's own stack that compilers prefer. A
    /// virtio driver needs one wherever it publishes buffers and then looks whether the device wants to be told (virtio 1.2,
    /// 2.7.10.1).
    pub fences: f64,
}

/// A part of a packet's walk, by the function that it is in: those are never inlined into each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The driver takes frames from the ring, and arms it again.
    Receive,
    /// The worker: counters, verdicts, what becomes of them, the doorbell.
    Verdict,
    /// The driver puts frames into the ring.
    Transmit,
    /// The driver sends buffers home.
    Reclaim,
    /// The card's side of the rings, which is the benchmark's own.
    Device,
}

impl Stage {
    /// Those that are ours.
    pub const ALL: [Stage; 4] = [Stage::Receive, Stage::Verdict, Stage::Transmit, Stage::Reclaim];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Receive => "receive",
            Stage::Verdict => "verdict",
            Stage::Transmit => "transmit",
            Stage::Reclaim => "reclaim",
            Stage::Device => "device",
        }
    }

    fn of(function: &str) -> Stage {
        let is_in = |module: &str| function.contains(module);
        match function {
            _ if is_in("bench::card") || is_in("bench::ring") => Stage::Device,
            _ if is_in("virtio::rx") => Stage::Receive,
            _ if is_in("virtio::tx") && is_in("reclaim") => Stage::Reclaim,
            _ if is_in("virtio::tx") => Stage::Transmit,
            _ => Stage::Verdict,
        }
    }
}

/// What there is to count of a packet's walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Instructions.
    Instructions,
    /// Reads and writes of memory.
    References,
    /// Those of them that miss a first-level cache.
    Misses,
}

impl Cost {
    /// All of them.
    pub const ALL: [Cost; 3] = [Cost::Instructions, Cost::References, Cost::Misses];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Instructions => "instructions",
            Cost::References => "references",
            Cost::Misses => "misses",
        }
    }

    /// callgrind's names of the events that add up to it (its manual, "Cache simulation").
    fn events(self) -> &'static [&'static str] {
        match self {
            Cost::Instructions => &["Ir"],
            Cost::References => &["Dr", "Dw"],
            Cost::Misses => &["D1mr", "D1mw"],
        }
    }
}

/// Has callgrind simulate caches, the same wherever it runs: the first level of about every x86-64 processor since 2006.
const CACHES: [&str; 4] = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];

/// Counts what the command `sluice` executes.
pub struct Counter<'a> {
    binary: &'a Path,
    marked: Marked,
}

impl<'a> Counter<'a> {
    /// For the command at `binary`.
    ///
    /// # Errors
    /// When objdump is missing.
    pub fn new(binary: &'a Path) -> Result<Self> {
        Ok(Self { binary, marked: Marked::of(binary)? })
    }

    /// The cost of a burst of `batch` packets to a lone worker with this way out.
    ///
    /// # Errors
    /// When valgrind is missing or fails.
    pub fn burst(&self, way: Way, batch: usize) -> Result<BurstCost> {
        Ok(self.cost(&self.runs(way, batch)?))
    }

    /// The cost of a burst of `batch` packets to a lone worker before an Intel card in shared memory; the card's own
    /// instructions are not in it.
    ///
    /// # Errors
    /// When valgrind is missing or fails.
    pub fn ixgbe_burst(&self, ring: usize, batch: usize) -> Result<BurstCost> {
        let (ring, batch) = (ring.to_string(), batch.to_string());
        let walk = ["walk-ixgbe", "--ring", &ring, "--batch", &batch];
        // Counting starts and stops where one of these is entered or left.
        let toggles = ixgbe::TOGGLES.map(|function| format!("--toggle-collect={function}"));
        Ok(self.cost(&self.run(&walk, &toggles, BURSTS)?))
    }

    fn cost(&self, runs: &Runs) -> BurstCost {
        BurstCost {
            instructions: runs.each(|_| true),
            atomic: runs.each(|line| self.marked.atomic.contains(&line.address)),
            fences: runs.each(|line| self.marked.fences.contains(&line.address)),
        }
    }

    /// What each of our stages costs for a burst of `batch` packets, on a queue of the worker's own.
    ///
    /// # Errors
    /// When valgrind is missing or fails.
    pub fn stages(&self, batch: usize) -> Result<[[f64; Cost::ALL.len()]; Stage::ALL.len()]> {
        let setup = Setup { batch, ..Setup::default() };
        let runs = self.walks(setup, BURSTS, &CACHES.map(String::from))?;
        Ok(Stage::ALL.map(|stage| Cost::ALL.map(|cost| runs.cost(cost, |line| line.stage == stage))))
    }

    fn runs(&self, way: Way, batch: usize) -> Result<Runs> {
        self.walks(Setup { way, batch, ..Setup::default() }, BURSTS, &[])
    }

    /// The instructions of our stages for each packet of such a walk.
    ///
    /// # Errors
    /// When valgrind is missing or fails.
    pub(super) fn packet(&self, setup: Setup) -> Result<f64> {
        // About as many bursts as a lone worker has, over all receive queues, and a whole number of times its chores.
        let queues = setup.ports * setup.rx_queues();
        let short = (BURSTS[0] / queues as u64).max(FEWEST).next_multiple_of(CHORES_MS);
        let runs = self.walks(setup, [short, 2 * short], &[])?;
        // Where a ring is short, not every look at it brings a whole burst.
        let instructions = runs.each(|line| line.stage != Stage::Device) * short as f64;
        Ok(instructions / runs.packets.context("the walk told of no packets")? as f64)
    }

    fn walks(&self, setup: Setup, bursts: [u64; 2], options: &[String]) -> Result<Runs> {
        let Setup { workers, way, batch, ports, ring, flows, rx } = setup;
        let way = match way {
            Way::Dedicated => "dedicated",
            Way::Locked => "locked",
            Way::Shared => "shared",
        };
        let mut walk = vec!["walk".to_owned(), format!("--way={way}"), format!("--batch={batch}")];
        walk.extend([format!("--workers={workers}"), format!("--ports={ports}"), format!("--ring={ring}")]);
        walk.push(format!("--flows={flows}"));
        walk.extend((rx == RxMode::Software).then(|| "--spread".to_owned()));
        let walk: Vec<&str> = walk.iter().map(String::as_str).collect();
        self.run(&walk, options, bursts)
    }

    /// Runs the worker that `sluice bench` runs with these arguments, under callgrind with those options.
    fn run(&self, walk: &[&str], options: &[String], bursts: [u64; 2]) -> Result<Runs> {
        let [short, long] = bursts.map(|bursts| profile(self.binary, walk, options, bursts));
        let ((short, fewer), (long, more)) = (short?, long?);
        let packets = more.zip(fewer).map(|(more, fewer)| more - fewer);
        Ok(Runs { short, long, between: bursts[1] - bursts[0], packets })
    }
}

/// Two runs that differ by many bursts.
struct Runs {
    short: Profile,
    long: Profile,
    /// By how many.
    between: u64,
    /// And how many packets those had, where the walk tells.
    packets: Option<u64>,
}

impl Runs {
    /// How many instructions of a kind one burst executes.
    fn each(&self, kind: impl Fn(&Line) -> bool) -> f64 {
        self.cost(Cost::Instructions, kind)
    }

    /// What instructions of a kind cost one burst.
    fn cost(&self, cost: Cost, kind: impl Fn(&Line) -> bool) -> f64 {
        let [short, long] = [&self.short, &self.long].map(|profile| sum(profile, cost, &kind) as f64);
        (long - short) / self.between as f64
    }
}

/// The table of `sluice bench sharing`.
///
/// # Errors
/// As [`Counter::burst`].
pub(super) fn table() -> Result<Sheet> {
    let binary = std::env::current_exe().context("nobody knows which program this is")?;
    let counter = Counter::new(&binary)?;
    let mut sheet = Sheet::new(
        "One worker, reflect, 64 B: instructions a packet with the null card's own; atomic ones and fences a burst",
        ["batch", "dedicated", "under a lock", "atomic, dedicated", "atomic, under a lock", "fences, either"],
    );
    for batch in [1, 8, 32, 64] {
        let dedicated = counter.burst(Way::Dedicated, batch)?;
        let locked = counter.burst(Way::Locked, batch)?;
        let packets = batch as f64;
        sheet.row([
            Entry::Number(packets, 0),
            Entry::Number(dedicated.instructions / packets, 1),
            Entry::Number(locked.instructions / packets, 1),
            Entry::Number(dedicated.atomic, 2),
            Entry::Number(locked.atomic, 2),
            Entry::Number(locked.fences, 2),
        ]);
    }
    Ok(sheet)
}

/// The instructions of a binary that were executed.
type Profile = Vec<Line>;

/// What the instruction at an address cost, whenever it was executed, and what for.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    address: u64,
    /// In the order of [`Cost::ALL`].
    costs: [u64; Cost::ALL.len()],
    stage: Stage,
}

/// Runs `sluice bench` with these arguments under callgrind with those options; also the packets that it tells of.
fn profile(binary: &Path, walk: &[&str], options: &[String], bursts: u64) -> Result<(Profile, Option<u64>)> {
    let folder = tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
    let file = folder.path().join("profile");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args(options)
        .arg(binary)
        .arg("bench")
        .args(walk)
        .args(["--bursts", &bursts.to_string()]);
    let said = process::output(&mut command, "valgrind")?;
    let packets = said.lines().find_map(|line| line.strip_prefix(PACKETS)?.parse().ok());
    let text = fs::read_to_string(&file).context("valgrind left no profile")?;
    Ok((parse(&text, binary)?, packets))
}

/// Reads what callgrind wrote: of the functions in `binary`, lines of address, source line and a number for each event that
/// is counted; zeros at the end of a line are left out. The line after `calls=` tells what the called function cost, which its
/// own lines say again.
fn parse(text: &str, binary: &Path) -> Result<Profile> {
    let mut profile = Profile::new();
    let (mut is_ours, mut is_call) = (false, false);
    let mut stage = Stage::Verdict;
    let mut costs: Vec<Option<usize>> = Vec::new();
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_ours = Path::new(object) == binary;
        } else if let Some(events) = line.strip_prefix("events: ") {
            let cost = |event| Cost::ALL.iter().position(|cost| cost.events().contains(&event));
            costs = events.split_ascii_whitespace().map(cost).collect();
        } else if let Some(function) = line.strip_prefix("fn=") {
            stage = Stage::of(function);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(rest) = line.strip_prefix("0x") {
            let mut fields = rest.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next().unwrap_or_default(), 16).context("an address")?;
            let mut counted = Line { address, costs: [0; Cost::ALL.len()], stage };
            for (count, cost) in fields.skip(1).zip(&costs) {
                if let Some(cost) = *cost {
                    counted.costs[cost] += count.parse::<u64>().context("a count")?;
                }
            }
            profile.extend((is_ours && !std::mem::take(&mut is_call)).then_some(counted));
            is_call = false;
        }
    }
    Ok(profile)
}

/// Where the atomic instructions of a binary are, and its fences.
#[derive(Default)]
struct Marked {
    atomic: HashSet<u64>,
    fences: HashSet<u64>,
}

impl Marked {
    fn of(binary: &Path) -> Result<Marked> {
        let output = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(binary).output();
        let output = output.with_context(|| {
            format!("objdump is missing (Debian package binutils); {} installs it", process::SETUP)
        })?;
        Ok(Marked::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Reads a disassembly: lines of address, a colon, the instruction.
    fn parse(disassembly: &str) -> Marked {
        let mut marked = Marked::default();
        for (address, instruction) in disassembly.lines().filter_map(|line| line.split_once(':')) {
            let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
            let instruction = instruction.trim_start();
            let is_exchange = instruction.starts_with("xchg") && instruction.contains('(');
            let is_fence = instruction.starts_with("lock or")
                && instruction.contains("$0x0,")
                && instruction.contains("(%rsp)");
            if is_fence || instruction.starts_with("mfence") {
                marked.fences.insert(address);
            } else if instruction.starts_with("lock ") || is_exchange {
                marked.atomic.insert(address);
            }
        }
        marked
    }
}

/// What instructions of a kind cost.
fn sum(profile: &Profile, cost: Cost, kind: impl Fn(&Line) -> bool) -> u64 {
    profile.iter().filter(|line| kind(line)).map(|line| line.costs[cost as usize]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw

ob=/x/sluice
fl=a.rs
fn=forwarder::worker::Worker<R,T>::round
0x1000 10 7 1 2 50 3 4
fi=slice.rs
0x1004 11 7
cob=/lib/libc.so
cfn=memcpy
calls=7 0x9000 0
0x1008 11 700
fn=netdrv::virtio::tx::TxRing<O>::reclaim
0x1008 12 7

ob=/lib/libc.so
fn=memcpy
0x1004 0 700
";
    const DISASSEMBLY: &str = "\
0000000000001000 <walk>:
    1000:\tlock orl $0x0,-0x40(%rsp)
    1004:\tlock cmpxchg %cl,(%rdi)
    1008:\txchg   %ax,(%rdi)
    100c:\txchg   %ax,%ax
    1010:\tmfence
    1014:\tlock orl $0x1,-0x40(%rsp)
";

    #[test]
    fn instructions_are_counted_where_they_are_executed() {
        let profile = parse(PROFILE, Path::new("/x/sluice")).unwrap();
        let line = |(address, costs, stage)| Line { address, costs, stage };
        let expected = [
            (0x1000, [7, 3, 7], Stage::Verdict),
            (0x1004, [7, 0, 0], Stage::Verdict),
            (0x1008, [7, 0, 0], Stage::Reclaim),
        ];
        assert_eq!(profile, expected.map(line));
        let marked = Marked::parse(DISASSEMBLY);
        assert_eq!(marked.atomic, HashSet::from([0x1004, 0x1008, 0x1014]));
        assert_eq!(marked.fences, HashSet::from([0x1000, 0x1010]));
        let counts = [&marked.atomic, &marked.fences]
            .map(|marked| sum(&profile, Cost::Instructions, |line| marked.contains(&line.address)));
        assert_eq!(counts, [14, 7]);
    }
}

//! Instructions of a packet's walk, counted by valgrind's callgrind: exact, and the same on a busy machine.
//!
//! A worker runs twice, for different numbers of bursts. What differs between the counts is the bursts'.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::ixgbe;
use super::sheet::{Entry, Sheet};
use super::walk::{CHORES_MS, Way};
use crate::process;

/// Bursts of the shorter run and of the longer one.
const BURSTS: [u64; 2] = [200 * CHORES_MS, 400 * CHORES_MS];

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
        let way = match way {
            Way::Dedicated => "dedicated",
            Way::Locked => "locked",
            Way::Shared => "shared",
        };
        self.cost(&["walk", "--way", way, "--batch", &batch.to_string()], &[])
    }

    /// The cost of a burst of `batch` packets to a lone worker before an Intel card in shared memory; the card's own
    /// instructions are not in it.
    ///
    /// # Errors
    /// When valgrind is missing or fails.
    pub fn ixgbe_burst(&self, ring: usize, batch: usize) -> Result<BurstCost> {
        self.cost(
            &["walk-ixgbe", "--ring", &ring.to_string(), "--batch", &batch.to_string()],
            &ixgbe::TOGGLES,
        )
    }

    /// The cost of a burst to the worker that `sluice bench` runs with these arguments. Counting starts and stops where a
    /// function of `toggles` is entered or left; without any, all counts.
    fn cost(&self, walk: &[&str], toggles: &[&str]) -> Result<BurstCost> {
        let [short, long] = BURSTS.map(|bursts| profile(self.binary, walk, toggles, bursts));
        let (short, long) = (short?, long?);
        let each = |of: &dyn Fn(&Profile) -> u64| {
            (of(&long) as f64 - of(&short) as f64) / (BURSTS[1] - BURSTS[0]) as f64
        };
        Ok(BurstCost {
            instructions: each(&|profile| profile.iter().map(|(_, count)| count).sum()),
            atomic: each(&|profile| executed(&self.marked.atomic, profile)),
            fences: each(&|profile| executed(&self.marked.fences, profile)),
        })
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

/// Addresses of instructions in a binary, each with how often it was executed.
type Profile = Vec<(u64, u64)>;

/// Runs `sluice bench` with these arguments under callgrind.
fn profile(binary: &Path, walk: &[&str], toggles: &[&str], bursts: u64) -> Result<Profile> {
    let folder = tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
    let file = folder.path().join("profile");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args(toggles.iter().map(|function| format!("--toggle-collect={function}")))
        .arg(binary)
        .arg("bench")
        .args(walk)
        .args(["--bursts", &bursts.to_string()]);
    process::run(&mut command, "valgrind")?;
    let text = fs::read_to_string(&file).context("valgrind left no profile")?;
    parse(&text, binary)
}

/// Reads what callgrind wrote: of the functions in `binary`, lines of address, source line and count. The line after
/// `calls=` tells what the called function cost, which its own lines say again.
fn parse(text: &str, binary: &Path) -> Result<Profile> {
    let mut profile = Profile::new();
    let (mut is_ours, mut is_call) = (false, false);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_ours = Path::new(object) == binary;
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(rest) = line.strip_prefix("0x") {
            let mut fields = rest.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next().unwrap_or_default(), 16);
            let count = fields.nth(1).unwrap_or("0").parse();
            let counted = (address.context("an address")?, count.context("a count")?);
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

/// How often instructions at these addresses were executed.
fn executed(addresses: &HashSet<u64>, profile: &Profile) -> u64 {
    profile.iter().filter(|(address, _)| addresses.contains(address)).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir

ob=/x/sluice
fl=a.rs
fn=walk
0x1000 10 7
0x1004 11 7
cob=/lib/libc.so
cfn=memcpy
calls=7 0x9000 0
0x1008 11 700
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
        assert_eq!(profile, [(0x1000, 7), (0x1004, 7), (0x1008, 7)]);
        let marked = Marked::parse(DISASSEMBLY);
        assert_eq!(marked.atomic, HashSet::from([0x1004, 0x1008, 0x1014]));
        assert_eq!(marked.fences, HashSet::from([0x1000, 0x1010]));
        assert_eq!((executed(&marked.atomic, &profile), executed(&marked.fences, &profile)), (14, 7));
    }
}

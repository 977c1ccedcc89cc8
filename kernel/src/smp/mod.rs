//! All cores: starting them, giving them work, waking them.
//!
//! Core 0 is the boot core; the others follow in the order of the MADT. A started core sleeps until it is given a job
//! by [`launch`]; when the job returns it sleeps again.

mod trampoline;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use hermit_sync::{OnceCell, RwSpinLock, SpinMutex};
use log::{info, warn};
use x86_64::instructions::interrupts;

use self::trampoline::{Seat, Trampoline};
use crate::apic::{self, Message, vector};
use crate::cpu::PreparedCore;
use crate::memory::{FrameError, stack};
use crate::{acpi, cpu, power, time};

/// Work for a core.
pub type Job = Box<dyn FnOnce() + Send>;

/// Why a core was given no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// There is no such core, or it is the boot core, which runs `main`.
    NoSuchCore,
    /// It has a job.
    Busy,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchCore => "no such core",
            Self::Busy => "the core has a job",
        })
    }
}

/// A core that was started, as the others see it.
struct Core {
    apic_id: u32,
    /// Until the core has taken it.
    block: SpinMutex<Option<PreparedCore>>,
    up: AtomicBool,
    desk: SpinMutex<Desk>,
}

impl Core {
    fn prepare(number: usize, apic_id: u32) -> Result<Self, FrameError> {
        Ok(Self {
            apic_id,
            block: SpinMutex::new(Some(cpu::prepare_core(number)?)),
            up: AtomicBool::new(false),
            desk: SpinMutex::new(Desk::Empty),
        })
    }

    fn take_job(&self) -> Option<Job> {
        let mut desk = self.desk.lock();
        match core::mem::replace(&mut *desk, Desk::Taken) {
            Desk::Waiting(job) => Some(job),
            // The sleep ended for another reason.
            other => {
                *desk = other;
                None
            }
        }
    }
}

/// What a core has to do.
enum Desk {
    Empty,
    Waiting(Job),
    /// The job that was here is being done.
    Taken,
}

/// The cores from 1 on; set when all of them are up.
static OTHERS: OnceCell<&'static [Core]> = OnceCell::new();

/// How many cores run.
#[must_use]
pub fn cores() -> usize {
    1 + others().len()
}

/// The APIC id of a core, by which devices address it.
#[must_use]
pub fn apic_id(core: usize) -> Option<u32> {
    static BOOT_CORE: OnceCell<u32> = OnceCell::new();
    if core == 0 {
        return Some(*BOOT_CORE.get_or_init(apic::id));
    }
    other(core).map(|core| core.apic_id)
}

/// Gives a sleeping core a job, and wakes it.
///
/// # Errors
/// See [`LaunchError`]; the job is dropped then.
pub fn launch(core: usize, job: Job) -> Result<(), LaunchError> {
    let other = other(core).ok_or(LaunchError::NoSuchCore)?;
    let mut desk = other.desk.lock();
    if !matches!(*desk, Desk::Empty) {
        return Err(LaunchError::Busy);
    }
    *desk = Desk::Waiting(job);
    drop(desk);
    wake(core);
    Ok(())
}

/// Whether a core has no job. The boot core always has one: `main`.
#[must_use]
pub fn is_waiting(core: usize) -> bool {
    other(core).is_some_and(|core| matches!(*core.desk.lock(), Desk::Empty))
}

/// Ends the sleep of a core, see [`sleep_unless`]. A core that is awake is interrupted for a moment.
pub fn wake(core: usize) {
    if let Some(apic_id) = apic_id(core) {
        apic::send(apic_id, Message::Fixed(vector::WAKE));
    }
}

/// Lets the calling core sleep until its next interrupt (from [`wake`], [`apic::timer::arm`] or a device), unless `ready`
/// says that there is work.
///
/// No wake-up is lost: whoever makes work first makes `ready` see it, then wakes the core. `ready` is asked with
/// interrupts off, and they come on in the instruction that the sleep begins with, so a wake-up that comes after the
/// question ends the sleep. Interrupts are on afterwards.
pub fn sleep_unless(ready: impl FnOnce() -> bool) {
    interrupts::disable();
    if ready() {
        interrupts::enable();
    } else {
        interrupts::enable_and_hlt();
    }
}

/// Stops all cores but the calling one, for good: a panic calls it.
pub fn halt_others() {
    apic::send_to_others(Message::NonMaskable);
}

/// Starts every core that the firmware lists, and returns how many run, the boot core included.
///
/// It needs [`acpi::init`], [`time::init`] and [`apic::init`], is called once, and takes some milliseconds. A core that
/// does not answer is reported and left out.
pub fn start_all() -> usize {
    let begin = time::now_ns();
    let listed = candidates(&acpi::platform().apic_ids, apic::id());
    let wanted = listed.len() + 1;
    if let Some(team) = start(listed) {
        OTHERS.get_or_init(|| team);
    }
    let took = (time::now_ns() - begin) / 100_000;
    let mode = apic::mode().map_or("no apic".into(), |mode| alloc::format!("{mode}"));
    info!("cores {} of {wanted} up, {mode}, {}.{} ms", cores(), took / 10, took % 10);
    cores()
}

/// The cores to start: those that are listed, but for the boot core, those that cannot be reached, and those that are
/// too many.
fn candidates(listed: &[u32], boot_core: u32) -> Vec<u32> {
    let (reachable, unreachable): (Vec<u32>, Vec<u32>) =
        listed.iter().filter(|&&apic_id| apic_id != boot_core).partition(|&&apic_id| apic::reaches(apic_id));
    for apic_id in unreachable {
        warn!("core with apic id {apic_id} left out: this mode of the apic does not reach it");
    }
    let most = cpu::MAX_CORES - 1;
    if reachable.len() > most {
        warn!("{} cores left out: {} is the most that can be used", reachable.len() - most, cpu::MAX_CORES);
    }
    reachable.into_iter().take(most).collect()
}

/// Starts these cores. Numbers have no gaps: when some do not come up, all are started again without them.
fn start(mut apic_ids: Vec<u32>) -> Option<&'static [Core]> {
    /// A machine on which other cores fail each time is not worth more patience.
    const ATTEMPTS: u32 = 3;
    if apic_ids.is_empty() {
        return None;
    }
    let Some(mut trampoline) = Trampoline::find() else {
        warn!("no memory below 1 MiB: one core");
        return None;
    };
    for _ in 0..ATTEMPTS {
        let team = match Team::assemble(&apic_ids) {
            Ok(team) => team,
            Err(error) => {
                warn!("no stacks for {} cores: {error}: one core", apic_ids.len());
                return None;
            }
        };
        let missing = team.start(&mut trampoline);
        if missing.is_empty() {
            return Some(team.cores);
        }
        for apic_id in &missing {
            warn!("core with apic id {apic_id} left out: it does not start");
        }
        team.reset();
        time::delay_us(RESET_TIME.as_micros() as u64);
        apic_ids.retain(|apic_id| !missing.contains(apic_id));
    }
    warn!("cores fail at every attempt: one core");
    None
}

/// Cores that are started together. It lives for ever, as a core may look at it at any time later.
struct Team {
    seats: &'static [Seat],
    cores: &'static [Core],
}

/// The team that is being started, for its members to find.
static TEAM: RwSpinLock<Option<&'static [Core]>> = RwSpinLock::new(None);

/// Pages of a core's stack.
const STACK_PAGES: u64 = 32;

impl Team {
    fn assemble(apic_ids: &[u32]) -> Result<Self, FrameError> {
        let seat = |&apic_id: &u32| Ok(Seat::new(apic_id, stack::allocate(STACK_PAGES)?.top()));
        let seats = apic_ids.iter().map(seat).collect::<Result<Vec<Seat>, FrameError>>()?;
        let cores = (1..).zip(apic_ids).map(|(number, &apic_id)| Core::prepare(number, apic_id));
        let cores = cores.collect::<Result<Vec<Core>, FrameError>>()?;
        Ok(Self { seats: seats.leak(), cores: cores.leak() })
    }

    /// Starts all cores at once (SDM volume 3, 9.4.4.1), and returns the APIC ids of those that did not come up.
    fn start(&self, trampoline: &mut Trampoline) -> Vec<u32> {
        *TEAM.write() = Some(self.cores);
        trampoline.prepare(self.seats, core_main);
        self.reset();
        // A processor of the last 20 years takes this right after its reset. An older one, which the reset keeps busy,
        // misses it and takes the next. Who runs already ignores that.
        self.send_start_up(trampoline);
        if !self.await_all(RESET_TIME) {
            self.send_start_up(trampoline);
            self.await_all(PATIENCE);
        }
        self.missing().map(|core| core.apic_id).collect()
    }

    fn reset(&self) {
        for core in self.cores {
            apic::send(core.apic_id, Message::Init);
        }
    }

    fn send_start_up(&self, trampoline: &Trampoline) {
        for core in self.missing() {
            apic::send(core.apic_id, Message::StartUp { page: trampoline.number() });
        }
    }

    /// Waits until all are up, or none has come up for a while.
    fn await_all(&self, patience: Duration) -> bool {
        loop {
            let before = self.missing().count();
            if before == 0 {
                return true;
            }
            if !time::wait_until(patience, || self.missing().count() < before) {
                return false;
            }
        }
    }

    fn missing(&self) -> impl Iterator<Item = &Core> {
        self.cores.iter().filter(|core| !core.up.load(Ordering::Acquire))
    }
}

/// How long a core may take for its reset.
const RESET_TIME: Duration = Duration::from_millis(10);
/// How long to wait for another core to come up before those that are missing are given up. A busy host may not run
/// a virtual processor for a while.
const PATIENCE: Duration = Duration::from_millis(500);

/// Where every core but the first arrives in Rust: on its own stack, with the page tables of the image.
extern "C" fn core_main(seat: usize) -> ! {
    let team = TEAM.read().expect("the team is set before it is started");
    let core = &team[seat];
    let Some(block) = core.block.lock().take() else {
        // It was reset on its way and cannot say what it had done already: it counts as missing.
        power::halt_forever();
    };
    cpu::init_core(block);
    apic::init_core();
    core.up.store(true, Ordering::Release);
    work(core)
}

/// Sleeps, does the next job, sleeps.
fn work(core: &Core) -> ! {
    loop {
        sleep_unless(|| matches!(*core.desk.lock(), Desk::Waiting(_)));
        if let Some(job) = core.take_job() {
            job();
            *core.desk.lock() = Desk::Empty;
        }
    }
}

fn others() -> &'static [Core] {
    OTHERS.get().copied().unwrap_or_default()
}

fn other(core: usize) -> Option<&'static Core> {
    others().get(core.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn core() -> Core {
        let desk = SpinMutex::new(Desk::Empty);
        Core { apic_id: 7, block: SpinMutex::new(None), up: AtomicBool::new(false), desk }
    }

    #[test]
    fn a_job_is_taken_once() {
        let core = core();
        assert!(core.take_job().is_none(), "woken for another reason");
        let witness = Arc::new(());
        let held = witness.clone();
        *core.desk.lock() = Desk::Waiting(Box::new(move || drop(held)));
        core.take_job().expect("a job was waiting")();
        assert_eq!(Arc::strong_count(&witness), 1, "the job ran");
        assert!(core.take_job().is_none());
        assert!(matches!(*core.desk.lock(), Desk::Taken), "until the core says that it is done");
    }

    #[test]
    fn before_the_start_there_is_the_boot_core_alone() {
        assert_eq!(cores(), 1);
        assert_eq!(launch(0, Box::new(|| {})), Err(LaunchError::NoSuchCore));
        assert_eq!(launch(1, Box::new(|| {})), Err(LaunchError::NoSuchCore));
        assert!(!is_waiting(0) && !is_waiting(1));
    }

    #[test]
    fn without_an_apic_no_other_core_is_a_candidate() {
        assert!(candidates(&[0, 1, 2], 0).is_empty());
    }
}

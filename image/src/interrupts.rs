//! Interrupts of receive queues: each goes to the core whose worker owns the queue, to end its sleep and nothing else.

use core::time::Duration;

use forwarder::txmap;
use kernel::cpu::interrupts;
use kernel::pci::Function;
use kernel::pci::msix::Msix;
use kernel::{apic, smp};

/// The vector of every receive queue on every core.
const QUEUE_VECTOR: u8 = 0x40;

/// Turns a function's MSI-X on with every entry masked, so that its driver may hand entries to queues. `None`, with a
/// line in the log, where it has none: its queues are then looked at in intervals.
pub(crate) fn open(function: Function) -> Option<Msix> {
    let mut msix = Msix::open(function).inspect_err(|error| log::info!("{function}: {error}")).ok()?;
    msix.enable();
    Some(msix)
}

/// Sends the interrupts of all receive queues to the cores that own them. For each port: its table, and how many of its
/// receive queues interrupt; `queues` has the number of receive queues of each.
pub(crate) fn route<'a>(
    ports: impl Iterator<Item = (Option<&'a mut Msix>, usize)>,
    queues: &[usize],
    workers: usize,
) {
    interrupts::set_handler(QUEUE_VECTOR, |_| apic::end_of_interrupt());
    let mut owners = txmap::assign_rx(workers, queues);
    for ((msix, interrupting), &count) in ports.zip(queues) {
        // The owner is a worker, and worker `i` is core `i`'s.
        let cores = owners.by_ref().take(count).map(|(_, worker)| worker);
        let Some(msix) = msix else {
            cores.for_each(drop);
            continue;
        };
        for (entry, core) in (0..).zip(cores) {
            if usize::from(entry) < interrupting
                && let Some(apic_id) = smp::apic_id(core)
                && let Err(error) = msix.set_vector(entry, apic_id, QUEUE_VECTOR)
            {
                log::warn!("no interrupt for receive queue {entry}: {error}; it is looked at in intervals");
            }
        }
    }
}

/// Lets this core sleep for `limit` at most, unless `ready` says that there is work.
pub(crate) fn sleep(limit: Duration, ready: &mut dyn FnMut() -> bool) {
    if apic::mode().is_none() {
        // Nothing could end the sleep.
        core::hint::spin_loop();
        return;
    }
    smp::sleep_unless(|| {
        let is_ready = ready();
        if !is_ready {
            // With interrupts off, as here: one that came before the sleep would not end it.
            apic::timer::arm(limit);
        }
        is_ready
    });
    apic::timer::disarm();
}

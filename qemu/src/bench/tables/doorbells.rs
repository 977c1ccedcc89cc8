//! What it is worth to ring a virtio device's doorbell only where it asks for that. A doorbell costs a virtual machine a
//! way out of it, and a process nothing, so this is measured in QEMU.

use anyhow::{Context, Result};

use crate::bench::guest::FLOWS;
use crate::bench::measure::Spread;
use crate::bench::sheet::{Entry, Sheet};
use crate::bench::vm::{Contestant, Run, Work};
use crate::vhost::{Drive, TrafficConfig};

/// Memory of a machine, in MiB.
const MEMORY: usize = 256;

/// The table.
///
/// # Errors
/// When the image does not boot, or forwards nothing.
pub(super) fn table(sluice: &Contestant) -> Result<Sheet> {
    let title = format!(
        "Doorbells: the image in QEMU (TCG) over vhost-user, {FLOWS} flows, 64 B, in kpps; a burst takes one at each ring"
    );
    let columns = ["work", "cores", "batch", "the device always asks", "it never does", "more, %"];
    let mut sheet = Sheet::new(title, columns);
    // Both look all the time. With the event index a device says when it wants to be told: without it, that it does.
    let asking = TrafficConfig { drive: Drive::PollKicked, features: Vec::new(), ..Default::default() };
    let silent = TrafficConfig { drive: Drive::Poll, ..asking.clone() };
    for (work, name) in [(Work::Drop, "rxdrop"), (Work::Reflect, "l2fwd")] {
        for (cores, batch) in [(1, 1), (1, 32), (2, 1), (2, 32)] {
            let rate = |ports| -> Result<Spread> {
                let machine = sluice.machine(work, cores, MEMORY).words(format!("batch={batch}"));
                let run = Run::start_before(ports, machine, work, cores)?;
                run.rate().with_context(|| format!("{name}, {cores} cores"))
            };
            let (before, after) = (rate(&asking)?, rate(&silent)?);
            sheet.row([
                Entry::text(name),
                Entry::Number(cores as f64, 0),
                Entry::Number(batch.into(), 0),
                Entry::Spread(before, 0),
                Entry::Spread(after, 0),
                Entry::Number(100.0 * (after.median / before.median - 1.0), 0),
            ]);
        }
    }
    Ok(sheet)
}

//! Finds out about the machine: its tables, clock, interrupt controller and devices.

use crate::boot::Boot;
use crate::{acpi, apic, pci, power, time};

/// Makes the machine known: afterwards the time runs, cores can be started (with [`smp::start_all`](crate::smp::start_all))
/// and [`pci::functions`] lists the devices. It is called once, early in `main`, with the log at its level.
pub fn init(boot: &Boot) {
    acpi::init(boot);
    if let Some(reset) = acpi::platform().reset {
        power::set_acpi_reset(reset.port, reset.value);
    }
    time::init(boot.entry_tsc);
    apic::init();
    pci::init(boot);
}

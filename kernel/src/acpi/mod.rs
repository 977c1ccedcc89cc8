//! What firmware says about the machine, read once at boot from the ACPI tables.
//!
//! Nothing here can stop the boot: a table that is missing or broken costs a warning and what it would have
//! told, so that in the worst case one core runs, and PCI is reached through ports 0xcf8 and 0xcfc.

mod hardware;
mod madt;
mod memory;
mod table;
#[cfg(test)]
mod testing;

use alloc::vec::Vec;

use hermit_sync::OnceCell;
use log::{debug, warn};

use self::hardware::Fadt;
pub use self::hardware::{EcamRegion, ResetRegister};
use self::madt::Madt;
pub use self::madt::NmiPin;
use self::memory::PhysicalMemory;
use self::table::{FirmwareMemory, RootTable, Signature, Table, TableError};
use crate::boot::Boot;

/// The machine as the tables describe it. What they do not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// APIC ids of the cores that may be started, in the order of the MADT, the boot core among them.
    pub apic_ids: Vec<u32>,
    /// Pins of local APICs to which NMIs are wired.
    pub nmi_pins: Vec<NmiPin>,
    /// Where the PCI configuration space is mapped in memory.
    pub ecam: Vec<EcamRegion>,
    /// I/O port of the power management timer.
    pub pm_timer: Option<u16>,
    /// Physical address of the HPET's registers.
    pub hpet: Option<u64>,
    /// The register that resets the machine.
    pub reset: Option<ResetRegister>,
}

static PLATFORM: OnceCell<Platform> = OnceCell::new();

/// Reads the tables that `boot` points to. Call it once, before [`platform`] is asked.
pub fn init(boot: &Boot) {
    let platform = Platform::read(&PhysicalMemory, boot.rsdp);
    debug!("{platform:x?}");
    // A second call finds the same tables.
    let _ = PLATFORM.set(platform);
}

/// What the tables say; empty before [`init`].
pub fn platform() -> &'static Platform {
    static UNKNOWN: Platform = Platform::unknown();
    PLATFORM.get().unwrap_or(&UNKNOWN)
}

impl Platform {
    /// Where the lowest ECAM region of a segment begins, of those below 4 GiB.
    pub(crate) fn ecam_below_4g(&self, segment: u16) -> Option<u64> {
        let of_segment = self.ecam.iter().filter(|region| region.segment == segment);
        of_segment.map(|region| region.base).filter(|&base| base < 1 << 32).min()
    }

    const fn unknown() -> Self {
        Self {
            apic_ids: Vec::new(),
            nmi_pins: Vec::new(),
            ecam: Vec::new(),
            pm_timer: None,
            hpet: None,
            reset: None,
        }
    }

    /// Follows the loader's root pointer, or looks for the BIOS's own.
    fn read(memory: &dyn FirmwareMemory, rsdp: Option<u64>) -> Self {
        let rsdp = rsdp.or_else(|| table::scan_for_root_pointer(memory));
        let root = rsdp.ok_or(TableError::NoRootPointer).and_then(|rsdp| RootTable::read(memory, rsdp));
        match root {
            Ok(root) => Self::from_tables(&root, memory),
            Err(error) => {
                warn!("{error}: one core, PCI through ports only");
                Self::default()
            }
        }
    }

    fn from_tables(root: &RootTable<'_>, memory: &dyn FirmwareMemory) -> Self {
        let find = |signature| usable(signature, root.find(memory, signature));
        let madt = find(*b"APIC").map(|table| Madt::parse(&table)).unwrap_or_default();
        let fadt = find(*b"FACP").map(|table| Fadt::parse(&table)).unwrap_or_default();
        if madt.damaged {
            warn!("APIC: an entry states an impossible length: what follows it is left out");
        }
        Self {
            apic_ids: madt.apic_ids,
            nmi_pins: madt.nmi_pins,
            ecam: match find(*b"MCFG") {
                Some(mcfg) => hardware::ecam_regions(&mcfg),
                None => Self::ecam_by_dsdt(&fadt, memory).into_iter().collect(),
            },
            pm_timer: fadt.pm_timer,
            hpet: find(*b"HPET").and_then(|table| hardware::hpet_address(&table)),
            reset: fadt.reset,
        }
    }

    fn ecam_by_dsdt(fadt: &Fadt, memory: &dyn FirmwareMemory) -> Option<EcamRegion> {
        let dsdt = usable(*b"DSDT", Table::read(memory, fadt.dsdt?, *b"DSDT"))?;
        hardware::ecam_of_host_bridge(&dsdt)
    }
}

/// The table, if it is there and sound. Every machine lacks some; a broken one is worth a warning.
fn usable(signature: Signature, table: Result<Table<'_>, TableError>) -> Option<Table<'_>> {
    match table {
        Ok(table) => Some(table),
        Err(TableError::Absent) => None,
        Err(error) => {
            warn!("{}: {error}: what it tells is not known", signature.escape_ascii());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::testing::{Firmware, table};
    use super::*;

    #[test]
    fn reads_what_is_there() {
        let mut madt = vec![0; 8];
        madt.extend([0, 8, 0, 0, 1, 0, 0, 0, 0, 8, 1, 1, 1, 0, 0, 0]);
        let firmware = Firmware::new(&[table(*b"APIC", &madt), table(*b"FACP", &[0; 80])]);
        let platform = Platform::read(&firmware, Some(firmware.rsdp()));
        let expected = Platform { apic_ids: vec![0, 1], ..Platform::default() };
        assert_eq!(platform, expected);
        assert_eq!(Platform::read(&firmware, None), expected, "the BIOS scan finds the same");
    }

    #[test]
    fn a_broken_table_costs_only_itself() {
        let mut broken = table(*b"APIC", &[0; 32]);
        broken[9] ^= 0x55;
        let mcfg =
            [vec![0; 8], 0xb000_0000u64.to_le_bytes().to_vec(), vec![0, 0, 0, 255, 0, 0, 0, 0]].concat();
        let firmware = Firmware::new(&[broken, table(*b"MCFG", &mcfg)]);
        let platform = Platform::read(&firmware, Some(firmware.rsdp()));
        assert!(platform.apic_ids.is_empty());
        assert_eq!(platform.ecam.len(), 1);
    }

    #[test]
    fn nothing_readable_is_an_empty_platform() {
        let firmware = Firmware::new(&[]);
        for rsdp in [0, 4, u64::MAX, firmware.rsdp() + 1] {
            assert_eq!(Platform::read(&firmware, Some(rsdp)), Platform::default());
        }
    }

    proptest::proptest! {
        /// Whatever byte of whatever table is wrong, reading ends and does not panic.
        #[test]
        fn survives_any_damage(offset in 0usize..1024, value: u8) {
            let body = [0, 8, 0, 0, 1, 0, 0, 0, 9, 16, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
            let madt = [vec![0; 8], body.to_vec()].concat();
            let mut firmware = Firmware::new(&[
                table(*b"APIC", &madt),
                table(*b"FACP", &[4; 240]),
                table(*b"MCFG", &[3; 40]),
                table(*b"HPET", &[0; 20]),
            ]);
            firmware.damage(offset, value);
            let platform = Platform::read(&firmware, Some(firmware.rsdp()));
            proptest::prop_assert!(platform.apic_ids.len() <= 2);
        }
    }
}

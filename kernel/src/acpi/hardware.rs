//! FADT, HPET and MCFG: where clocks, the reset register and the PCI configuration space are.

use alloc::vec::Vec;
use core::fmt;

use super::table::Table;

/// The register that resets the machine (ACPI 6.5, 4.8.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetRegister {
    /// I/O port of the register.
    pub port: u16,
    /// What to write to it.
    pub value: u8,
}

/// A range of buses whose configuration space is mapped in memory (PCI firmware specification 3.3, 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcamRegion {
    /// Physical address of bus 0, be it within the range or not.
    pub base: u64,
    /// PCI segment group.
    pub segment: u16,
    /// First bus of the range.
    pub first_bus: u8,
    /// Last bus of the range.
    pub last_bus: u8,
}

impl fmt::Display for EcamRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, segment, first_bus, last_bus } = self;
        write!(f, "ecam at {base:#x} for segment {segment:04x}, buses {first_bus:02x} to {last_bus:02x}")
    }
}

/// What the FADT says (ACPI 6.5, 5.2.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fadt {
    pub(super) pm_timer: Option<u16>,
    pub(super) reset: Option<ResetRegister>,
}

impl Fadt {
    const PM_TMR_BLK: usize = 76;
    const PM_TMR_LEN: usize = 91;
    const FLAGS: usize = 112;
    const RESET_REG: usize = 116;
    const RESET_VALUE: usize = 128;
    const X_PM_TMR_BLK: usize = 208;

    /// Flag: the reset register is there.
    const RESET_REG_SUP: u32 = 1 << 10;
    /// Flag: none of the fixed hardware is there, the timer included.
    const HW_REDUCED_ACPI: u32 = 1 << 20;

    pub(super) fn parse(table: &Table<'_>) -> Self {
        let flags = table.u32(Self::FLAGS).unwrap_or(0);
        Self { pm_timer: Self::pm_timer(table, flags), reset: Self::reset(table, flags) }
    }

    fn pm_timer(table: &Table<'_>, flags: u32) -> Option<u16> {
        const LENGTH_IN_BYTES: u8 = 4;
        if flags & Self::HW_REDUCED_ACPI != 0 || table.u8(Self::PM_TMR_LEN)? != LENGTH_IN_BYTES {
            return None;
        }
        let extended = GenericAddress::read(table, Self::X_PM_TMR_BLK).and_then(|address| address.port());
        let legacy = || table.u32(Self::PM_TMR_BLK).and_then(|port| u16::try_from(port).ok());
        extended.or_else(legacy).filter(|&port| port != 0)
    }

    fn reset(table: &Table<'_>, flags: u32) -> Option<ResetRegister> {
        if flags & Self::RESET_REG_SUP == 0 {
            return None;
        }
        let port = GenericAddress::read(table, Self::RESET_REG)?.port()?;
        Some(ResetRegister { port, value: table.u8(Self::RESET_VALUE)? })
    }
}

/// The physical address of the HPET's registers (HPET specification 1.0a, 3.2.4).
pub(super) fn hpet_address(table: &Table<'_>) -> Option<u64> {
    const BASE_ADDRESS: usize = 40;
    GenericAddress::read(table, BASE_ADDRESS)?.memory()
}

/// The regions that the MCFG lists.
pub(super) fn ecam_regions(table: &Table<'_>) -> Vec<EcamRegion> {
    const ALLOCATIONS: usize = 44;
    const ALLOCATION_LENGTH: usize = 16;
    let region = |bytes| {
        let fields = Table::of(bytes);
        Some(EcamRegion {
            base: fields.u64(0)?,
            segment: fields.u16(8)?,
            first_bus: fields.u8(10)?,
            last_bus: fields.u8(11)?,
        })
    };
    // Each bus takes 1 MiB, and the region begins on a boundary of that.
    let is_aligned = |region: &EcamRegion| region.base != 0 && region.base.is_multiple_of(1 << 20);
    let is_sound = |region: &EcamRegion| is_aligned(region) && region.first_bus <= region.last_bus;
    table.from(ALLOCATIONS).chunks_exact(ALLOCATION_LENGTH).filter_map(region).filter(is_sound).collect()
}

/// A register's address in the form that ACPI uses (5.2.3.2).
struct GenericAddress {
    space: u8,
    address: u64,
}

impl GenericAddress {
    const SYSTEM_MEMORY: u8 = 0;
    const SYSTEM_IO: u8 = 1;

    fn read(table: &Table<'_>, offset: usize) -> Option<Self> {
        let address = Self { space: table.u8(offset)?, address: table.u64(offset + 4)? };
        Some(address).filter(|address| address.address != 0)
    }

    fn port(&self) -> Option<u16> {
        if self.space == Self::SYSTEM_IO { u16::try_from(self.address).ok() } else { None }
    }

    fn memory(&self) -> Option<u64> {
        (self.space == Self::SYSTEM_MEMORY).then_some(self.address)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn fadt(length: usize, flags: u32) -> Vec<u8> {
        let mut bytes = vec![0; length];
        bytes[Fadt::PM_TMR_BLK..][..4].copy_from_slice(&0x608u32.to_le_bytes());
        bytes[Fadt::PM_TMR_LEN] = 4;
        bytes[Fadt::FLAGS..][..4].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    fn put_address(bytes: &mut [u8], offset: usize, space: u8, address: u64) {
        bytes[offset] = space;
        bytes[offset + 4..][..8].copy_from_slice(&address.to_le_bytes());
    }

    #[test]
    fn takes_the_timer_from_a_revision_1_table() {
        let parsed = Fadt::parse(&Table::of(&fadt(116, Fadt::RESET_REG_SUP)));
        assert_eq!(parsed.pm_timer, Some(0x608));
        assert_eq!(parsed.reset, None);
    }

    #[test]
    fn prefers_the_extended_timer_address() {
        let mut bytes = fadt(276, 0);
        put_address(&mut bytes, Fadt::X_PM_TMR_BLK, GenericAddress::SYSTEM_IO, 0xb008);
        assert_eq!(Fadt::parse(&Table::of(&bytes)).pm_timer, Some(0xb008));
    }

    #[test]
    fn hardware_reduced_machines_have_no_timer() {
        assert_eq!(Fadt::parse(&Table::of(&fadt(276, Fadt::HW_REDUCED_ACPI))).pm_timer, None);
        let mut without = fadt(276, 0);
        without[Fadt::PM_TMR_LEN] = 0;
        assert_eq!(Fadt::parse(&Table::of(&without)).pm_timer, None);
    }

    #[test]
    fn takes_the_reset_register_in_port_space_only() {
        let mut bytes = fadt(276, Fadt::RESET_REG_SUP);
        bytes[Fadt::RESET_VALUE] = 0x0f;
        put_address(&mut bytes, Fadt::RESET_REG, GenericAddress::SYSTEM_IO, 0xcf9);
        let expected = ResetRegister { port: 0xcf9, value: 0x0f };
        assert_eq!(Fadt::parse(&Table::of(&bytes)).reset, Some(expected));
        put_address(&mut bytes, Fadt::RESET_REG, GenericAddress::SYSTEM_MEMORY, 0xfed0_0000);
        assert_eq!(Fadt::parse(&Table::of(&bytes)).reset, None);
    }

    #[test]
    fn empty_tables_say_nothing() {
        assert_eq!(Fadt::parse(&Table::of(&[])), Fadt::default());
        assert_eq!(hpet_address(&Table::of(&[0; 45])), None);
        assert!(ecam_regions(&Table::of(&[0; 50])).is_empty());
    }

    #[test]
    fn lists_ecam_regions_and_drops_absurd_ones() {
        let allocation = |base: u64, segment: u16, first: u8, last: u8| {
            let mut bytes = base.to_le_bytes().to_vec();
            bytes.extend(segment.to_le_bytes());
            bytes.extend([first, last, 0, 0, 0, 0]);
            bytes
        };
        let mut bytes = vec![0; 44];
        bytes.extend(allocation(0xb000_0000, 0, 0, 255));
        bytes.extend(allocation(0, 1, 0, 255));
        bytes.extend(allocation(0xb000_1000, 1, 0, 255));
        bytes.extend(allocation(0x40_0000_0000, 2, 9, 8));
        bytes.extend(allocation(0x40_0000_0000, 3, 0x80, 0x8f));
        let expected = [
            EcamRegion { base: 0xb000_0000, segment: 0, first_bus: 0, last_bus: 255 },
            EcamRegion { base: 0x40_0000_0000, segment: 3, first_bus: 0x80, last_bus: 0x8f },
        ];
        assert_eq!(ecam_regions(&Table::of(&bytes)), expected);
    }
}

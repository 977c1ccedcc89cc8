//! FADT, HPET and MCFG: where clocks, the reset register and the PCI configuration space are.

use alloc::vec::Vec;
use core::fmt;

use super::table::{HEADER_LENGTH, Table};

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

impl EcamRegion {
    /// Each bus takes 1 MiB, and the region begins on a boundary of that.
    fn is_sound(&self) -> bool {
        let aligned = self.base != 0 && self.base.is_multiple_of(1 << 20);
        aligned && self.first_bus <= self.last_bus
    }
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
    /// Physical address of the DSDT.
    pub(super) dsdt: Option<u64>,
}

impl Fadt {
    const DSDT: usize = 40;
    const PM_TMR_BLK: usize = 76;
    const PM_TMR_LEN: usize = 91;
    const FLAGS: usize = 112;
    const RESET_REG: usize = 116;
    const RESET_VALUE: usize = 128;
    const X_DSDT: usize = 140;
    const X_PM_TMR_BLK: usize = 208;

    /// Flag: the reset register is there.
    const RESET_REG_SUP: u32 = 1 << 10;
    /// Flag: none of the fixed hardware is there, the timer included.
    const HW_REDUCED_ACPI: u32 = 1 << 20;

    pub(super) fn parse(table: &Table<'_>) -> Self {
        let flags = table.u32(Self::FLAGS).unwrap_or(0);
        Self {
            pm_timer: Self::pm_timer(table, flags),
            reset: Self::reset(table, flags),
            dsdt: Self::dsdt(table),
        }
    }

    fn dsdt(table: &Table<'_>) -> Option<u64> {
        let extended = table.u64(Self::X_DSDT).filter(|&address| address != 0);
        extended.or(table.u32(Self::DSDT).map(u64::from)).filter(|&address| address != 0)
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
    table
        .from(ALLOCATIONS)
        .chunks_exact(ALLOCATION_LENGTH)
        .filter_map(region)
        .filter(EcamRegion::is_sound)
        .collect()
}

/// The ECAM region whose base the host bridge in the DSDT states in its `_CBA` (PCI firmware specification 3.3, 4.1.3).
/// QEMU's `microvm` has no MCFG, only this.
///
/// AML is not interpreted here. The object is looked for by its bytes, and found where it is a constant or a method that
/// does nothing but return one; segment and buses are then taken to be the first and all.
pub(super) fn ecam_of_host_bridge(dsdt: &Table<'_>) -> Option<EcamRegion> {
    const NAME: &[u8] = b"_CBA";
    let bytes = dsdt.from(HEADER_LENGTH);
    let starts = (1..bytes.len()).filter(|&start| bytes[start..].starts_with(NAME));
    let base = starts.filter_map(|start| aml_value(bytes[start - 1], &bytes[start + NAME.len()..])).next()?;
    let region = EcamRegion { base, segment: 0, first_bus: 0, last_bus: u8::MAX };
    Some(region).filter(EcamRegion::is_sound)
}

/// The value of a named object, by the byte before its name and what follows it.
fn aml_value(before: u8, after: &[u8]) -> Option<u64> {
    /// A constant begins with this (ACPI 6.5, 20.2.5.1).
    const NAME_OP: u8 = 0x08;
    /// What follows the name of a method without arguments that begins with a return (20.2.5.2, 20.2.5.3).
    const NO_ARGUMENTS: u8 = 0;
    const RETURN_OP: u8 = 0xa4;
    match after {
        [NO_ARGUMENTS, RETURN_OP, value @ ..] => aml_integer(Table::of(value)),
        value if before == NAME_OP => aml_integer(Table::of(value)),
        _ => None,
    }
}

/// A constant in AML (ACPI 6.5, 20.2.3), of 32 or 64 bits, as any address of a region is.
fn aml_integer(encoded: Table<'_>) -> Option<u64> {
    const DWORD_PREFIX: u8 = 0x0c;
    const QWORD_PREFIX: u8 = 0x0e;
    match encoded.u8(0)? {
        DWORD_PREFIX => encoded.u32(1).map(u64::from),
        QWORD_PREFIX => encoded.u64(1),
        _ => None,
    }
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
    fn prefers_the_extended_dsdt_address() {
        let mut bytes = fadt(276, 0);
        bytes[Fadt::DSDT..][..4].copy_from_slice(&0x3ffe_0000u32.to_le_bytes());
        assert_eq!(Fadt::parse(&Table::of(&bytes)).dsdt, Some(0x3ffe_0000));
        bytes[Fadt::X_DSDT..][..8].copy_from_slice(&0x1_3ffe_0000u64.to_le_bytes());
        assert_eq!(Fadt::parse(&Table::of(&bytes)).dsdt, Some(0x1_3ffe_0000));
    }

    #[test]
    fn finds_the_constant_base_in_a_dsdt() {
        let find = |definition: &[u8]| {
            let bytes = [&[0; HEADER_LENGTH], &b"\x08_HID\x0d_CBA\0"[..], definition].concat();
            ecam_of_host_bridge(&Table::of(&bytes)).map(|region| region.base)
        };
        assert_eq!(find(b"\x08_CBA\x0c\0\0\0\xe0\x08_UID\0"), Some(0xe000_0000));
        assert_eq!(find(b"\x08_CBA\x0e\0\0\0\0\x40\0\0\0"), Some(0x40_0000_0000));
        assert_eq!(find(b"\x14\x0c_CBA\0\xa4\x0c\0\0\0\xe0\x08_CRS"), Some(0xe000_0000), "a method");
        assert_eq!(find(b"\x08_CBA\x0c\0\x10\0\xe0"), None, "not on a boundary");
        assert_eq!(find(b"\x08_CBA\x0c\0\0"), None, "cut off");
        assert_eq!(find(b"\x08_CBA\x68"), None, "not a constant");
        assert_eq!(find(b"\x14\x0c_CBA\x01\xa4\x0c\0\0\0\xe0"), None, "has an argument");
        assert_eq!(find(b""), None);
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

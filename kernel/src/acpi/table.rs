//! The ACPI root structures: from the RSDP to any table by its signature.
//!
//! Tables are plain byte slices here, and every read is checked against their length. The published ACPI crates
//! follow the lengths that the tables state (an entry of length 0 is an endless loop there), but a unikernel
//! has nothing to fall back on when firmware lies: a broken table has to end in a warning.
//!
//! Section numbers are those of the ACPI specification 6.5.

use core::fmt;

/// Read access to the physical memory in which firmware left its tables.
pub(super) trait FirmwareMemory {
    /// The `length` bytes at a physical address, or `None` where nothing may be read.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}

/// Why a table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableError {
    /// Neither the loader nor the BIOS area names a root pointer.
    NoRootPointer,
    /// The address of a table is outside of what may be read.
    Unreachable(u64),
    /// The signature is not the expected one.
    Signature(u64),
    /// The stated length is shorter than the fixed part or absurdly long.
    Length(u64),
    /// The bytes do not add up to zero.
    Checksum(u64),
    /// The root table does not list it.
    Absent,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRootPointer => write!(f, "no root pointer"),
            Self::Unreachable(address) => write!(f, "table at {address:#x} cannot be read"),
            Self::Signature(address) => write!(f, "wrong signature at {address:#x}"),
            Self::Length(address) => write!(f, "impossible length at {address:#x}"),
            Self::Checksum(address) => write!(f, "wrong checksum at {address:#x}"),
            Self::Absent => write!(f, "table not present"),
        }
    }
}

/// A table whose length and checksum were found right. Offsets count from the start of its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'m> {
    bytes: &'m [u8],
}

/// A table's signature, e.g. `APIC`.
pub(super) type Signature = [u8; 4];

/// Length of the header that every system description table begins with (5.2.6).
pub(super) const HEADER_LENGTH: usize = 36;
/// Longer tables than this are not believed. A MADT with 4096 cores has 64 KiB.
const LENGTH_LIMIT: usize = 1 << 20;

impl<'m> Table<'m> {
    /// Reads and checks the table at a physical address.
    pub(super) fn read(
        memory: &'m dyn FirmwareMemory,
        address: u64,
        signature: Signature,
    ) -> Result<Self, TableError> {
        let header = Self::header(memory, address)?;
        if header.bytes[..4] != signature {
            return Err(TableError::Signature(address));
        }
        let length = header.u32(4).unwrap_or(0) as usize;
        if !(HEADER_LENGTH..=LENGTH_LIMIT).contains(&length) {
            return Err(TableError::Length(address));
        }
        let bytes = memory.bytes(address, length).ok_or(TableError::Unreachable(address))?;
        if !adds_up(bytes) {
            return Err(TableError::Checksum(address));
        }
        Ok(Self { bytes })
    }

    fn header(memory: &'m dyn FirmwareMemory, address: u64) -> Result<Self, TableError> {
        let bytes = memory.bytes(address, HEADER_LENGTH).ok_or(TableError::Unreachable(address))?;
        Ok(Self { bytes })
    }

    /// What follows the first `offset` bytes; empty when the table is shorter.
    pub(super) fn from(&self, offset: usize) -> &'m [u8] {
        self.bytes.get(offset..).unwrap_or_default()
    }

    /// The byte at `offset`, or `None` past the end: fields were added at the end in later revisions.
    pub(super) fn u8(&self, offset: usize) -> Option<u8> {
        self.bytes.get(offset).copied()
    }

    /// The little-endian 16-bit field at `offset`.
    pub(super) fn u16(&self, offset: usize) -> Option<u16> {
        self.field(offset).map(u16::from_le_bytes)
    }

    /// The little-endian 32-bit field at `offset`.
    pub(super) fn u32(&self, offset: usize) -> Option<u32> {
        self.field(offset).map(u32::from_le_bytes)
    }

    /// The little-endian 64-bit field at `offset`.
    pub(super) fn u64(&self, offset: usize) -> Option<u64> {
        self.field(offset).map(u64::from_le_bytes)
    }

    fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.get(offset..)?.first_chunk().copied()
    }

    /// Takes any bytes as a table: the structures inside of tables have fields of the same kind.
    pub(super) fn of(bytes: &'m [u8]) -> Self {
        Self { bytes }
    }
}

/// The RSDT or XSDT: the list of all tables (5.2.7, 5.2.8).
#[derive(Debug)]
pub(super) struct RootTable<'m> {
    table: Table<'m>,
    entry_size: usize,
}

impl<'m> RootTable<'m> {
    /// Follows the root pointer at `rsdp`. A broken XSDT is replaced by the RSDT where there is one.
    pub(super) fn read(memory: &'m dyn FirmwareMemory, rsdp: u64) -> Result<Self, TableError> {
        let pointer = RootPointer::read(memory, rsdp)?;
        let xsdt = pointer.xsdt.map(|address| Table::read(memory, address, *b"XSDT"));
        if let Some(Ok(table)) = xsdt {
            return Ok(Self { table, entry_size: 8 });
        }
        match Table::read(memory, pointer.rsdt, *b"RSDT") {
            Ok(table) => Ok(Self { table, entry_size: 4 }),
            Err(error) => Err(xsdt.and_then(Result::err).unwrap_or(error)),
        }
    }

    /// The first table with this signature.
    pub(super) fn find(
        &self,
        memory: &'m dyn FirmwareMemory,
        signature: Signature,
    ) -> Result<Table<'m>, TableError> {
        let is_wanted = |&address: &u64| {
            Table::header(memory, address).is_ok_and(|header| header.bytes[..4] == signature)
        };
        let address = self.addresses().find(is_wanted).ok_or(TableError::Absent)?;
        Table::read(memory, address, signature)
    }

    fn addresses(&self) -> impl Iterator<Item = u64> {
        self.table.from(HEADER_LENGTH).chunks_exact(self.entry_size).map(|entry| {
            let entry = Table::of(entry);
            entry.u64(0).or(entry.u32(0).map(u64::from)).unwrap_or(0)
        })
    }
}

/// Where the RSDP points (5.2.5.3).
struct RootPointer {
    rsdt: u64,
    xsdt: Option<u64>,
}

impl RootPointer {
    const SIGNATURE: &[u8] = b"RSD PTR ";
    /// Length of the ACPI 1.0 structure, which the first checksum covers.
    const LENGTH: usize = 20;
    /// Length from revision 2 on.
    const EXTENDED_LENGTH: usize = 36;

    fn read(memory: &dyn FirmwareMemory, address: u64) -> Result<Self, TableError> {
        let bytes = memory.bytes(address, Self::LENGTH).ok_or(TableError::Unreachable(address))?;
        if !bytes.starts_with(Self::SIGNATURE) {
            return Err(TableError::Signature(address));
        }
        if !adds_up(bytes) {
            return Err(TableError::Checksum(address));
        }
        let revision = bytes[15];
        let rsdt = Table::of(bytes).u32(16).unwrap_or(0).into();
        let xsdt = (revision >= 2).then(|| Self::extended(memory, address)).flatten();
        Ok(Self { rsdt, xsdt })
    }

    fn extended(memory: &dyn FirmwareMemory, address: u64) -> Option<u64> {
        let bytes = memory.bytes(address, Self::EXTENDED_LENGTH).filter(|bytes| adds_up(bytes))?;
        Table::of(bytes).u64(24).filter(|&address| address != 0)
    }
}

/// Looks for the RSDP where a BIOS puts it (5.2.5.1): on a 16-byte boundary in the last 128 KiB below 1 MiB. The
/// other place, the EBDA, is found through a word in page 0, which is not mapped here.
pub(super) fn scan_for_root_pointer(memory: &dyn FirmwareMemory) -> Option<u64> {
    const AREA: core::ops::Range<u64> = 0xe0000..0x10_0000;
    let length = (AREA.end - AREA.start) as usize;
    let bytes = memory.bytes(AREA.start, length)?;
    let is_root_pointer = |candidate: &[u8]| {
        candidate.starts_with(RootPointer::SIGNATURE)
            && candidate.get(..RootPointer::LENGTH).is_some_and(adds_up)
    };
    let offset = (0..length).step_by(16).find(|&offset| is_root_pointer(&bytes[offset..]))?;
    Some(AREA.start + offset as u64)
}

/// Whether the bytes add up to zero, as those of every ACPI structure must.
fn adds_up(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Firmware, table};
    use super::*;

    #[test]
    fn finds_tables_through_xsdt() {
        let firmware = Firmware::new(&[table(*b"FACP", &[1; 80]), table(*b"APIC", &[2; 8])]);
        let root = RootTable::read(&firmware, firmware.rsdp()).unwrap();
        assert_eq!(root.find(&firmware, *b"APIC").unwrap().from(HEADER_LENGTH), [2; 8]);
        assert_eq!(root.find(&firmware, *b"MCFG").unwrap_err(), TableError::Absent);
    }

    #[test]
    fn falls_back_to_rsdt() {
        let mut firmware = Firmware::new(&[table(*b"APIC", &[2; 8])]);
        firmware.break_xsdt();
        let root = RootTable::read(&firmware, firmware.rsdp()).unwrap();
        assert_eq!(root.entry_size, 4);
        assert_eq!(root.find(&firmware, *b"APIC").unwrap().from(HEADER_LENGTH), [2; 8]);
    }

    #[test]
    fn refuses_broken_tables() {
        let mut wrong_sum = table(*b"APIC", &[2; 8]);
        wrong_sum[40] ^= 1;
        let mut too_short = table(*b"MCFG", &[]);
        too_short[4] = 8;
        let mut too_long = table(*b"HPET", &[]);
        too_long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let firmware = Firmware::new(&[wrong_sum, too_short, too_long]);
        let root = RootTable::read(&firmware, firmware.rsdp()).unwrap();
        let error = |signature| root.find(&firmware, signature).unwrap_err();
        assert!(matches!(error(*b"APIC"), TableError::Checksum(_)));
        assert!(matches!(error(*b"MCFG"), TableError::Length(_)));
        assert!(matches!(error(*b"HPET"), TableError::Length(_)));
    }

    #[test]
    fn refuses_wild_root_pointers() {
        let firmware = Firmware::new(&[]);
        let error = |address| RootTable::read(&firmware, address).unwrap_err();
        assert_eq!(error(u64::MAX - 3), TableError::Unreachable(u64::MAX - 3));
        assert_eq!(error(firmware.rsdp() + 16), TableError::Signature(firmware.rsdp() + 16));
    }

    #[test]
    fn scans_the_bios_area() {
        let firmware = Firmware::new(&[]);
        assert_eq!(scan_for_root_pointer(&firmware), Some(firmware.rsdp()));
    }

    #[test]
    fn fields_past_the_end_are_absent() {
        let table = Table::of(&[1, 2, 3, 4, 5]);
        assert_eq!(table.u32(1), Some(0x0504_0302));
        assert_eq!(table.u32(2), None);
        assert_eq!(table.u64(usize::MAX), None);
    }
}

//! MSI-X: interrupts that a function sends as memory writes to the local APIC of a core (PCI Express base
//! specification 6.0, 6.1.4.2 and 7.7.2).
#![allow(unsafe_code)] // Reads and writes the vector table, which is device memory.

use core::fmt;
use core::ptr::NonNull;

use super::bar::BarError;
use super::capability::id;
use super::function::Function;
use crate::paging::{self, MapError};

/// The MSI-X capability of a function, with its vector table mapped.
pub struct Msix {
    function: Function,
    capability: Description,
    table: NonNull<Entry>,
}

/// What the capability says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Offset of the capability in configuration space.
    pub offset: u16,
    /// How many vectors the table has, 1 to 2048.
    pub vectors: u16,
    /// Index of the base address register behind which the table is.
    pub table_bar: usize,
    /// Where the table begins there, in bytes.
    pub table_offset: u32,
}

/// Why MSI-X cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsixError {
    /// The function does not have it.
    Absent,
    /// The base address register of the table is not usable.
    Bar(BarError),
    /// The table would reach past the end of its base address register.
    TableOutside,
    /// The table cannot be mapped.
    Map(MapError),
    /// The table has no such vector.
    NoSuchVector,
    /// Without interrupt remapping, a message names a core by 8 bits, and this core's APIC id has more.
    CoreOutOfReach,
}

impl fmt::Display for MsixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the function has no MSI-X"),
            Self::Bar(error) => write!(f, "MSI-X table: {error}"),
            Self::TableOutside => f.write_str("the MSI-X table reaches past its memory"),
            Self::Map(error) => write!(f, "MSI-X table: {error}"),
            Self::NoSuchVector => f.write_str("the MSI-X table has no such vector"),
            Self::CoreOutOfReach => f.write_str("the APIC id of the core is above 254"),
        }
    }
}

impl Description {
    /// Message control is the upper half of the capability's first word.
    const CONTROL: u16 = 0;
    const TABLE: u16 = 4;
    /// Message control: the number of vectors, less one.
    const TABLE_SIZE: u32 = 0x7ff << 16;
    /// Message control: all vectors are masked.
    const FUNCTION_MASK: u32 = 1 << 30;
    /// Message control: MSI-X is on.
    const ENABLE: u32 = 1 << 31;
    /// Table word: which base address register; the rest is the offset.
    const TABLE_BIR: u32 = 0x7;

    /// Reads the capability of a function, where it has one.
    #[must_use]
    pub fn of(function: &Function) -> Option<Self> {
        let offset = function.capability(id::MSIX)?.offset;
        let control = function.read32(offset + Self::CONTROL);
        let table = function.read32(offset + Self::TABLE);
        Some(Self {
            offset,
            vectors: ((control & Self::TABLE_SIZE) >> 16) as u16 + 1,
            table_bar: (table & Self::TABLE_BIR) as usize,
            table_offset: table & !Self::TABLE_BIR,
        })
    }

    fn table_length(&self) -> u64 {
        u64::from(self.vectors) * size_of::<Entry>() as u64
    }

    /// Physical address of the table.
    fn table_address(&self, function: &Function) -> Result<u64, MsixError> {
        let (address, size) =
            function.bar(self.table_bar).and_then(|bar| bar.memory()).map_err(MsixError::Bar)?;
        let offset = u64::from(self.table_offset);
        let fits = offset + self.table_length() <= size;
        fits.then_some(address + offset).ok_or(MsixError::TableOutside)
    }
}

/// An entry of the vector table (7.7.2.5 to 7.7.2.8).
#[repr(C)]
struct Entry {
    /// Message address, lower and upper half.
    address: [u32; 2],
    /// Message data.
    data: u32,
    /// Vector control: bit 0 masks the vector.
    control: u32,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    const MASKED: u32 = 1 << 0;
}

impl Msix {
    /// Finds and maps the table, and masks every vector. MSI-X stays off until [`Msix::enable`].
    ///
    /// # Errors
    /// See [`MsixError`].
    pub fn open(function: Function) -> Result<Self, MsixError> {
        let capability = Description::of(&function).ok_or(MsixError::Absent)?;
        let address = capability.table_address(&function)?;
        let table = paging::map_mmio(address, capability.table_length()).map_err(MsixError::Map)?;
        let mut msix = Self { function, capability, table: table.cast() };
        function.enable();
        for index in 0..capability.vectors {
            msix.mask(index)?;
        }
        Ok(msix)
    }

    /// How many vectors the function has.
    #[must_use]
    pub fn vectors(&self) -> u16 {
        self.capability.vectors
    }

    /// Directs vector `index` to an interrupt vector of the core with this APIC id, and unmasks it.
    ///
    /// # Errors
    /// [`MsixError::NoSuchVector`], [`MsixError::CoreOutOfReach`].
    pub fn set_vector(&mut self, index: u16, apic_id: u32, vector: u8) -> Result<(), MsixError> {
        let (address, data) = message(apic_id, vector)?;
        let entry = self.entry(index)?;
        // SAFETY: `entry` is in the mapped table, aligned; the vector is masked while address and data change, so that
        // the function cannot send half a message.
        unsafe {
            (&raw mut (*entry).control).write_volatile(Entry::MASKED);
            (&raw mut (*entry).address[0]).write_volatile(address);
            (&raw mut (*entry).address[1]).write_volatile(0);
            (&raw mut (*entry).data).write_volatile(data);
            (&raw mut (*entry).control).write_volatile(0);
        }
        Ok(())
    }

    /// Masks vector `index`: the function keeps its interrupts pending.
    ///
    /// # Errors
    /// [`MsixError::NoSuchVector`].
    pub fn mask(&mut self, index: u16) -> Result<(), MsixError> {
        let entry = self.entry(index)?;
        // SAFETY: `entry` is in the mapped table, aligned.
        unsafe { (&raw mut (*entry).control).write_volatile(Entry::MASKED) };
        Ok(())
    }

    /// Turns MSI-X on. Set the vectors first, and only then let the device use them.
    pub fn enable(&mut self) {
        let control = self.function.read32(self.capability.offset + Description::CONTROL);
        let on = (control | Description::ENABLE) & !Description::FUNCTION_MASK;
        self.function.write32(self.capability.offset + Description::CONTROL, on);
    }

    /// Turns MSI-X off.
    pub fn disable(&mut self) {
        let control = self.function.read32(self.capability.offset + Description::CONTROL);
        self.function.write32(self.capability.offset + Description::CONTROL, control & !Description::ENABLE);
    }

    fn entry(&self, index: u16) -> Result<*mut Entry, MsixError> {
        if index >= self.capability.vectors {
            return Err(MsixError::NoSuchVector);
        }
        // SAFETY: The table that is mapped has `vectors` entries, and `index` is below.
        Ok(unsafe { self.table.add(index.into()) }.as_ptr())
    }
}

/// Address (lower half; the upper is 0) and data of the message that raises an interrupt vector on a core: fixed
/// delivery, edge triggered, physical destination (SDM volume 3, 11.11).
fn message(apic_id: u32, vector: u8) -> Result<(u32, u32), MsixError> {
    const ADDRESS: u32 = 0xfee0_0000;
    const BROADCAST: u32 = 0xff;
    if apic_id >= BROADCAST {
        return Err(MsixError::CoreOutOfReach);
    }
    Ok((ADDRESS | apic_id << 12, vector.into()))
}

#[cfg(test)]
mod tests {
    use super::super::Address;
    use super::super::testing::FakeSpace;
    use super::*;

    /// A function with MSI-X: the control word, and the table word.
    fn function(control: u16, table: u32) -> Function {
        let space = FakeSpace::default();
        let device = space.add(Address::new(0, 0, 4, 0), 0x1041_1af4);
        device.set(4, 1 << 20);
        device.set(0x34, 0x98);
        device.set(0x98, u32::from(control) << 16 | u32::from(id::MSIX));
        device.set(0x9c, table);
        device.set_masked(0x14, 0xfe00_0000, 0xffff_f000);
        space.function(Address::new(0, 0, 4, 0))
    }

    #[test]
    fn describes_the_table() {
        let function = function(0x8003, 0x801);
        let description = Description::of(&function).unwrap();
        assert_eq!(description, Description { offset: 0x98, vectors: 4, table_bar: 1, table_offset: 0x800 });
        assert_eq!(description.table_address(&function), Ok(0xfe00_0800));
    }

    #[test]
    fn refuses_tables_that_are_not_where_they_claim() {
        let error = |control, table| {
            let function = function(control, table);
            Description::of(&function).unwrap().table_address(&function).unwrap_err()
        };
        assert_eq!(error(0x07ff, 0x801), MsixError::TableOutside);
        assert_eq!(error(0, 0xffff_fff9), MsixError::TableOutside);
        assert_eq!(error(0, 0x3), MsixError::Bar(BarError::Absent));
        assert_eq!(error(0, 0x7), MsixError::Bar(BarError::NoSuchRegister));
    }

    #[test]
    fn messages_name_core_and_vector() {
        assert_eq!(message(5, 0x41), Ok((0xfee0_5000, 0x41)));
        assert_eq!(message(255, 0x41), Err(MsixError::CoreOutOfReach));
    }
}

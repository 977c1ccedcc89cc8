//! Base address registers: where a function wants to be reached (PCI Express base specification 6.0, 7.5.1.2.1).

use core::fmt;

use pci_types::CommandRegister;

use super::function::Function;
use super::header::common;

/// A decoded base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// A range of memory addresses.
    Memory {
        /// Physical address of the first byte; 0 where firmware gave none.
        address: u64,
        /// Size in bytes, a power of two.
        size: u64,
        /// Whether the register, with the next one, holds 64 bits.
        width: Width,
    },
    /// A range of I/O ports.
    Io {
        /// First port; 0 where firmware gave none.
        port: u32,
        /// Number of ports, a power of two.
        size: u32,
    },
}

/// How many bits the address in a memory BAR has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One register.
    Bits32,
    /// Two registers.
    Bits64,
}

/// Why a BAR cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarError {
    /// The header has no such register.
    NoSuchRegister,
    /// The function does not implement it, or it is the upper half of a 64-bit BAR.
    Absent,
    /// The type bits have a reserved value, or a 64-bit BAR begins in the last register.
    Malformed,
    /// Firmware gave it no address.
    Unassigned,
    /// It is a range of ports where memory was expected.
    NotMemory,
}

impl fmt::Display for BarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchRegister => "the header has no such base address register",
            Self::Absent => "the base address register is not implemented",
            Self::Malformed => "the base address register is malformed",
            Self::Unassigned => "firmware gave the base address register no address",
            Self::NotMemory => "the base address register is for ports, not for memory",
        })
    }
}

impl core::error::Error for BarError {}

impl Bar {
    /// The physical address and the size in bytes of a memory BAR.
    ///
    /// # Errors
    /// [`BarError::NotMemory`], and [`BarError::Unassigned`] where firmware gave no address.
    pub fn memory(self) -> Result<(u64, u64), BarError> {
        match self {
            Self::Memory { address: 0, .. } => Err(BarError::Unassigned),
            Self::Memory { address, size, .. } => Ok((address, size)),
            Self::Io { .. } => Err(BarError::NotMemory),
        }
    }

    /// How many registers it takes.
    pub(super) fn registers(self) -> usize {
        match self {
            Self::Memory { width: Width::Bits64, .. } => 2,
            _ => 1,
        }
    }
}

/// Bit 0: ports, not memory.
const IO_SPACE: u32 = 1 << 0;
/// Bits 2:1 of a memory BAR: its type.
const MEMORY_TYPE: u32 = 0b11 << 1;
const MEMORY_TYPE_32: u32 = 0b00 << 1;
const MEMORY_TYPE_64: u32 = 0b10 << 1;
/// Bits that are no part of a memory address.
const MEMORY_FLAGS: u32 = 0xf;
/// Bits that are no part of a port number.
const IO_FLAGS: u32 = 0x3;

/// Offset of the register.
pub(super) fn offset(index: usize) -> u16 {
    common::BAR_0 + 4 * index as u16
}

/// The address in the memory BAR that begins with register `index`, without its size.
pub(super) fn address(function: &Function, index: usize) -> Result<u64, BarError> {
    if index >= function.bar_count() {
        return Err(BarError::NoSuchRegister);
    }
    let low = function.read32(offset(index));
    let address = match low & MEMORY_TYPE {
        _ if low & IO_SPACE != 0 => return Err(BarError::NotMemory),
        MEMORY_TYPE_32 => u64::from(low & !MEMORY_FLAGS),
        MEMORY_TYPE_64 if index + 1 < function.bar_count() => {
            join(low & !MEMORY_FLAGS, function.read32(offset(index + 1)))
        }
        _ => return Err(BarError::Malformed),
    };
    if address == 0 { Err(BarError::Unassigned) } else { Ok(address) }
}

/// Decodes register `index` of a function.
pub(super) fn decode(function: &Function, index: usize) -> Result<Bar, BarError> {
    if index >= function.bar_count() {
        return Err(BarError::NoSuchRegister);
    }
    let low = function.read32(offset(index));
    if low & IO_SPACE != 0 {
        return decode_io(function, index, low);
    }
    match low & MEMORY_TYPE {
        MEMORY_TYPE_32 => decode_memory32(function, index, low),
        MEMORY_TYPE_64 if index + 1 < function.bar_count() => decode_memory64(function, index, low),
        _ => Err(BarError::Malformed),
    }
}

fn decode_io(function: &Function, index: usize, low: u32) -> Result<Bar, BarError> {
    let [mask] = probe(function, index);
    // The upper 16 bits may be wired to 0: x86 has 64 Ki ports.
    let size = lowest_bit(u64::from(mask & !IO_FLAGS)).ok_or(BarError::Absent)?;
    Ok(Bar::Io { port: low & !IO_FLAGS, size: size as u32 })
}

fn decode_memory32(function: &Function, index: usize, low: u32) -> Result<Bar, BarError> {
    let [mask] = probe(function, index);
    let size = lowest_bit(u64::from(mask & !MEMORY_FLAGS)).ok_or(BarError::Absent)?;
    Ok(Bar::Memory { address: u64::from(low & !MEMORY_FLAGS), size, width: Width::Bits32 })
}

fn decode_memory64(function: &Function, index: usize, low: u32) -> Result<Bar, BarError> {
    let high = function.read32(offset(index + 1));
    let [low_mask, high_mask] = probe(function, index);
    let size = lowest_bit(join(low_mask & !MEMORY_FLAGS, high_mask)).ok_or(BarError::Absent)?;
    Ok(Bar::Memory { address: join(low & !MEMORY_FLAGS, high), size, width: Width::Bits64 })
}

/// Writes ones to `N` registers and returns what stuck: the address bits that the function decodes.
///
/// The function must not decode meanwhile: all ones is an address where something else may live.
fn probe<const N: usize>(function: &Function, index: usize) -> [u32; N] {
    let command = function.command();
    function.set_command(command - (CommandRegister::MEMORY_ENABLE | CommandRegister::IO_ENABLE));
    let registers: [u16; N] = core::array::from_fn(|i| offset(index + i));
    let saved = registers.map(|register| function.read32(register));
    registers.iter().for_each(|&register| function.write32(register, !0));
    let masks = registers.map(|register| function.read32(register));
    registers.iter().zip(saved).for_each(|(&register, value)| function.write32(register, value));
    function.set_command(command);
    masks
}

fn lowest_bit(mask: u64) -> Option<u64> {
    (mask != 0).then(|| mask & mask.wrapping_neg())
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::super::Address;
    use super::super::testing::FakeSpace;
    use super::*;

    fn here() -> Address {
        Address::new(0, 0, 3, 0)
    }

    fn function(bars: &[(u16, u32, u32)]) -> Function {
        let space = FakeSpace::default();
        let device = space.add(here(), 0x8086_10fb);
        for &(index, value, writable) in bars {
            device.set_masked(offset(index.into()), value, writable);
        }
        space.function(here())
    }

    #[test]
    fn decodes_each_kind() {
        let function = function(&[
            (0, 0xfe00_0000, 0xfff0_0000),
            (1, 0xc041, 0xffe0),
            (2, 0x0000_400c, 0xffff_c000),
            (3, 0xe0, 0xffff_ffff),
            (4, 0x0000_0004, 0),
            (5, 0, 0xffff_fff0),
        ]);
        let memory32 = Bar::Memory { address: 0xfe00_0000, size: 1 << 20, width: Width::Bits32 };
        let memory64 = Bar::Memory { address: 0xe0_0000_4000, size: 0x4000, width: Width::Bits64 };
        let above_4g = Bar::Memory { address: 0, size: 1 << 36, width: Width::Bits64 };
        assert_eq!(function.bar(0), Ok(memory32));
        assert_eq!(function.bar(1), Ok(Bar::Io { port: 0xc040, size: 32 }));
        assert_eq!(function.bar(2), Ok(memory64));
        assert_eq!(function.bar(4), Ok(above_4g));
        assert_eq!(function.bar(6), Err(BarError::NoSuchRegister));
        let addresses = [0, 1, 2, 4, 6].map(|index| function.bar_address(index));
        let (not_memory, unassigned) = (Err(BarError::NotMemory), Err(BarError::Unassigned));
        let no_such = Err(BarError::NoSuchRegister);
        assert_eq!(addresses, [Ok(0xfe00_0000), not_memory, Ok(0xe0_0000_4000), unassigned, no_such]);
    }

    #[test]
    fn names_what_is_wrong() {
        let function = function(&[(1, 0b010, 0), (2, 0, 0xffff_f000), (5, 0b100, 0xffff_f000)]);
        assert_eq!(function.bar(0), Err(BarError::Absent));
        assert_eq!(function.bar(1), Err(BarError::Malformed));
        assert_eq!(function.bar(5), Err(BarError::Malformed));
        assert_eq!(function.bar(2).and_then(Bar::memory), Err(BarError::Unassigned));
        assert_eq!(Bar::Io { port: 0xc000, size: 4 }.memory(), Err(BarError::NotMemory));
    }

    #[test]
    fn puts_everything_back() {
        let function = function(&[(0, 0xfe00_0004, 0xffff_f000), (1, 0x12, 0xffff_ffff)]);
        function.enable();
        let command = function.command();
        assert_eq!(function.bar(0).unwrap().memory(), Ok((0x12_fe00_0000, 0x1000)));
        assert_eq!(function.read32(offset(0)), 0xfe00_0004);
        assert_eq!(function.read32(offset(1)), 0x12);
        assert_eq!(function.command(), command);
    }
}

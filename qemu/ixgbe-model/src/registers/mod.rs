//! Registers: which there are, where, and what they hold.

mod bits;
mod table;

use std::fmt;
use std::sync::LazyLock;

pub use bits::*;
pub use table::Register;

/// Bytes of BAR0 that hold registers.
pub const BAR_LEN: u32 = 0x8_0000;

/// How a register answers, apart from what it sets off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and written.
    RW,
    /// Read only; a write is ignored.
    RO,
    /// A counter that a read clears.
    RC,
    /// Writing ones clears them.
    W1C,
    /// Write only; reads as zero.
    WO,
}

/// Where a part of an array of registers is.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Registers in it.
    pub count: u16,
    /// Offset of the first in BAR0, in bytes.
    pub offset: u32,
    /// Bytes from one to the next.
    pub stride: u32,
}

/// What is known of a register.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The datasheet's name.
    pub name: &'static str,
    /// How it answers.
    pub access: Access,
    /// Its value after a reset.
    pub reset: u32,
    /// Where it is, from index 0 on.
    pub runs: &'static [Run],
    /// Further addresses of the same registers, from index 0 on.
    pub aliases: &'static [Run],
    /// What it is for.
    pub meaning: &'static str,
    /// The section of the datasheet that describes it.
    pub section: &'static str,
}

impl Row {
    /// Registers in the array.
    pub const fn count(&self) -> usize {
        let (mut count, mut run) = (0, 0);
        while run < self.runs.len() {
            count += self.runs[run].count as usize;
            run += 1;
        }
        count
    }
}

impl Register {
    /// All registers, in the order of the datasheet.
    pub fn all() -> impl Iterator<Item = Register> {
        table::REGISTERS.iter().copied()
    }

    /// What is known of it.
    pub fn row(self) -> &'static Row {
        &table::ROWS[self as usize]
    }

    /// The offset in BAR0 of register `index` of the array, which may be its only one.
    ///
    /// # Panics
    /// When the array is shorter.
    pub fn offset(self, index: usize) -> u32 {
        let mut index = index;
        for run in self.row().runs {
            if index < usize::from(run.count) {
                return run.offset + index as u32 * run.stride;
            }
            index -= usize::from(run.count);
        }
        panic!("{} has {} registers", self.row().name, self.row().count())
    }

    /// Which register is at an offset in BAR0, and its index in the array.
    pub fn at(offset: u32) -> Option<(Register, usize)> {
        if !offset.is_multiple_of(4) {
            return None;
        }
        let (row, index) = *MAP.get(offset as usize / 4)?;
        Some((*table::REGISTERS.get(usize::from(row))?, usize::from(index)))
    }
}

/// Row and index of every word of the BAR; the row is out of range where there is no register.
static MAP: LazyLock<Vec<(u16, u16)>> = LazyLock::new(|| {
    let mut map = vec![(u16::MAX, 0); BAR_LEN as usize / 4];
    for register in Register::all() {
        for runs in [register.row().runs, register.row().aliases] {
            let offsets =
                runs.iter().flat_map(|run| (0..u32::from(run.count)).map(|n| run.offset + n * run.stride));
            for (index, offset) in (0..).zip(offsets) {
                let place = &mut map[offset as usize / 4];
                assert_eq!(place.0, u16::MAX, "{} is where another register is", register.row().name);
                *place = (register as u16, index);
            }
        }
    }
    map
});

/// Where the values of each row begin.
const BASES: [u16; table::ROWS.len() + 1] = {
    let mut bases = [0; table::ROWS.len() + 1];
    let mut row = 0;
    while row < table::ROWS.len() {
        bases[row + 1] = bases[row] + table::ROWS[row].count() as u16;
        row += 1;
    }
    bases
};

/// What the registers hold.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    words: Vec<u32>,
}

impl Values {
    /// As after a reset.
    pub(crate) fn new() -> Values {
        let mut values = Values { words: vec![0; usize::from(BASES[table::ROWS.len()])] };
        for register in Register::all() {
            values.reset(register);
        }
        values
    }

    /// Gives all registers of a row the value that they have after a reset.
    pub(crate) fn reset(&mut self, register: Register) {
        let row = register as usize;
        self.words[usize::from(BASES[row])..usize::from(BASES[row + 1])].fill(register.row().reset);
    }

    #[inline]
    fn place(register: Register, index: usize) -> usize {
        let row = register as usize;
        debug_assert!(index < register.row().count(), "{register:?} has no register {index}");
        usize::from(BASES[row]) + index
    }

    /// Register `index` of an array.
    #[inline]
    pub(crate) fn at(&self, register: Register, index: usize) -> u32 {
        self.words[Self::place(register, index)]
    }

    /// Sets register `index` of an array.
    #[inline]
    pub(crate) fn set_at(&mut self, register: Register, index: usize, value: u32) {
        self.words[Self::place(register, index)] = value;
    }

    /// A register that is not an array.
    #[inline]
    pub(crate) fn get(&self, register: Register) -> u32 {
        self.at(register, 0)
    }

    /// Sets a register that is not an array.
    #[inline]
    pub(crate) fn set(&mut self, register: Register, value: u32) {
        self.set_at(register, 0, value);
    }

    /// Whether any of these bits is set.
    #[inline]
    pub(crate) fn has(&self, register: Register, bits: u32) -> bool {
        self.get(register) & bits != 0
    }

    /// Sets bits.
    pub(crate) fn insert(&mut self, register: Register, bits: u32) {
        self.set(register, self.get(register) | bits);
    }

    /// Clears bits.
    pub(crate) fn remove(&mut self, register: Register, bits: u32) {
        self.set(register, self.get(register) & !bits);
    }

    /// Reads a counter, which clears it.
    pub(crate) fn take_at(&mut self, register: Register, index: usize) -> u32 {
        std::mem::take(&mut self.words[Self::place(register, index)])
    }

    /// The first two registers of an array as one set of bits.
    pub(crate) fn wide_pair(&self, register: Register) -> u64 {
        u64::from(self.at(register, 1)) << 32 | u64::from(self.at(register, 0))
    }

    /// A pair of registers, the halves of an address or of a count.
    pub(crate) fn wide(&self, low: Register, high: Register, index: usize) -> u64 {
        u64::from(self.at(high, index)) << 32 | u64::from(self.at(low, index))
    }
}

/// One register, for messages: its name, and its index where it is one of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The register or array.
    pub register: Register,
    /// Which of the array.
    pub index: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.register.row();
        if row.count() == 1 { f.write_str(row.name) } else { write!(f, "{}[{}]", row.name, self.index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_registers_share_an_address() {
        LazyLock::force(&MAP);
    }

    #[test]
    fn arrays_are_where_the_datasheet_has_them() {
        for (register, index, offset) in [
            (Register::CTRL, 0, 0x00000),
            (Register::RDBAL, 63, 0x01fc0),
            (Register::RDBAL, 64, 0x0d000),
            (Register::SRRCTL, 15, 0x013d4),
            (Register::RAL, 127, 0x0a5f8),
            (Register::EITR, 23, 0x0087c),
            (Register::EITR, 24, 0x12300),
            (Register::TDT, 127, 0x07fd8),
            (Register::PFVFLRE, 1, 0x001c0),
        ] {
            assert_eq!(register.offset(index), offset, "{register:?}[{index}]");
            assert_eq!(Register::at(offset), Some((register, index)), "{offset:#x}");
        }
    }

    #[test]
    fn an_alias_is_the_same_register() {
        for (alias, register, index) in [
            (0x00004, Register::CTRL, 0),
            (0x0213c, Register::SRRCTL, 15),
            (0x02204, Register::DCA_RXCTRL, 1),
            (0x05400, Register::RAL, 0),
            (0x0547c, Register::RAH, 15),
        ] {
            assert_eq!(Register::at(alias), Some((register, index)), "{alias:#x}");
        }
    }

    #[test]
    fn what_is_no_register_is_told() {
        for offset in [0x0000c, 0x00002, 0x7fffc, BAR_LEN, !3] {
            assert_eq!(Register::at(offset), None, "{offset:#x}");
        }
    }
}

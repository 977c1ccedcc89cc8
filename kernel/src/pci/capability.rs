//! The list of capabilities in a function's configuration space (PCI Express base specification 6.0, 7.5.1.1.11).

use super::function::Function;
use super::header::{HAS_CAPABILITIES, common};

/// Ids of the capabilities that are used here.
pub mod id {
    /// Vendor specific; virtio describes its register blocks with it.
    pub const VENDOR: u8 = 0x09;
    /// PCI Express.
    pub const PCI_EXPRESS: u8 = 0x10;
    /// MSI-X.
    pub const MSIX: u8 = 0x11;
}

/// A capability: what it is, and where its registers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What it is, see [`id`].
    pub id: u8,
    /// Offset of its first byte, which is the id itself.
    pub offset: u16,
}

/// Iterator over the capabilities of a function.
#[derive(Clone, Debug)]
pub struct Capabilities<'f> {
    function: &'f Function,
    next: u16,
    /// How many more there can be. A list that bites its own tail ends here.
    left: usize,
}

/// Capabilities lie behind the header, on word boundaries, in the first 256 bytes.
const FIRST_OFFSET: u16 = 0x40;
const MOST: usize = (0x100 - FIRST_OFFSET as usize) / 4;

impl<'f> Capabilities<'f> {
    pub(super) fn of(function: &'f Function) -> Self {
        let listed = function.read16(common::STATUS) & HAS_CAPABILITIES != 0;
        let next = if listed { function.read8(common::CAPABILITIES) } else { 0 };
        Self { function, next: next.into(), left: MOST }
    }
}

impl Iterator for Capabilities<'_> {
    type Item = Capability;

    fn next(&mut self) -> Option<Capability> {
        // The two lowest bits of a pointer are reserved.
        let offset = self.next & !3;
        if offset < FIRST_OFFSET {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let [id, next, ..] = self.function.read32(offset).to_le_bytes();
        self.next = next.into();
        Some(Capability { id, offset })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::Address;
    use super::super::testing::FakeSpace;
    use super::*;

    fn function(list: &[(u16, u8, u8)], first: u8) -> Function {
        let space = FakeSpace::default();
        let device = space.add(Address::new(0, 0, 1, 0), 0x1af4_1041);
        device.set(4, u32::from(HAS_CAPABILITIES) << 16);
        device.set(common::CAPABILITIES, first.into());
        for &(offset, id, next) in list {
            device.set(offset, u32::from_le_bytes([id, next, 0xaa, 0xbb]));
        }
        space.function(Address::new(0, 0, 1, 0))
    }

    #[test]
    fn follows_the_list() {
        let function = function(&[(0x40, id::VENDOR, 0x54), (0x54, id::MSIX, 0)], 0x40);
        let expected =
            [Capability { id: id::VENDOR, offset: 0x40 }, Capability { id: id::MSIX, offset: 0x54 }];
        assert_eq!(function.capabilities().collect::<Vec<_>>(), expected);
        assert_eq!(function.capability(id::MSIX), Some(expected[1]));
        assert_eq!(function.capability(id::PCI_EXPRESS), None);
    }

    #[test]
    fn survives_a_list_that_bites_its_tail() {
        assert_eq!(function(&[(0x40, 9, 0x50), (0x50, 9, 0x40)], 0x40).capabilities().count(), MOST);
        assert_eq!(function(&[(0x40, 0, 0x40)], 0x40).capability(id::MSIX), None);
    }

    #[test]
    fn ignores_pointers_into_the_header() {
        assert_eq!(function(&[], 0x3c).capabilities().count(), 0);
        assert_eq!(function(&[(0x40, 9, 0x10)], 0x43).capabilities().count(), 1);
    }

    #[test]
    fn reads_no_list_where_the_status_denies_it() {
        let function = function(&[(0x40, 9, 0)], 0x40);
        function.write32(common::COMMAND, 0);
        assert_eq!(function.capabilities().count(), 0);
    }
}

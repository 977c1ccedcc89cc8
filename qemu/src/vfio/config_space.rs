//! The card's PCI configuration space: what it is, what it can, and the few registers that a guest may write.
//!
//! Section numbers are those of the PCI Express base specification, 3.0; the layout (which capability lies where) is the
//! card's own (82599 datasheet, 9.3): Linux's driver reads link and device status without walking the list.

use ixgbe_model::PciIds;

/// Bytes of the configuration space of a PCI Express function (7.2.2).
pub(super) const SIZE: usize = 4096;
/// Bytes of the interrupt table and its pending bits behind BAR 4.
pub(super) const VECTORS_SIZE: u64 = 0x4000;

/// What a function has behind its BARs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of the registers behind BAR 0.
    pub(super) registers: u64,
    /// Interrupt vectors.
    pub(super) vectors: u16,
}

/// A physical function (82599 datasheet, 9.3).
pub(super) const PHYSICAL: Layout = Layout { registers: 0x8_0000, vectors: 64 };
/// A virtual one (9.5), but for the number of the BAR that its vectors are behind.
pub(super) const VIRTUAL: Layout = Layout { registers: 0x4000, vectors: 3 };

const COMMAND: usize = 0x04;
const COMMAND_BUS_MASTER: u8 = 1 << 2;
const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const REVISION: usize = 0x08;
const BAR0: usize = 0x10;
const BAR4: usize = 0x20;
/// A window of memory that may lie anywhere in 64 bits, without side effects of reading ahead (7.5.1.2.1).
const BAR_MEMORY_64_PREFETCHABLE: u32 = 0b1100;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;

const POWER_MANAGEMENT: usize = 0x40;
const MSI_X: usize = 0x70;
const PENDING_BITS: u32 = 0x2000;
const EXPRESS: usize = 0xa0;

const ID_POWER_MANAGEMENT: u8 = 0x01;
const ID_MSI_X: u8 = 0x11;
const ID_EXPRESS: u8 = 0x10;

/// 5 GT/s over eight lanes, the most that the card can (7.8.6, 7.8.8).
const LINK: u16 = 8 << 4 | 2;

/// What a guest may write: an offset and the bits there, lowest byte first. Everything else keeps its value; QEMU
/// keeps the BARs and the vector table to itself.
const WRITABLE: [(usize, &[u8]); 6] = [
    (COMMAND, &[0x47, 0x05]),
    (POWER_MANAGEMENT + 4, &[0x03, 0x01]),
    (MSI_X + 2, &[0x00, 0xc0]),
    (EXPRESS + 0x08, &[0xff, 0x7f]),
    (EXPRESS + 0x10, &[0xff, 0x0f]),
    (EXPRESS + 0x28, &[0x1f, 0x00]),
];

/// The configuration space of one card.
pub(super) struct ConfigSpace {
    bytes: Box<[u8; SIZE]>,
}

impl ConfigSpace {
    pub(super) fn new(ids: PciIds, layout: Layout) -> Self {
        let mut space = Self { bytes: Box::new([0; SIZE]) };
        space.add_header(ids);
        space.add_power_management();
        space.add_msi_x(layout.vectors);
        space.add_express();
        space
    }

    /// Copies what lies at `offset`; beyond the end there is nothing.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.bytes.get(offset + index).copied().unwrap_or(0);
        }
    }

    /// Takes over the bits that can be written.
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) {
        for (index, &value) in from.iter().enumerate() {
            let mask = writable(offset + index);
            if let Some(byte) = self.bytes.get_mut(offset + index) {
                *byte = *byte & !mask | value & mask;
            }
        }
    }

    /// Whether the card may reach memory and send interrupts (7.5.1.1).
    pub(super) fn is_bus_master(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_BUS_MASTER != 0
    }

    fn add_header(&mut self, ids: PciIds) {
        self.put16(0x00, ids.vendor);
        self.put16(0x02, ids.device);
        self.put16(STATUS, STATUS_CAPABILITIES);
        let [class, subclass, interface] = ids.class;
        self.put32(REVISION, u32::from_be_bytes([class, subclass, interface, ids.revision]));
        self.put32(BAR0, BAR_MEMORY_64_PREFETCHABLE);
        self.put32(BAR4, BAR_MEMORY_64_PREFETCHABLE);
        self.put16(SUBSYSTEM, ids.subsystem_vendor);
        self.put16(SUBSYSTEM + 2, ids.subsystem);
        self.bytes[CAPABILITIES] = POWER_MANAGEMENT as u8;
    }

    /// Version 3, without wake-up; a reset is not needed after D3 (PCI power management 1.2, 3.2).
    fn add_power_management(&mut self) {
        self.add_capability(POWER_MANAGEMENT, ID_POWER_MANAGEMENT, MSI_X);
        self.put16(POWER_MANAGEMENT + 2, 3);
        self.put16(POWER_MANAGEMENT + 4, 1 << 3);
    }

    /// The table at the start of BAR 4, the pending bits behind it (PCI 3.0, 6.8.2).
    fn add_msi_x(&mut self, vectors: u16) {
        const BAR: u32 = 4;
        self.add_capability(MSI_X, ID_MSI_X, EXPRESS);
        self.put16(MSI_X + 2, vectors - 1);
        self.put32(MSI_X + 4, BAR);
        self.put32(MSI_X + 8, PENDING_BITS | BAR);
    }

    /// An endpoint of version 2, reset by function level reset, with payloads up to 512 bytes (7.8).
    fn add_express(&mut self) {
        const FUNCTION_LEVEL_RESET: u32 = 1 << 28;
        const PAYLOAD_512: u32 = 2;
        const COMMON_CLOCK: u16 = 1 << 12;
        self.add_capability(EXPRESS, ID_EXPRESS, 0);
        self.put16(EXPRESS + 2, 2);
        self.put32(EXPRESS + 0x04, FUNCTION_LEVEL_RESET | PAYLOAD_512);
        self.put32(EXPRESS + 0x0c, LINK.into());
        self.put16(EXPRESS + 0x12, COMMON_CLOCK | LINK);
        self.put16(EXPRESS + 0x30, LINK & 0xf);
    }

    fn add_capability(&mut self, at: usize, id: u8, next: usize) {
        self.bytes[at] = id;
        self.bytes[at + 1] = next as u8;
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// The bits of a byte that can be written.
fn writable(offset: usize) -> u8 {
    let inside = |&(start, mask): &(usize, &[u8])| mask.get(offset.checked_sub(start)?).copied();
    WRITABLE.iter().find_map(inside).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ixgbe_model::{Card, CardOptions};

    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(Card::new(CardOptions::default()).ids(), PHYSICAL)
    }

    fn read16(space: &ConfigSpace, offset: usize) -> u16 {
        let mut bytes = [0; 2];
        space.read(offset, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    #[test]
    fn the_list_of_capabilities_has_an_end() {
        let space = space();
        let mut at = usize::from(space.bytes[CAPABILITIES]);
        let mut found = Vec::new();
        while at != 0 {
            found.push(space.bytes[at]);
            at = space.bytes[at + 1].into();
        }
        assert_eq!(found, [ID_POWER_MANAGEMENT, ID_MSI_X, ID_EXPRESS]);
    }

    #[test]
    fn it_is_an_ethernet_card_of_intel() {
        let space = space();
        assert_eq!(read16(&space, 0), 0x8086);
        assert_eq!(read16(&space, 0x0a), 0x0200);
    }

    #[test]
    fn only_what_can_be_written_changes() {
        let mut space = space();
        assert!(!space.is_bus_master());
        space.write(COMMAND, &0x0006_u16.to_le_bytes());
        assert!(space.is_bus_master());
        let before = space.bytes.clone();
        space.write(BAR0, &[0xff; 24]);
        space.write(0, &[0xff; 4]);
        space.write(SIZE - 2, &[0xff; 8]);
        assert!(space.bytes == before);
        space.write(MSI_X + 2, &0xffff_u16.to_le_bytes());
        assert_eq!(read16(&space, MSI_X + 2), 0xc000 | (PHYSICAL.vectors - 1));
    }

    #[test]
    fn behind_the_end_there_is_nothing() {
        let mut bytes = [0xff; 8];
        space().read(SIZE - 4, &mut bytes);
        assert_eq!(bytes, [0; 8]);
    }
}

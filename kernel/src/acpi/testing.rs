//! A made-up firmware for the tests of this module: tables in a block of memory, as a BIOS leaves them.

use std::vec::Vec;

use super::table::FirmwareMemory;

/// A table with a right header around `body`.
pub(super) fn table(signature: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = [&signature[..], &(36 + body.len() as u32).to_le_bytes(), &[0; 28], body].concat();
    bytes[9] = checksum(&bytes);
    bytes
}

/// The BIOS area with an RSDP, an RSDT, an XSDT and tables.
pub(super) struct Firmware {
    bytes: Vec<u8>,
    xsdt: usize,
}

impl Firmware {
    const BASE: u64 = 0xe0000;
    const SIZE: usize = 0x20000;
    const RSDP: usize = 0x40;
    const RSDP_LENGTH: usize = 36;

    pub(super) fn new(tables: &[Vec<u8>]) -> Self {
        let mut firmware = Self { bytes: std::vec![0; Self::SIZE], xsdt: 0 };
        let mut free = Self::RSDP + Self::RSDP_LENGTH;
        let mut place = |bytes: &[u8]| {
            let offset = free;
            firmware.bytes[offset..][..bytes.len()].copy_from_slice(bytes);
            free += bytes.len();
            Self::BASE + offset as u64
        };
        let addresses: Vec<u64> = tables.iter().map(|table| place(table)).collect();
        let long: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
        let short: Vec<u8> = addresses.iter().flat_map(|address| (*address as u32).to_le_bytes()).collect();
        let xsdt = place(&table(*b"XSDT", &long));
        let rsdt = place(&table(*b"RSDT", &short));
        firmware.xsdt = (xsdt - Self::BASE) as usize;
        firmware.bytes[Self::RSDP..][..Self::RSDP_LENGTH].copy_from_slice(&root_pointer(rsdt as u32, xsdt));
        firmware
    }

    pub(super) fn rsdp(&self) -> u64 {
        Self::BASE + Self::RSDP as u64
    }

    pub(super) fn break_xsdt(&mut self) {
        self.bytes[self.xsdt + 10] ^= 0xff;
    }

    /// Overwrites one byte, counted from the RSDP.
    pub(super) fn damage(&mut self, offset: usize, value: u8) {
        self.bytes[Self::RSDP + offset] = value;
    }
}

impl FirmwareMemory for Firmware {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(Self::BASE)?).ok()?;
        self.bytes.get(offset..offset.checked_add(length)?)
    }
}

fn root_pointer(rsdt: u32, xsdt: u64) -> Vec<u8> {
    let mut bytes = [&b"RSD PTR \0SLUICE\x02"[..], &rsdt.to_le_bytes()].concat();
    bytes[8] = checksum(&bytes);
    bytes.extend(36u32.to_le_bytes());
    bytes.extend(xsdt.to_le_bytes());
    bytes.extend([0; 4]);
    bytes[32] = checksum(&bytes);
    bytes
}

/// The value of a checksum byte that is still 0.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte))
}

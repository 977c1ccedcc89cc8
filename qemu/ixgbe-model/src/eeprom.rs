//! The EEPROM: what it holds, and the ways to read it (datasheet 6, 8.2.3.2).

use crate::core::Core;
use crate::options::{CardOptions, PciIds};
use crate::registers::*;

/// 16-bit words.
const WORDS: usize = 0x800;
/// The words up to and including this one sum to [`CHECKSUM`] (6.4.5), with the sections that words 3 to 14 point to.
const CHECKSUM_WORD: usize = 0x3f;
const CHECKSUM: u16 = 0xbaba;

/// The chip, and the state of the wires to it.
pub(crate) struct Eeprom {
    words: Vec<u16>,
    spi: Spi,
}

/// Where in a transfer over the wires the chip is. It takes bits when the clock rises and changes its own when the
/// clock falls, the highest bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spi {
    /// Not selected, or told something that it does not do.
    Idle,
    /// Bits of a command come in.
    Command { bits: u8, value: u8 },
    /// Bits of an address, in bytes, come in.
    Address { bits: u8, value: u16 },
    /// Bytes go out from an address on; the bit is the one that is on the wire.
    Data { address: u16, bit: u8 },
    /// The status goes out, which is zero: ready.
    Status,
}

/// Commands of a serial EEPROM (25-series).
const SPI_READ: u8 = 0x03;
const SPI_READ_STATUS: u8 = 0x05;

impl Eeprom {
    pub(crate) fn new(options: &CardOptions) -> Eeprom {
        Eeprom { words: contents(options), spi: Spi::Idle }
    }

    fn word(&self, address: usize) -> u16 {
        self.words.get(address).copied().unwrap_or(0xffff)
    }

    /// EERD: a read is done as soon as it is asked for.
    pub(crate) fn write_eerd(&self, core: &mut Core, value: u32) {
        let value = if value & EERD_START != 0 {
            let word = self.word((value >> 2 & 0x3fff) as usize);
            u32::from(word) << 16 | value & 0xfffc | EERD_DONE
        } else {
            value & !EERD_DONE
        };
        core.values.set(Register::EERD, value);
    }

    /// EEC: bit-bang access is granted whenever it is asked for.
    pub(crate) fn write_eec(&mut self, core: &mut Core, value: u32) {
        // The wires, the request, and the enabling of flash writes.
        const WRITABLE: u32 = EEC_SK | EEC_CS | EEC_DI | EEC_EE_REQ | 0x30;
        let before = core.values.get(Register::EEC);
        let mut eec = before & !(WRITABLE | EEC_EE_GNT) | value & WRITABLE;
        if eec & EEC_EE_REQ != 0 {
            eec |= EEC_EE_GNT;
        }
        // The chip is selected while the wire is down.
        if eec & EEC_EE_GNT == 0 || eec & EEC_CS != 0 {
            self.spi = Spi::Idle;
        } else if before & EEC_CS != 0 || before & EEC_EE_GNT == 0 {
            self.spi = Spi::Command { bits: 0, value: 0 };
        } else if (before ^ eec) & EEC_SK != 0 {
            if eec & EEC_SK != 0 {
                self.rise(u8::from(eec & EEC_DI != 0));
            } else if self.fall() {
                eec |= EEC_DO;
            } else {
                eec &= !EEC_DO;
            }
        }
        core.values.set(Register::EEC, eec);
    }

    /// The chip takes a bit.
    fn rise(&mut self, bit: u8) {
        match &mut self.spi {
            Spi::Command { bits, value } => (*bits, *value) = (*bits + 1, *value << 1 | bit),
            Spi::Address { bits, value } => (*bits, *value) = (*bits + 1, *value << 1 | u16::from(bit)),
            Spi::Idle | Spi::Data { .. } | Spi::Status => {}
        }
    }

    /// The chip changes what it says: the bit that is on the wire from now on.
    fn fall(&mut self) -> bool {
        self.spi = match self.spi {
            Spi::Command { bits: 8, value: SPI_READ } => Spi::Address { bits: 0, value: 0 },
            Spi::Command { bits: 8, value: SPI_READ_STATUS } => Spi::Status,
            Spi::Command { bits: 8, .. } => Spi::Idle,
            Spi::Address { bits: 16, value } => Spi::Data { address: value, bit: 7 },
            Spi::Data { address, bit: 0 } => Spi::Data { address: address.wrapping_add(1), bit: 7 },
            Spi::Data { address, bit } => Spi::Data { address, bit: bit - 1 },
            other => other,
        };
        let Spi::Data { address, bit } = self.spi else { return false };
        let [low, high] = self.word(usize::from(address / 2)).to_le_bytes();
        (if address % 2 == 0 { low } else { high }) >> bit & 1 == 1
    }
}

/// What drivers look for, and nothing else.
fn contents(options: &CardOptions) -> Vec<u16> {
    let ids = PciIds::of(options.model);
    let mut words = vec![0; WORDS];
    // 6.3.7: PCIe general configuration; its fourth word points to the configuration of function 0.
    words[0x06] = 0;
    // Firmware module, and in it the section of the pass-through parameters, with the version at its seventh word.
    words[0x0f] = 0x200;
    words[0x204] = 0x210;
    words[0x217] = 6;
    // The tables that set up the serial interface for a kind of module: pairs of kind and table, and the end.
    words[0x2b] = 0x100;
    let tables = [5, 0x120, 6, 0x120, 3, 0x120, 4, 0x120, 0xffff];
    words[0x101..0x101 + tables.len()].copy_from_slice(&tables);
    words[0x120] = 0;
    words[0x121] = 0xffff;
    // Device capabilities: any SFP module (bit 0). Version of the image.
    words[0x2c] = 0x0001;
    words[0x2d] = 0x0001;
    words[0x2e] = 0x8000;
    // Serial number, as addresses go.
    for (word, bytes) in words[0x11..0x14].iter_mut().zip(options.mac.chunks_exact(2)) {
        *word = u16::from_le_bytes([bytes[0], bytes[1]]);
    }
    words[0x18] = ids.subsystem;
    let sum = words[..CHECKSUM_WORD].iter().fold(0u16, |sum, word| sum.wrapping_add(*word));
    words[CHECKSUM_WORD] = CHECKSUM.wrapping_sub(sum);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(core: &mut Core, eeprom: &Eeprom, address: u32) -> u16 {
        eeprom.write_eerd(core, address << 2 | EERD_START);
        let value = core.values.get(Register::EERD);
        assert_eq!(value & (EERD_DONE | EERD_START), EERD_DONE);
        (value >> 16) as u16
    }

    #[test]
    fn the_checksum_is_right() {
        let mut core = Core::new(CardOptions::default());
        let eeprom = Eeprom::new(&core.options);
        let mut sum = 0u16;
        for address in 0..=CHECKSUM_WORD as u32 {
            sum = sum.wrapping_add(read(&mut core, &eeprom, address));
        }
        for pointer in 3..0x0f {
            assert_eq!(read(&mut core, &eeprom, pointer), 0, "no section to be summed");
        }
        assert_eq!(sum, CHECKSUM);
    }

    #[test]
    fn bit_bang_access_is_granted_on_request() {
        let mut core = Core::new(CardOptions::default());
        let mut eeprom = Eeprom::new(&core.options);
        eeprom.write_eec(&mut core, EEC_EE_REQ);
        assert!(core.values.has(Register::EEC, EEC_EE_GNT));
        eeprom.write_eec(&mut core, 0);
        assert!(!core.values.has(Register::EEC, EEC_EE_GNT));
        assert!(core.values.has(Register::EEC, EEC_EE_PRES), "what is read-only stays");
    }

    /// The master's side of the wires.
    struct Wires<'a> {
        core: &'a mut Core,
        eeprom: &'a mut Eeprom,
    }

    impl Wires<'_> {
        fn set(&mut self, wires: u32) {
            self.eeprom.write_eec(self.core, EEC_EE_REQ | wires);
        }

        fn send(&mut self, value: u32, bits: u32) {
            for bit in (0..bits).rev() {
                let data = if value >> bit & 1 == 1 { EEC_DI } else { 0 };
                [data, data | EEC_SK, data].into_iter().for_each(|wires| self.set(wires));
            }
        }

        fn receive(&mut self, bits: u32) -> u32 {
            (0..bits).fold(0, |value, _| {
                self.set(EEC_SK);
                let bit = u32::from(self.core.values.has(Register::EEC, EEC_DO));
                self.set(0);
                value << 1 | bit
            })
        }
    }

    #[test]
    fn both_ways_lead_to_the_same_words() {
        let mut core = Core::new(CardOptions::default());
        let mut eeprom = Eeprom::new(&core.options);
        for address in [0x00, 0x11, 0x2b, 0x3f, 0x100] {
            let expected = [0, 1].map(|next| read(&mut core, &eeprom, address + next));
            let mut wires = Wires { core: &mut core, eeprom: &mut eeprom };
            wires.set(EEC_CS);
            wires.set(0);
            wires.send(u32::from(SPI_READ_STATUS), 8);
            assert_eq!(wires.receive(8), 0, "ready");
            wires.set(EEC_CS);
            wires.set(0);
            wires.send(u32::from(SPI_READ), 8);
            wires.send(address * 2, 16);
            let words = [(); 2].map(|()| (wires.receive(16) as u16).swap_bytes());
            assert_eq!(words, expected, "word {address:#x} and the next");
        }
    }
}

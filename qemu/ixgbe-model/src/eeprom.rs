//! The EEPROM: what it holds, and the ways to read it (datasheet 6, 8.2.3.2).

use crate::core::Core;
use crate::options::{CardOptions, PciIds};
use crate::registers::*;

/// 16-bit words.
const WORDS: usize = 0x4000;
/// The words up to and including this one sum to [`CHECKSUM`] (6.4.5), with the sections that words 3 to 14 point to.
const CHECKSUM_WORD: usize = 0x3f;
const CHECKSUM: u16 = 0xbaba;

/// The chip, and the state of the wires to it.
pub(crate) struct Eeprom {
    words: Vec<u16>,
}

impl Eeprom {
    pub(crate) fn new(options: &CardOptions) -> Eeprom {
        Eeprom { words: contents(options) }
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
        const WRITABLE: u32 = EEC_SK | EEC_CS | EEC_DI | EEC_EE_REQ | 0x30;
        let mut eec = core.values.get(Register::EEC) & !(WRITABLE | EEC_EE_GNT) | value & WRITABLE;
        if eec & EEC_EE_REQ != 0 {
            eec |= EEC_EE_GNT;
        }
        core.values.set(Register::EEC, eec);
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
}

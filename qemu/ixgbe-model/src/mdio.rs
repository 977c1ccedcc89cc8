//! Management registers of the PHY, through MSCA and MSRWD (datasheet 3.7.6; IEEE 802.3 clause 45).
//!
//! An 82599 with an SFP+ cage or a backplane has no PHY to be managed: every address reads as ones.

use std::collections::BTreeMap;

use crate::core::Core;
use crate::options::{Model, Speed};
use crate::registers::*;

/// The devices of a PHY (IEEE 802.3, table 45-1).
const PMA: u8 = 1;
const AUTO_NEGOTIATION: u8 = 7;
const VENDOR_1: u8 = 30;

/// Status 1, alike in all devices: the link is up, and since the last read it was (45.2.1.2).
const STATUS: u16 = 1;
const STATUS_LINK: u16 = 1 << 2;
/// Device identifier, high and low.
const ID_HIGH: u16 = 2;
const ID_LOW: u16 = 3;
/// Speeds that the PHY can do: 10 gigabit, 1 gigabit (45.2.1.4).
const SPEED_ABILITY: u16 = 4;
/// Devices in the package (45.2.1.5).
const DEVICES: u16 = 5;
/// Status 2: there is a device (45.2.1.7).
const STATUS_2: u16 = 8;
const STATUS_2_PRESENT: u16 = 0x8000;
/// Kinds of links: 10GBASE-T, 1000BASE-T (45.2.1.10).
const EXTENDED_ABILITY: u16 = 11;
/// Vendor status of auto-negotiation: speed and duplex as agreed on.
const AGREED: u16 = 0xc800;
/// A register whose bits say what is reset: all done.
const RESET_DONE: u16 = 0xcc02;

/// Operations (8.2.3.22.11).
const ADDRESS: u32 = 0;
const WRITE: u32 = 1;
const READ_INCREMENT: u32 = 2;
const READ: u32 = 3;

/// The PHY and the address that was last set up.
#[derive(Default)]
pub(crate) struct Mdio {
    address: u16,
    /// What software wrote.
    written: BTreeMap<(u8, u16), u16>,
}

impl Mdio {
    /// MSCA: a command is carried out at once.
    pub(crate) fn write(&mut self, core: &mut Core, value: u32) {
        core.values.set(Register::MSCA, value & !MSCA_MDI_COMMAND);
        if value & MSCA_MDI_COMMAND == 0 {
            return;
        }
        let (device, phy) = ((value >> 16 & 0x1f) as u8, value >> 21 & 0x1f);
        match value >> 26 & 3 {
            ADDRESS => self.address = value as u16,
            WRITE => {
                let data = core.values.get(Register::MSRWD) as u16;
                self.written.insert((device, self.address), data);
            }
            READ_INCREMENT | READ => {
                let data = if phy == 0 { self.register(core, device) } else { None }.unwrap_or(0xffff);
                let written = core.values.get(Register::MSRWD) & 0xffff;
                core.values.set(Register::MSRWD, u32::from(data) << 16 | written);
                if value >> 26 & 3 == READ_INCREMENT {
                    self.address = self.address.wrapping_add(1);
                }
            }
            _ => unreachable!("two bits"),
        }
    }

    /// What the addressed register of a device holds; `None` without a PHY.
    fn register(&self, core: &Core, device: u8) -> Option<u16> {
        let (id_high, id_low) = match core.options.model {
            Model::X540 => (0x0154, 0x0200),
            Model::X550 => (0x0154, 0x0220),
            Model::Sfp82599 | Model::Kx4_82599 | Model::Kr82599 => return None,
        };
        let link = core.values.has(Register::LINKS, LINKS_UP);
        let ten = core.options.speed == Speed::TenGigabit;
        Some(match (device, self.address) {
            (_, ID_HIGH) => id_high,
            (_, ID_LOW) => id_low,
            (_, STATUS_2) => STATUS_2_PRESENT,
            (_, DEVICES) => 1 << PMA | 1 << AUTO_NEGOTIATION,
            (PMA, SPEED_ABILITY) => 0x0011,
            (PMA, EXTENDED_ABILITY) => 0x0024,
            (AUTO_NEGOTIATION, STATUS) => {
                if link {
                    0x0020 | STATUS_LINK
                } else {
                    0
                }
            }
            (VENDOR_1, STATUS) => match (link, ten) {
                (true, true) => 0x0018,
                (true, false) => 0x0008,
                (false, _) => 0,
            },
            (_, STATUS) => {
                if link {
                    STATUS_LINK
                } else {
                    0
                }
            }
            (AUTO_NEGOTIATION, AGREED) => {
                if ten {
                    0x7
                } else {
                    0x5
                }
            }
            (AUTO_NEGOTIATION, RESET_DONE) => 0x3,
            place => self.written.get(&place).copied().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CardOptions;

    fn command(core: &mut Core, mdio: &mut Mdio, operation: u32, phy: u32, device: u32, address: u16) -> u16 {
        let value = MSCA_MDI_COMMAND | operation << 26 | phy << 21 | device << 16 | u32::from(address);
        mdio.write(core, value);
        assert!(!core.values.has(Register::MSCA, MSCA_MDI_COMMAND), "done");
        (core.values.get(Register::MSRWD) >> 16) as u16
    }

    fn read(core: &mut Core, mdio: &mut Mdio, phy: u32, device: u32, address: u16) -> u16 {
        command(core, mdio, ADDRESS, phy, device, address);
        command(core, mdio, READ, phy, device, address)
    }

    fn card(model: Model) -> (Core, Mdio) {
        (Core::new(CardOptions { model, ..CardOptions::default() }), Mdio::default())
    }

    #[test]
    fn a_copper_card_has_one_phy() {
        let (mut core, mut mdio) = card(Model::X540);
        assert_eq!(read(&mut core, &mut mdio, 0, 1, ID_HIGH), 0x0154);
        assert_eq!(read(&mut core, &mut mdio, 0, 1, ID_LOW), 0x0200);
        assert_eq!(read(&mut core, &mut mdio, 1, 1, ID_HIGH), 0xffff);
    }

    #[test]
    fn a_card_with_a_cage_has_none() {
        let (mut core, mut mdio) = card(Model::Sfp82599);
        assert!((0..32).all(|phy| read(&mut core, &mut mdio, phy, 1, ID_HIGH) == 0xffff));
    }

    #[test]
    fn status_follows_the_link() {
        let (mut core, mut mdio) = card(Model::X550);
        assert_eq!(read(&mut core, &mut mdio, 0, 7, STATUS) & STATUS_LINK, 0);
        core.values.set(Register::LINKS, LINKS_UP);
        assert_eq!(read(&mut core, &mut mdio, 0, 7, STATUS) & STATUS_LINK, STATUS_LINK);
        assert_eq!(read(&mut core, &mut mdio, 0, 30, STATUS), 0x0018);
    }

    #[test]
    fn what_is_written_is_read() {
        let (mut core, mut mdio) = card(Model::X540);
        core.values.set(Register::MSRWD, 0x1001);
        command(&mut core, &mut mdio, ADDRESS, 0, 7, 0x20);
        command(&mut core, &mut mdio, WRITE, 0, 7, 0x20);
        assert_eq!(read(&mut core, &mut mdio, 0, 7, 0x20), 0x1001);
        assert_eq!(read(&mut core, &mut mdio, 0, 7, 0x21), 0);
        command(&mut core, &mut mdio, ADDRESS, 0, 7, 0x1f);
        command(&mut core, &mut mdio, READ_INCREMENT, 0, 7, 0);
        assert_eq!(command(&mut core, &mut mdio, READ, 0, 7, 0), 0x1001);
    }
}

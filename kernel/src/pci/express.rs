//! The PCI Express link of a function (PCI Express base specification 6.0, 7.5.3).

use core::fmt;

use super::capability::id;
use super::function::Function;

/// Offset of the link status register in the capability (7.5.3.8).
const LINK_STATUS: u16 = 0x12;

/// How fast and how wide a link is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The generation of its speed: 1 for 2.5 GT/s, 2 for 5, and so on.
    pub generation: u8,
    /// Lanes.
    pub lanes: u8,
}

impl Function {
    /// The function's link, where it is on PCI Express and says how fast it is.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        let status = self.read16(self.capability(id::PCI_EXPRESS)?.offset + LINK_STATUS);
        let link = Link { generation: (status & 0xf) as u8, lanes: (status >> 4 & 0x3f) as u8 };
        (link.generation > 0 && link.lanes > 0).then_some(link)
    }
}

impl fmt::Display for Link {
    /// `5.0 GT/s x8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            1 => f.write_str("2.5")?,
            2 => f.write_str("5.0")?,
            generation => write!(f, "{}", 8u32 << (generation - 3))?,
        }
        write!(f, " GT/s x{}", self.lanes)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::super::Address;
    use super::super::header::{HAS_CAPABILITIES, common};
    use super::super::testing::FakeSpace;
    use super::*;

    fn link(status: u32) -> Option<Link> {
        let space = FakeSpace::default();
        let device = space.add(Address::new(0, 1, 0, 0), 0x8086_10fb);
        device.set(4, u32::from(HAS_CAPABILITIES) << 16);
        device.set(common::CAPABILITIES, 0xa0);
        device.set(0xa0, u32::from(id::PCI_EXPRESS));
        device.set(0xb0, status << 16);
        space.function(Address::new(0, 1, 0, 0)).link()
    }

    #[test]
    fn says_speed_and_width() {
        for (status, printed) in [(0x1082, "5.0 GT/s x8"), (0x0041, "2.5 GT/s x4"), (0x0104, "16 GT/s x16")] {
            assert_eq!(link(status).expect("a link").to_string(), printed);
        }
        assert_eq!(link(0x1000), None, "a link that trains has no width");
    }
}

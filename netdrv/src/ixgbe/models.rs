//! The cards that the driver knows, and what they differ in.

use super::wait::SECOND;

/// Intel's PCI vendor id.
pub const VENDOR: u16 = 0x8086;

/// A card, by its PCI device id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Model {
    /// The PCI device id.
    pub device: u16,
    /// What it is sold as.
    pub name: &'static str,
    pub(super) family: Family,
    pub(super) medium: Medium,
}

/// A controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    I82599,
    X540,
    X550,
}

impl Family {
    /// Receive queues that RSS spreads flows over.
    pub(super) const fn rss_queues(self) -> usize {
        match self {
            Family::I82599 | Family::X540 => 16,
            // 64 by the width of a table entry; Intel's own drivers use one less.
            Family::X550 => 63,
        }
    }

    /// Entries of the RSS table.
    pub(super) const fn rss_table(self) -> u16 {
        match self {
            Family::I82599 | Family::X540 => 128,
            Family::X550 => 512,
        }
    }
}

/// What the port is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Medium {
    /// A cage for a module; the driver switches the laser on and chooses the serial link.
    Sfp,
    /// A backplane or a board's traces: the EEPROM has the link's settings.
    Backplane,
    /// Twisted pair: the firmware brings the link up.
    Copper,
}

impl Medium {
    /// How long a link may take to come up, in nanoseconds: then it is not late but stuck.
    pub(super) const fn link_patience(self) -> u64 {
        match self {
            Medium::Sfp | Medium::Backplane => 2 * SECOND,
            // 10GBASE-T negotiates for seconds, and starts over with each reset.
            Medium::Copper => 15 * SECOND,
        }
    }
}

/// A virtual function, by its PCI device id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualModel {
    /// The PCI device id.
    pub device: u16,
    /// Whose function it is.
    pub name: &'static str,
    pub(super) family: Family,
}

/// The virtual function of this device id, if it is one.
pub fn virtual_model(device: u16) -> Option<&'static VirtualModel> {
    VIRTUAL_MODELS.iter().find(|model| model.device == device)
}

/// Every kind of virtual function. Those with other ids under Hyper-V have no mailbox of their own, and are left out.
const VIRTUAL_MODELS: [VirtualModel; 3] = [
    VirtualModel { device: 0x10ed, name: "82599 virtual function", family: Family::I82599 },
    VirtualModel { device: 0x1515, name: "X540 virtual function", family: Family::X540 },
    VirtualModel { device: 0x1565, name: "X550 virtual function", family: Family::X550 },
];

/// The card of this device id, if it is one.
pub fn model(device: u16) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.device == device)
}

const fn card(device: u16, name: &'static str, family: Family, medium: Medium) -> Model {
    Model { device, name, family, medium }
}

/// Every card, from the lists in Intel's drivers. The embedded X550 (X552, X553) is left out: its registers are elsewhere.
const MODELS: [Model; 19] = [
    card(0x10f7, "82599 KX4", Family::I82599, Medium::Backplane),
    card(0x10f8, "82599 backplane", Family::I82599, Medium::Backplane),
    card(0x10f9, "82599 CX4", Family::I82599, Medium::Backplane),
    card(0x10fb, "82599 SFP+", Family::I82599, Medium::Sfp),
    card(0x10fc, "82599 XAUI", Family::I82599, Medium::Backplane),
    card(0x1507, "82599 SFP+ EM", Family::I82599, Medium::Sfp),
    card(0x1514, "82599 KX4 mezzanine", Family::I82599, Medium::Backplane),
    card(0x1517, "82599 KR", Family::I82599, Medium::Backplane),
    card(0x151c, "82599 10GBASE-T", Family::I82599, Medium::Copper),
    card(0x1529, "82599 SFP+ FCoE", Family::I82599, Medium::Sfp),
    card(0x152a, "82599 backplane FCoE", Family::I82599, Medium::Backplane),
    card(0x154a, "82599 quad SFP+", Family::I82599, Medium::Sfp),
    card(0x154d, "82599 SFP+ SF2", Family::I82599, Medium::Sfp),
    card(0x1557, "82599EN SFP+", Family::I82599, Medium::Sfp),
    card(0x1558, "82599 QSFP+", Family::I82599, Medium::Sfp),
    card(0x1528, "X540-T", Family::X540, Medium::Copper),
    card(0x1560, "X540-T1", Family::X540, Medium::Copper),
    card(0x1563, "X550-T", Family::X550, Medium::Copper),
    card(0x15d1, "X550-T1", Family::X550, Medium::Copper),
];

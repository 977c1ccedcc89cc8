//! Which card it is, and what it is plugged into.

use std::time::Duration;

/// The longest frame that the MAC takes, CRC included (8.2.3.22.13: MAXFRS).
pub const MAX_FRAME: usize = 15_872;

/// A member of the family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// 82599ES with an SFP+ cage.
    #[default]
    Sfp82599,
    /// 82599EB on a KX4 backplane.
    Kx4_82599,
    /// 82599 on a KR backplane.
    Kr82599,
    /// X540-AT2, copper.
    X540,
    /// X550-T, copper.
    X550,
}

impl Model {
    /// The PCI device id.
    pub fn device_id(self) -> u16 {
        match self {
            Model::Sfp82599 => 0x10fb,
            Model::Kx4_82599 => 0x10f7,
            Model::Kr82599 => 0x1517,
            Model::X540 => 0x1528,
            Model::X550 => 0x1563,
        }
    }

    /// The PCI device id of its virtual functions.
    pub fn virtual_function_id(self) -> u16 {
        match self {
            Model::Sfp82599 | Model::Kx4_82599 | Model::Kr82599 => 0x10ed,
            Model::X540 => 0x1515,
            Model::X550 => 0x1565,
        }
    }

    pub(crate) fn is_82599(self) -> bool {
        matches!(self, Model::Sfp82599 | Model::Kx4_82599 | Model::Kr82599)
    }

    /// Entries of the RSS indirection table: the X550 has more (X550 datasheet 8.2.2.7, ERETA).
    pub(crate) fn reta_entries(self) -> usize {
        if self == Model::X550 { 512 } else { 128 }
    }

    /// Bits of an entry of the RSS indirection table.
    pub(crate) fn reta_bits(self) -> u32 {
        if self == Model::X550 { 6 } else { 4 }
    }
}

/// What is in the SFP+ cage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Module {
    /// Nothing.
    Empty,
    /// 10GBASE-SR optics.
    #[default]
    Sr,
    /// 10GBASE-LR optics.
    Lr,
    /// A passive copper cable.
    Twinax,
    /// A module that names no type that a driver knows.
    Unknown,
}

/// The speed at which the link comes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speed {
    /// 10 Gb/s.
    #[default]
    TenGigabit,
    /// 1 Gb/s.
    OneGigabit,
}

/// What becomes of a frame that arrives while the card cannot take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// The partner holds it back, as flow control makes it do: it stays in the wire.
    #[default]
    Wait,
    /// It is missed, and counted (MPC, or RXMPC when the receiver is off).
    Miss,
}

/// Everything that is settled when a card is plugged in.
#[derive(Clone, Debug)]
pub struct CardOptions {
    /// Which card.
    pub model: Model,
    /// Its own address, which its EEPROM holds.
    pub mac: [u8; 6],
    /// What is in the cage.
    pub module: Module,
    /// Whether the cable is plugged in on both ends.
    pub cable: bool,
    /// How fast the link is.
    pub speed: Speed,
    /// From CTRL.RST until the bit reads as zero.
    pub reset_time: Duration,
    /// From CTRL.RST until the card may be accessed (8.2.3.1.1: about 1 ms), and EEPROM and DMA are ready.
    pub settle_time: Duration,
    /// From a reset or a restart of auto-negotiation until the link is up.
    pub link_time: Duration,
    /// What becomes of frames that the card cannot take.
    pub overrun: Overrun,
    /// How long a write to a register may be on its way, which is posted: the driver goes on at once. Where a frame finds
    /// no descriptor, its tail may be on its way, so a ring that drops (SRRCTL.DROP_EN) does so only after this.
    pub write_delay: Duration,
}

impl Default for CardOptions {
    fn default() -> CardOptions {
        CardOptions {
            model: Model::default(),
            mac: [0x02, 0x82, 0x59, 0x90, 0x00, 0x01],
            module: Module::default(),
            cable: true,
            speed: Speed::default(),
            reset_time: Duration::from_micros(5),
            settle_time: Duration::from_millis(1),
            link_time: Duration::from_millis(5),
            overrun: Overrun::default(),
            write_delay: Duration::ZERO,
        }
    }
}

/// How the function introduces itself in configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciIds {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Vendor of the adapter.
    pub subsystem_vendor: u16,
    /// The adapter.
    pub subsystem: u16,
    /// Stepping.
    pub revision: u8,
    /// Class, subclass and programming interface.
    pub class: [u8; 3],
}

impl PciIds {
    pub(crate) fn of(model: Model) -> PciIds {
        const INTEL: u16 = 0x8086;
        PciIds {
            vendor: INTEL,
            device: model.device_id(),
            subsystem_vendor: INTEL,
            subsystem: 0x0003,
            revision: 0x01,
            class: [0x02, 0x00, 0x00],
        }
    }
}

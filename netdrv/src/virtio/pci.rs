//! Virtio over PCI (virtio 1.2, 4.1): finds the device's register windows and checks that they hold together.
//!
//! Discovery goes through `virtio_drivers`' `PciRoot`; what it leaves out is here: a capability list that
//! loops or points outside its BAR.

#![allow(unsafe_code)] // Maps the windows that the device's capabilities name.

use core::fmt;

use arrayvec::ArrayVec;
use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::VIRTIO_VENDOR_ID;
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, DeviceFunction, PciRoot, Status};

use super::error::VirtioError;
use super::registers::{COMMON_LEN, PciRegisters};
use super::transport::{Doorbell, NetTransport};
use crate::hal::Hal;
use crate::mmio::Window;

/// Byte offsets in PCI configuration space.
mod config {
    /// Vendor id, and above it the device id.
    pub(super) const IDS: u8 = 0x00;
    pub(super) const CAPABILITIES_POINTER: u8 = 0x34;
}

/// The device id of a network device that can also be driven as a legacy one (4.1.2.1).
const TRANSITIONAL_NETWORK: u16 = 0x1000;
/// Added to a virtio device id it is the PCI device id (4.1.2.1).
const MODERN_BASE: u16 = 0x1040;

/// `PCI_CAP_ID_VNDR`.
const VENDOR_CAPABILITY: u8 = 0x09;
/// The first byte that a capability can have.
const FIRST_CAPABILITY: u8 = 0x40;
/// Four-byte places behind the header of the configuration space: a longer list visits one twice.
const MAX_CAPABILITIES: usize = (0x100 - FIRST_CAPABILITY as usize) / 4;
/// Bytes of `struct virtio_pci_cap` and of `struct virtio_pci_notify_cap` (4.1.4, 4.1.4.4).
const CAPABILITY_LEN: u8 = 16;
const NOTIFY_CAPABILITY_LEN: u8 = 20;
/// BARs of a function; higher numbers are reserved (4.1.4).
const BARS: usize = 6;

/// A register window that virtio keeps on PCI, with its `cfg_type` (4.1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Structure {
    /// `VIRTIO_PCI_CAP_COMMON_CFG`.
    Common = 1,
    /// `VIRTIO_PCI_CAP_NOTIFY_CFG`.
    Notify = 2,
    /// `VIRTIO_PCI_CAP_ISR_CFG`.
    Isr = 3,
    /// `VIRTIO_PCI_CAP_DEVICE_CFG`.
    Device = 4,
}

impl Structure {
    const ALL: [Structure; 4] = [Structure::Common, Structure::Notify, Structure::Isr, Structure::Device];

    fn of(cfg_type: u8) -> Option<Structure> {
        Structure::ALL.into_iter().find(|structure| *structure as u8 == cfg_type)
    }

    /// Alignment that the offset must have, and the least length.
    fn shape(self) -> (u32, u32) {
        match self {
            Structure::Common => (4, COMMON_LEN),
            Structure::Notify => (2, 2),
            Structure::Isr => (1, 1),
            Structure::Device => (4, 1),
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Common => "common configuration",
            Structure::Notify => "notification",
            Structure::Isr => "ISR status",
            Structure::Device => "device configuration",
        })
    }
}

/// What is wrong with a PCI function as a modern virtio device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PciFault {
    /// Vendor and device id are not those of a virtio network device.
    NotVirtio {
        /// The vendor id.
        vendor: u16,
        /// The device id.
        device: u16,
    },
    /// The list of capabilities has no end.
    CapabilityLoop,
    /// There is no such capability: a legacy device, or a broken one.
    Missing(Structure),
    /// The capability names a BAR that no function has.
    ReservedBar(Structure, u8),
    /// The BAR that the capability names is not a memory BAR.
    NotMemory(Structure, u8),
    /// The firmware gave that BAR no address.
    Unassigned(Structure, u8),
    /// The structure leaves that BAR, is shorter than it must be, or is not aligned.
    Misplaced(Structure, u8),
    /// `notify_off_multiplier` is odd.
    OddMultiplier(u32),
}

impl fmt::Display for PciFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PciFault::NotVirtio { vendor, device } => {
                write!(f, "{vendor:04x}:{device:04x} is not a virtio network device")
            }
            PciFault::CapabilityLoop => f.write_str("the list of PCI capabilities has no end"),
            PciFault::Missing(structure) => write!(f, "no {structure} capability"),
            PciFault::ReservedBar(structure, bar) => {
                write!(f, "the {structure} capability names BAR {bar}, which no function has")
            }
            PciFault::NotMemory(structure, bar) => {
                write!(f, "BAR {bar}, named by the {structure} capability, is not memory")
            }
            PciFault::Unassigned(structure, bar) => {
                write!(f, "BAR {bar}, named by the {structure} capability, has no address")
            }
            PciFault::Misplaced(structure, bar) => {
                write!(f, "the {structure} capability does not fit BAR {bar}")
            }
            PciFault::OddMultiplier(multiplier) => write!(f, "notify_off_multiplier {multiplier} is odd"),
        }
    }
}

/// A virtio device on PCI.
pub struct PciNet {
    registers: PciRegisters,
    doorbells: Window,
    notify_off_multiplier: u32,
    identity: u32,
}

impl PciNet {
    /// Takes over the PCI function: switches memory access and bus mastering on and its interrupt pin off,
    /// and maps its registers.
    ///
    /// # Errors
    /// [`PciFault`] where this is no modern virtio device or its capabilities do not hold together.
    pub fn new<H: Hal, C: ConfigurationAccess + Clone>(
        access: C,
        function: DeviceFunction,
    ) -> Result<PciNet, PciFault> {
        let mut candidate =
            Candidate { root: PciRoot::new(access.clone()), access, function, bars: [None; BARS] };
        candidate.check_identity()?;
        let places = candidate.find_places()?;
        let (_, command) = candidate.root.get_status_command(function);
        candidate.root.set_command(
            function,
            command | Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE,
        );
        let [common, notify, isr, device] = places.windows.map(|place| place.map::<H>());
        let registers = PciRegisters::new(common, isr, device);
        Ok(PciNet {
            registers: registers.ok_or(PciFault::Misplaced(Structure::Common, places.windows[0].bar))?,
            doorbells: notify,
            notify_off_multiplier: places.notify_off_multiplier,
            identity: u32::from(function.bus) << 8
                | u32::from(function.device) << 3
                | u32::from(function.function),
        })
    }
}

impl NetTransport for PciNet {
    type Base = PciRegisters;

    fn base(&self) -> &PciRegisters {
        &self.registers
    }

    fn base_mut(&mut self) -> &mut PciRegisters {
        &mut self.registers
    }

    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError> {
        let offset = u64::from(self.registers.notify_offset(queue)) * u64::from(self.notify_off_multiplier);
        usize::try_from(offset)
            .ok()
            .and_then(|offset| self.doorbells.register(offset))
            .map(|register| Doorbell::new(register, queue))
            .ok_or(VirtioError::NoDoorbell { queue })
    }

    fn set_vector(&mut self, queue: u16, entry: u16) -> bool {
        self.registers.set_vector(queue, entry)
    }

    fn identity(&self) -> u32 {
        self.identity
    }
}

/// A checked place in a memory BAR.
#[derive(Clone, Copy)]
struct Place {
    bar: u8,
    address: u64,
    len: u32,
}

impl Place {
    fn map<H: Hal>(&self) -> Window {
        // SAFETY: `Candidate::place` has checked that the range lies in a memory BAR of the function that is
        // being set up.
        unsafe { Window::map::<H>(self.address, self.len as usize) }
    }
}

/// Where the structures lie, in the order of [`Structure::ALL`]; all have been checked.
struct Places {
    windows: [Place; Structure::ALL.len()],
    notify_off_multiplier: u32,
}

/// The head of a `struct virtio_pci_cap`.
struct VendorCapability {
    at: u8,
    len: u8,
    cfg_type: u8,
}

/// A PCI function that may be a virtio network device.
struct Candidate<C: ConfigurationAccess> {
    root: PciRoot<C>,
    access: C,
    function: DeviceFunction,
    /// Base and size of each BAR, once it was asked for: to learn a size, the BAR is moved, and an emulator
    /// rebuilds its map of the memory for that.
    bars: [Option<(u64, u64)>; BARS],
}

impl<C: ConfigurationAccess> Candidate<C> {
    fn check_identity(&self) -> Result<(), PciFault> {
        let ids = self.access.read_word(self.function, config::IDS);
        let (vendor_id, device_id) = (ids as u16, (ids >> 16) as u16);
        let is_network = match device_id {
            TRANSITIONAL_NETWORK => true,
            _ => device_id == MODERN_BASE + DeviceType::Network as u16,
        };
        match vendor_id == VIRTIO_VENDOR_ID && is_network {
            true => Ok(()),
            false => Err(PciFault::NotVirtio { vendor: vendor_id, device: device_id }),
        }
    }

    /// Walks the capability list. As the specification has it, the first of each kind counts (4.1.4.1).
    fn find_places(&mut self) -> Result<Places, PciFault> {
        let mut places = [None; Structure::ALL.len()];
        let mut notify_off_multiplier = 0;
        for capability in self.vendor_capabilities()? {
            let Some(structure) = Structure::of(capability.cfg_type) else { continue };
            let short = structure == Structure::Notify && capability.len < NOTIFY_CAPABILITY_LEN;
            let place = &mut places[structure as usize - 1];
            if short || place.is_some() {
                continue;
            }
            *place = Some(self.place(structure, &capability)?);
            if structure == Structure::Notify {
                notify_off_multiplier = self.access.read_word(self.function, capability.at + CAPABILITY_LEN);
            }
        }
        if notify_off_multiplier % 2 != 0 {
            return Err(PciFault::OddMultiplier(notify_off_multiplier));
        }
        let missing = Structure::ALL.into_iter().zip(&places).find(|(_, place)| place.is_none());
        match places {
            [Some(common), Some(notify), Some(isr), Some(device)] => {
                Ok(Places { windows: [common, notify, isr, device], notify_off_multiplier })
            }
            _ => Err(PciFault::Missing(missing.map_or(Structure::Common, |(structure, _)| structure))),
        }
    }

    /// A structure's place in its BAR, checked as far as the function's own registers allow.
    fn place(&mut self, structure: Structure, capability: &VendorCapability) -> Result<Place, PciFault> {
        let word = |offset| self.access.read_word(self.function, capability.at + offset);
        let (bar, offset, len) = (word(4) as u8, word(8), word(12));
        let (base, size) = self.memory_bar(structure, bar)?;
        let (alignment, least) = structure.shape();
        let fits = offset.checked_add(len).is_some_and(|end| u64::from(end) <= size);
        if !fits || len < least || !offset.is_multiple_of(alignment) {
            return Err(PciFault::Misplaced(structure, bar));
        }
        Ok(Place { bar, address: base + u64::from(offset), len })
    }

    /// Base and size of the BAR that the capability of `structure` names.
    fn memory_bar(&mut self, structure: Structure, bar: u8) -> Result<(u64, u64), PciFault> {
        let known = self.bars.get(usize::from(bar)).ok_or(PciFault::ReservedBar(structure, bar))?;
        if let Some(known) = *known {
            return Ok(known);
        }
        let info = self.root.bar_info(self.function, bar).map_err(|_| PciFault::NotMemory(structure, bar))?;
        let info = info.ok_or(PciFault::Unassigned(structure, bar))?;
        let (base, size) = info.memory_address_size().ok_or(PciFault::NotMemory(structure, bar))?;
        if base == 0 {
            return Err(PciFault::Unassigned(structure, bar));
        }
        self.bars[usize::from(bar)] = Some((base, size));
        Ok((base, size))
    }

    /// The vendor-specific capabilities, in list order.
    fn vendor_capabilities(&self) -> Result<ArrayVec<VendorCapability, MAX_CAPABILITIES>, PciFault> {
        let word = |offset| self.access.read_word(self.function, offset);
        let mut found = ArrayVec::new();
        let (status, _) = self.root.get_status_command(self.function);
        let mut at = match status.contains(Status::CAPABILITIES_LIST) {
            true => word(config::CAPABILITIES_POINTER) as u8 & !3,
            false => 0,
        };
        let mut visited = 0;
        while at >= FIRST_CAPABILITY && at.is_multiple_of(4) {
            if visited == MAX_CAPABILITIES {
                return Err(PciFault::CapabilityLoop);
            }
            visited += 1;
            let [id, next, len, cfg_type] = word(at).to_le_bytes();
            let ends_inside = usize::from(at) + usize::from(len) <= 0x100;
            if id == VENDOR_CAPABILITY && len >= CAPABILITY_LEN && ends_inside {
                found.push(VendorCapability { at, len, cfg_type });
            }
            at = next;
        }
        Ok(found)
    }
}

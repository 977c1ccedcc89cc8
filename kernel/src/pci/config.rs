//! The PCI configuration space, through memory (ECAM) or through ports 0xcf8 and 0xcfc.
#![allow(unsafe_code)] // Port and memory-mapped I/O.

use alloc::vec::Vec;
use core::ptr::{self, NonNull};

use hermit_sync::SpinMutex;
use x86_64::instructions::port::Port;

use super::Address;
use super::scan::BusRange;
use crate::acpi::EcamRegion;
use crate::paging::{self, MapError};

/// Access to the configuration registers of every function.
///
/// Registers are read and written as aligned 32-bit words, whose offset is a multiple of 4. What is not there reads
/// as all ones, and swallows writes.
pub trait ConfigSpace: Sync {
    /// Reads the word at `offset`.
    fn read32(&self, function: Address, offset: u16) -> u32;

    /// Writes the word at `offset`.
    fn write32(&self, function: Address, offset: u16, value: u32);

    /// The 16 bits at `offset`, a multiple of 2.
    fn read16(&self, function: Address, offset: u16) -> u16 {
        (self.read32(function, offset & !3) >> (8 * (offset & 2))) as u16
    }

    /// The byte at `offset`.
    fn read8(&self, function: Address, offset: u16) -> u8 {
        (self.read32(function, offset & !3) >> (8 * (offset & 3))) as u8
    }
}

/// What a function reads as that is not there.
pub(super) const ABSENT: u32 = !0;

/// The machine's configuration space: ECAM where the firmware describes it, and ports for what is left of segment 0.
pub(super) struct SystemSpace {
    ecam: Vec<Ecam>,
    ports: Ports,
}

impl SystemSpace {
    /// A space over ECAM regions that were found sound, see [`Ecam::agrees_with`].
    pub(super) fn new(ecam: Vec<Ecam>) -> Self {
        Self { ecam, ports: Ports::new() }
    }

    fn region(&self, function: Address) -> Option<&Ecam> {
        self.ecam.iter().find(|ecam| covers(&ecam.region, function))
    }
}

impl ConfigSpace for SystemSpace {
    fn read32(&self, function: Address, offset: u16) -> u32 {
        match self.region(function) {
            Some(region) => region.read32(function, offset),
            None => self.ports.read32(function, offset),
        }
    }

    fn write32(&self, function: Address, offset: u16, value: u32) {
        match self.region(function) {
            Some(region) => region.write32(function, offset, value),
            None => self.ports.write32(function, offset, value),
        }
    }
}

/// A memory-mapped range of buses: 4 KiB per function (PCI Express base specification 6.0, 7.2.2).
pub(super) struct Ecam {
    region: EcamRegion,
    /// The first register of the first bus.
    start: NonNull<u8>,
}

// SAFETY: The mapping lasts for ever and is the same on all cores; each access is a single volatile read or write.
unsafe impl Send for Ecam {}
// SAFETY: As for `Send`.
unsafe impl Sync for Ecam {}

impl Ecam {
    const BUS_SIZE: u64 = 1 << 20;

    /// Maps the region.
    pub(super) fn map(region: EcamRegion) -> Result<Self, MapError> {
        let buses = u64::from(region.last_bus - region.first_bus) + 1;
        let first = u64::from(region.first_bus) * Self::BUS_SIZE;
        let start = region.base.checked_add(first).ok_or(MapError::OutOfRange)?;
        Ok(Self { region, start: paging::map_mmio(start, buses * Self::BUS_SIZE)? })
    }

    /// The buses that it reaches.
    pub(super) fn buses(&self) -> BusRange {
        let EcamRegion { segment, first_bus: first, last_bus: last, .. } = self.region;
        BusRange { segment, first, last }
    }

    /// Whether the region shows the same function 0:0.0 as the ports do. Firmware is known to describe regions that
    /// the chipset does not decode; where the ports show nothing, the region has to be believed.
    pub(super) fn agrees_with(&self, ports: &Ports) -> bool {
        let first = Address::new(0, 0, 0, 0);
        let id_by_ports = if covers(&self.region, first) { ports.read32(first, 0) } else { ABSENT };
        id_by_ports == ABSENT || self.read32(first, 0) == id_by_ports
    }

    /// Address of a register of a function that the region covers.
    fn register(&self, function: Address, offset: u16) -> NonNull<u32> {
        assert!(covers(&self.region, function));
        // SAFETY: The function is in the region, so its register is in the mapping.
        unsafe { self.start.add(register_offset(&self.region, function, offset)) }.cast()
    }

    fn read32(&self, function: Address, offset: u16) -> u32 {
        let register = self.register(function, offset);
        // SAFETY: The register is mapped and aligned, and reading a configuration register has no side effects.
        unsafe { ptr::read_volatile(register.as_ptr()) }
    }

    fn write32(&self, function: Address, offset: u16, value: u32) {
        let register = self.register(function, offset);
        // SAFETY: The register is mapped and aligned. What the write does to the device is up to the caller, as it is
        // with the ports.
        unsafe { ptr::write_volatile(register.as_ptr(), value) }
    }
}

/// Whether the function is in the region.
fn covers(region: &EcamRegion, function: Address) -> bool {
    function.segment() == region.segment && (region.first_bus..=region.last_bus).contains(&function.bus())
}

/// Where a register is, in bytes from the first register of the region's first bus.
fn register_offset(region: &EcamRegion, function: Address, offset: u16) -> usize {
    usize::from(function.bus() - region.first_bus) << 20
        | usize::from(function.device()) << 15
        | usize::from(function.function()) << 12
        | usize::from(offset & 0xffc)
}

/// Configuration mechanism #1 (PCI local bus specification 3.0, 3.2.2.3.2): an address port and a data port.
///
/// It reaches the first 256 bytes of the functions of segment 0.
pub(super) struct Ports {
    /// The two ports are one resource: the address has to stay until the data has passed.
    ports: SpinMutex<(Port<u32>, Port<u32>)>,
}

impl Ports {
    const CONFIG_ADDRESS: u16 = 0xcf8;
    const CONFIG_DATA: u16 = 0xcfc;
    const ENABLE: u32 = 1 << 31;

    pub(super) const fn new() -> Self {
        let ports = (Port::new(Self::CONFIG_ADDRESS), Port::new(Self::CONFIG_DATA));
        Self { ports: SpinMutex::new(ports) }
    }

    /// The word for the address port, or `None` for what the mechanism does not reach.
    fn selector(function: Address, offset: u16) -> Option<u32> {
        let reachable = function.segment() == 0 && offset < 0x100;
        reachable.then(|| {
            Self::ENABLE
                | u32::from(function.bus()) << 16
                | u32::from(function.device()) << 11
                | u32::from(function.function()) << 8
                | u32::from(offset & 0xfc)
        })
    }
}

impl ConfigSpace for Ports {
    fn read32(&self, function: Address, offset: u16) -> u32 {
        let Some(selector) = Self::selector(function, offset) else { return ABSENT };
        let (address, data) = &mut *self.ports.lock();
        // SAFETY: These ports belong to this mechanism alone; the lock keeps address and data together.
        unsafe {
            address.write(selector);
            data.read()
        }
    }

    fn write32(&self, function: Address, offset: u16, value: u32) {
        let Some(selector) = Self::selector(function, offset) else { return };
        let (address, data) = &mut *self.ports.lock();
        // SAFETY: As in `read32`.
        unsafe {
            address.write(selector);
            data.write(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_select_registers_of_segment_0() {
        assert_eq!(Ports::selector(Address::new(0, 0x12, 0x1f, 7), 0x3c), Some(0x8012_ff3c));
        assert_eq!(Ports::selector(Address::new(1, 0, 0, 0), 0), None);
        assert_eq!(Ports::selector(Address::new(0, 0, 0, 0), 0x100), None);
    }

    #[test]
    fn ecam_covers_its_buses_only() {
        let region = EcamRegion { base: 0xe000_0000, segment: 2, first_bus: 16, last_bus: 31 };
        let covers = |segment, bus| covers(&region, Address::new(segment, bus, 31, 7));
        assert!(covers(2, 16) && covers(2, 31));
        assert!(!covers(2, 15) && !covers(2, 32) && !covers(0, 16));
        assert_eq!(register_offset(&region, Address::new(2, 17, 3, 1), 0x104), 0x11_9104);
    }
}

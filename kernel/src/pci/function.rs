//! One function of a PCI device: what it is, and its registers.

use alloc::vec::Vec;
use core::fmt;

use pci_types::CommandRegister;

use super::bar::{self, Bar, BarError};
use super::capability::{Capabilities, Capability};
use super::config::{ABSENT, ConfigSpace};
use super::header::{BRIDGE, ENDPOINT, HOST_BRIDGE, MULTIFUNCTION, bridge, common};
use super::{Address, BAR_COUNT};

/// A function that answered the scan.
#[derive(Clone, Copy)]
pub struct Function {
    /// Where it is: segment, bus, device, function.
    pub address: Address,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// What kind of device it is.
    pub class: Class,
    header_type: u8,
    space: &'static dyn ConfigSpace,
}

/// The class code of a function (PCI code and ID assignment specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Base class, e.g. 0x02 for network controllers.
    pub base: u8,
    /// Subclass, e.g. 0x00 for Ethernet among network controllers.
    pub sub: u8,
    /// Programming interface.
    pub interface: u8,
}

impl Function {
    /// Asks the function at an address whether it is there.
    pub(super) fn probe(space: &'static dyn ConfigSpace, address: Address) -> Option<Self> {
        let id = space.read32(address, common::ID);
        let (vendor, device) = (id as u16, (id >> 16) as u16);
        // Vendor 0xffff is the answer of nobody (7.5.1.1.1); 0 is a bus that hangs.
        if id == ABSENT || vendor == 0xffff || vendor == 0 {
            return None;
        }
        let [_, interface, sub, base] = space.read32(address, common::CLASS).to_le_bytes();
        let header_type = space.read8(address, common::HEADER_TYPE);
        Some(Self { address, vendor, device, class: Class { base, sub, interface }, header_type, space })
    }

    /// Reads the configuration word at `offset`, a multiple of 4.
    #[must_use]
    pub fn read32(&self, offset: u16) -> u32 {
        self.space.read32(self.address, offset)
    }

    /// Reads 16 bits at `offset`, a multiple of 2.
    #[must_use]
    pub fn read16(&self, offset: u16) -> u16 {
        self.space.read16(self.address, offset)
    }

    /// Reads the byte at `offset`.
    #[must_use]
    pub fn read8(&self, offset: u16) -> u8 {
        self.space.read8(self.address, offset)
    }

    /// Writes the configuration word at `offset`, a multiple of 4.
    pub fn write32(&self, offset: u16, value: u32) {
        self.space.write32(self.address, offset, value);
    }

    /// Lets the function answer memory accesses and reach memory by itself, with its interrupt line silent.
    pub fn enable(&self) {
        let on = CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE;
        self.set_command((self.command() | on) | CommandRegister::INTERRUPT_DISABLE);
    }

    pub(super) fn command(&self) -> CommandRegister {
        CommandRegister::from_bits_retain(self.read16(common::COMMAND))
    }

    /// Writes the command register. The status beside it gets zeros, which leave it as it is.
    pub(super) fn set_command(&self, command: CommandRegister) {
        self.write32(common::COMMAND, command.bits().into());
    }

    /// The physical address in the memory BAR that begins with register `index`. It costs one read or two, and does
    /// not disturb the function.
    ///
    /// # Errors
    /// See [`BarError`]. A register that is not implemented reads as one without an address.
    pub fn bar_address(&self, index: usize) -> Result<u64, BarError> {
        bar::address(self, index)
    }

    /// Decodes the base address register `index`, and asks the function for its size. The register after one of 64
    /// bits is its upper half, and no BAR of its own.
    ///
    /// The function does not answer memory and port accesses meanwhile: nobody may be using it. Under an emulator this
    /// costs milliseconds, as the memory map is built anew with each write; [`Function::bar_address`] does not.
    ///
    /// # Errors
    /// See [`BarError`].
    pub fn bar(&self, index: usize) -> Result<Bar, BarError> {
        bar::decode(self, index)
    }

    /// The capabilities that the function lists, in their order.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::of(self)
    }

    /// The first capability with this id.
    #[must_use]
    pub fn capability(&self, id: u8) -> Option<Capability> {
        self.capabilities().find(|capability| capability.id == id)
    }

    /// How many base address registers its header has.
    pub(super) fn bar_count(&self) -> usize {
        match self.layout() {
            ENDPOINT => BAR_COUNT,
            BRIDGE => 2,
            _ => 0,
        }
    }

    pub(super) fn is_multifunction(&self) -> bool {
        self.header_type & MULTIFUNCTION != 0
    }

    pub(super) fn is_host_bridge(&self) -> bool {
        (self.class.base, self.class.sub) == HOST_BRIDGE
    }

    /// For a bridge to another bus: the secondary and the subordinate bus number, 0 and 0 before they were given.
    pub(super) fn buses_behind(&self) -> Option<(u8, u8)> {
        (self.layout() == BRIDGE)
            .then(|| (self.read8(bridge::SECONDARY_BUS), self.read8(bridge::SUBORDINATE_BUS)))
    }

    fn layout(&self) -> u8 {
        self.header_type & !MULTIFUNCTION
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({self})")
    }
}

impl fmt::Display for Function {
    /// `0000:00:02.0 1af4:1041 class 02.00.00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { base, sub, interface } = self.class;
        let (vendor, device) = (self.vendor, self.device);
        write!(f, "{} {vendor:04x}:{device:04x} class {base:02x}.{sub:02x}.{interface:02x}", self.address)
    }
}

/// Every function on a bus.
pub(super) fn functions_on(space: &'static dyn ConfigSpace, segment: u16, bus: u8) -> Vec<Function> {
    let mut found = Vec::new();
    for device in 0..32 {
        let address = |function| Address::new(segment, bus, device, function);
        // A device has function 0, or it is not there (7.3.1).
        let Some(first) = Function::probe(space, address(0)) else { continue };
        found.push(first);
        if first.is_multifunction() {
            found.extend((1..8).filter_map(|function| Function::probe(space, address(function))));
        }
    }
    found
}

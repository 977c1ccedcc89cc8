//! A made-up configuration space for the tests of this module.
//!
//! It routes an access through the bus numbers of its bridges, as hardware does, and it panics when a base address
//! register is sized while its function decodes.

use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::vec::Vec;

use super::Address;
use super::config::{ABSENT, ConfigSpace};
use super::function::Function;
use super::header::{BRIDGE, MULTIFUNCTION, bridge, common};

/// A handle to a space that lives until the tests end.
#[derive(Clone, Copy)]
pub(super) struct FakeSpace(&'static Inner);

#[derive(Default)]
struct Inner(Mutex<Vec<Device>>);

struct Device {
    /// The bridge it is behind, as an index; `None` on a root bus.
    parent: Option<usize>,
    /// Its address; the bus number counts on a root bus only.
    address: Address,
    registers: BTreeMap<u16, Register>,
}

#[derive(Clone, Copy)]
struct Register {
    value: u32,
    writable: u32,
}

/// A handle to one function of the space.
#[derive(Clone, Copy)]
pub(super) struct FakeDevice {
    space: FakeSpace,
    index: usize,
}

impl Default for FakeSpace {
    fn default() -> Self {
        Self(Box::leak(Box::default()))
    }
}

impl FakeSpace {
    /// Adds an endpoint to a root bus; `id` is the first configuration word.
    pub(super) fn add(self, address: Address, id: u32) -> FakeDevice {
        self.insert(None, address, id)
    }

    /// Adds a bridge to a root bus. It has no bus numbers yet.
    pub(super) fn add_bridge(self, address: Address) -> FakeDevice {
        self.insert(None, address, 0x000c_1b36).into_bridge()
    }

    pub(super) fn function(self, address: Address) -> Function {
        Function::probe(self.config(), address).expect("the function was added")
    }

    pub(super) fn config(self) -> &'static dyn ConfigSpace {
        self.0
    }

    fn insert(self, parent: Option<usize>, address: Address, id: u32) -> FakeDevice {
        let mut devices = self.0.0.lock().unwrap();
        devices.push(Device { parent, address, registers: BTreeMap::new() });
        let device = FakeDevice { space: self, index: devices.len() - 1 };
        drop(devices);
        device.set_masked(common::ID, id, 0);
        device.set_masked(common::COMMAND, 0, 0xffff);
        device
    }
}

impl FakeDevice {
    /// Adds an endpoint behind this bridge.
    pub(super) fn add(self, device: u8, id: u32) -> FakeDevice {
        self.space.insert(Some(self.index), Address::new(0, 0, device, 0), id)
    }

    /// Adds a bridge behind this bridge.
    pub(super) fn add_bridge(self, device: u8) -> FakeDevice {
        self.add(device, 0x000c_1b36).into_bridge()
    }

    /// Sets the class (base, subclass).
    pub(super) fn with_class(self, base: u8, sub: u8) -> FakeDevice {
        self.set_masked(common::CLASS, u32::from_le_bytes([0, 0, sub, base]), 0);
        self
    }

    /// Says that the device has more functions than one.
    pub(super) fn with_functions(self) -> FakeDevice {
        self.set_masked(common::HEADER_TYPE & !3, u32::from(MULTIFUNCTION) << 16, 0);
        self
    }

    /// Gives a bridge its bus numbers.
    pub(super) fn with_buses(self, secondary: u8, subordinate: u8) -> FakeDevice {
        self.set(bridge::BUS_NUMBERS, u32::from_le_bytes([0, secondary, subordinate, 0]));
        self
    }

    /// A register whose bits can all be written.
    pub(super) fn set(self, offset: u16, value: u32) {
        self.set_masked(offset, value, !0);
    }

    /// A register in which only some bits can be written.
    pub(super) fn set_masked(self, offset: u16, value: u32, writable: u32) {
        let mut devices = self.space.0.0.lock().unwrap();
        devices[self.index].registers.insert(offset, Register { value, writable });
    }

    pub(super) fn get(self, offset: u16) -> u32 {
        self.space.0.0.lock().unwrap()[self.index].read(offset)
    }

    fn into_bridge(self) -> FakeDevice {
        self.set_masked(common::HEADER_TYPE & !3, u32::from(BRIDGE) << 16, 0);
        for offset in (bridge::BUS_NUMBERS..0x34).step_by(4) {
            self.set(offset, 0);
        }
        self.with_class(0x06, 0x04)
    }
}

impl Device {
    fn read(&self, offset: u16) -> u32 {
        self.registers.get(&offset).map_or(0, |register| register.value)
    }

    fn write(&mut self, offset: u16, value: u32) {
        const DECODES: u32 = 0b11;
        let is_bar = (common::BAR_0..bridge::BUS_NUMBERS).contains(&offset);
        let decodes = self.read(common::COMMAND) & DECODES != 0;
        assert!(!(is_bar && value == !0 && decodes), "sizing a register of a function that decodes");
        if let Some(register) = self.registers.get_mut(&offset) {
            register.value = register.value & !register.writable | value & register.writable;
        }
    }
}

impl Inner {
    fn with<R>(&self, address: Address, access: impl FnOnce(&mut Device) -> R) -> Option<R> {
        let mut devices = self.0.lock().unwrap();
        let index = (0..devices.len()).find(|&index| answers(&devices, index, address))?;
        Some(access(&mut devices[index]))
    }
}

impl ConfigSpace for Inner {
    fn read32(&self, function: Address, offset: u16) -> u32 {
        assert_eq!(offset % 4, 0);
        self.with(function, |device| device.read(offset)).unwrap_or(ABSENT)
    }

    fn write32(&self, function: Address, offset: u16, value: u32) {
        assert_eq!(offset % 4, 0);
        self.with(function, |device| device.write(offset, value));
    }
}

fn answers(devices: &[Device], index: usize, address: Address) -> bool {
    let device = &devices[index];
    let same_slot =
        (device.address.device(), device.address.function()) == (address.device(), address.function());
    let on_bus = match device.parent {
        None => device.address == address,
        Some(parent) => buses_behind(&devices[parent]).0 == address.bus() && address.segment() == 0,
    };
    same_slot && on_bus && reaches(devices, device.parent, address.bus())
}

/// Whether every bridge on the way passes accesses to `bus` on.
fn reaches(devices: &[Device], bridge: Option<usize>, bus: u8) -> bool {
    let Some(index) = bridge else { return true };
    let (secondary, subordinate) = buses_behind(&devices[index]);
    let passes = secondary != 0 && (secondary..=subordinate).contains(&bus);
    passes && reaches(devices, devices[index].parent, bus)
}

fn buses_behind(bridge: &Device) -> (u8, u8) {
    let [_, secondary, subordinate, _] = bridge.read(bridge::BUS_NUMBERS).to_le_bytes();
    (secondary, subordinate)
}

//! Addresses for functions that firmware left without: bus numbers, bridge windows and memory BARs.
//!
//! A machine with a BIOS or UEFI arrives here set up. QEMU's `microvm` does not: its firmware starts the kernel and
//! touches no PCI device. Then everything is placed here, all of it or nothing, into memory space that nobody else
//! uses. Ranges of I/O ports and expansion ROMs stay unassigned: no driver here needs one.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use pci_types::CommandRegister;

use super::Address;
use super::bar::{self, Bar};
use super::config::ConfigSpace;
use super::function::{Function, functions_on};
use super::header::bridge;
use super::scan::BusRange;

/// What could not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssignError {
    /// The window is too small for a memory BAR of this function.
    WindowFull(Address),
    /// There are more buses than numbers.
    BusesFull(Address),
}

impl fmt::Display for AssignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowFull(function) => write!(f, "{function}: no room for its memory"),
            Self::BusesFull(function) => write!(f, "{function}: no bus number left for what is behind it"),
        }
    }
}

/// Whether firmware left the functions on the first bus alone: some have memory BARs or are bridges, and none has an
/// address or a bus number.
pub(super) fn is_untouched(space: &'static dyn ConfigSpace, range: BusRange) -> bool {
    let functions = functions_on(space, range.segment, range.first);
    !functions.iter().any(is_placed) && functions.iter().any(wants_place)
}

fn is_placed(function: &Function) -> bool {
    let numbered = function.buses_behind().is_some_and(|(secondary, _)| secondary != 0);
    numbered || (0..function.bar_count()).any(|index| function.bar_address(index).is_ok())
}

/// This asks for sizes, so it comes after the cheap question.
fn wants_place(function: &Function) -> bool {
    function.buses_behind().is_some() || memory_bars(function).next().is_some()
}

/// Places everything in the range into `window`, a range of physical addresses below 4 GiB, from its top down.
///
/// # Errors
/// [`AssignError`] for the first function that has no room. What was placed before it stays placed.
pub(super) fn assign(
    space: &'static dyn ConfigSpace,
    range: BusRange,
    window: Range<u64>,
) -> Result<(), AssignError> {
    let mut placer = Placer { space, range, free: window, last_bus: range.first };
    placer.place_bus(range.first)
}

/// Bridge windows are whole mebibytes (7.5.1.3.8).
const BRIDGE_GRANULE: u64 = 1 << 20;

struct Placer {
    space: &'static dyn ConfigSpace,
    range: BusRange,
    /// What is left; it is taken from its end, as neighbours of the configuration space are the surest to be decoded
    /// by the host bridge.
    free: Range<u64>,
    last_bus: u8,
}

impl Placer {
    fn place_bus(&mut self, bus: u8) -> Result<(), AssignError> {
        for function in functions_on(self.space, self.range.segment, bus) {
            self.place_bars(&function)?;
            if function.buses_behind().is_some() {
                self.place_bridge(&function)?;
            }
        }
        Ok(())
    }

    fn place_bars(&mut self, function: &Function) -> Result<(), AssignError> {
        // The largest first: each then begins where the one before ended, with no gap.
        let mut bars: Vec<(usize, Bar)> = memory_bars(function).collect();
        bars.sort_by_key(|&(_, bar)| core::cmp::Reverse(size_of_memory(bar)));
        for (index, bar) in bars {
            let size = size_of_memory(bar);
            let address = self.take(size, size).ok_or(AssignError::WindowFull(function.address))?;
            function.write32(bar::offset(index), address as u32);
            if bar.registers() == 2 {
                function.write32(bar::offset(index + 1), (address >> 32) as u32);
            }
        }
        Ok(())
    }

    /// Numbers the bus behind a bridge, places what is there, and opens the bridge's memory window around it.
    fn place_bridge(&mut self, function: &Function) -> Result<(), AssignError> {
        let full = AssignError::BusesFull(function.address);
        let secondary = self.last_bus.checked_add(1).filter(|&bus| bus <= self.range.last).ok_or(full)?;
        self.last_bus = secondary;
        number_buses(function, secondary, self.range.last);
        let top = self.align(BRIDGE_GRANULE).ok_or(AssignError::WindowFull(function.address))?;
        self.place_bus(secondary)?;
        let bottom = self.align(BRIDGE_GRANULE).ok_or(AssignError::WindowFull(function.address))?;
        number_buses(function, secondary, self.last_bus);
        open_window(function, bottom..top);
        Ok(())
    }

    /// Takes `size` bytes, aligned, from the end of what is free.
    fn take(&mut self, size: u64, alignment: u64) -> Option<u64> {
        self.free.end.checked_sub(size)?;
        self.free.end -= size;
        self.align(alignment)
    }

    /// Moves the end of what is free down to a multiple of a power of two.
    fn align(&mut self, alignment: u64) -> Option<u64> {
        self.free.end &= !(alignment - 1);
        (self.free.end >= self.free.start && self.free.end != 0).then_some(self.free.end)
    }
}

fn number_buses(function: &Function, secondary: u8, subordinate: u8) {
    let primary = function.address.bus();
    function.write32(bridge::BUS_NUMBERS, u32::from_le_bytes([primary, secondary, subordinate, 0]));
}

/// Lets a bridge pass memory accesses to a range of addresses, and all accesses of what is behind it.
fn open_window(function: &Function, window: Range<u64>) {
    /// A window whose base is above its limit is closed.
    const CLOSED: u32 = 0x0000_fff0;
    let memory = if window.is_empty() {
        CLOSED
    } else {
        let last_granule = window.end - BRIDGE_GRANULE;
        (last_granule as u32 & 0xfff0_0000) | (window.start as u32 >> 16 & 0xfff0)
    };
    function.write32(bridge::MEMORY_WINDOW, memory);
    function.write32(bridge::PREFETCHABLE_WINDOW, CLOSED);
    bridge::PREFETCHABLE_UPPER.into_iter().for_each(|register| function.write32(register, 0));
    /// The same for ports; zeros leave the status in the upper half as it is.
    const CLOSED_IO: u32 = 0x0000_00f0;
    function.write32(bridge::IO_WINDOW, CLOSED_IO);
    function.set_command(
        function.command() | CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE,
    );
}

/// The memory BARs of a function, with the index of their first register.
fn memory_bars(function: &Function) -> impl Iterator<Item = (usize, Bar)> {
    // The registers of a host bridge are sometimes aliases of what it forwards: sizing them is dangerous.
    let count = if function.is_host_bridge() { 0 } else { function.bar_count() };
    let mut next = 0;
    core::iter::from_fn(move || {
        while next < count {
            let index = next;
            let bar = function.bar(index);
            next += bar.map_or(1, Bar::registers);
            if let Ok(bar @ Bar::Memory { .. }) = bar {
                return Some((index, bar));
            }
        }
        None
    })
}

fn size_of_memory(bar: Bar) -> u64 {
    match bar {
        Bar::Memory { size, .. } => size,
        Bar::Io { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::common;
    use super::super::testing::{FakeDevice, FakeSpace};
    use super::*;

    const RANGE: BusRange = BusRange { segment: 0, first: 0, last: 255 };
    const WINDOW: Range<u64> = 0xc000_0000..0xe000_0000;
    const NIC: u32 = 0x1041_1af4;

    fn at(device: u8) -> Address {
        Address::new(0, 0, device, 0)
    }

    /// A device like QEMU's virtio-net: BAR 1 has 4 KiB, BAR 4 is 64-bit and has 16 KiB.
    fn with_bars(device: FakeDevice) -> FakeDevice {
        device.set_masked(0x14, 0, 0xffff_f000);
        device.set_masked(0x20, 0b1100, 0xffff_c000);
        device.set_masked(0x24, 0, 0xffff_ffff);
        device
    }

    fn memory_of(function: &Function) -> Vec<(u64, u64)> {
        memory_bars(function).map(|(_, bar)| bar.memory().unwrap()).collect()
    }

    #[test]
    fn places_bars_at_the_top_without_overlap() {
        let space = FakeSpace::default();
        with_bars(space.add(at(1), NIC));
        with_bars(space.add(at(2), NIC));
        assert!(is_untouched(space.config(), RANGE));
        assign(space.config(), RANGE, WINDOW).unwrap();
        assert!(!is_untouched(space.config(), RANGE));
        assert_eq!(memory_of(&space.function(at(1))), [(0xdfff_b000, 0x1000), (0xdfff_c000, 0x4000)]);
        assert_eq!(memory_of(&space.function(at(2))), [(0xdfff_3000, 0x1000), (0xdfff_4000, 0x4000)]);
    }

    #[test]
    fn numbers_and_opens_nested_bridges() {
        let space = FakeSpace::default();
        let outer = space.add_bridge(at(1));
        let inner = outer.add_bridge(0);
        with_bars(inner.add(0, NIC));
        let empty = space.add_bridge(at(2));
        assert!(is_untouched(space.config(), RANGE));
        assign(space.config(), RANGE, WINDOW).unwrap();

        let buses = |bridge: FakeDevice| bridge.get(bridge::BUS_NUMBERS).to_le_bytes();
        assert_eq!([buses(outer), buses(inner), buses(empty)], [[0, 1, 2, 0], [1, 2, 2, 0], [0, 3, 3, 0]]);
        let nic = space.function(Address::new(0, 2, 0, 0));
        assert_eq!(memory_of(&nic), [(0xdfff_b000, 0x1000), (0xdfff_c000, 0x4000)]);
        for bridge in [outer, inner] {
            assert_eq!(bridge.get(bridge::MEMORY_WINDOW), 0xdff0_dff0);
            let command = CommandRegister::from_bits_retain(bridge.get(common::COMMAND) as u16);
            assert!(command.contains(CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE));
        }
        assert_eq!(empty.get(bridge::MEMORY_WINDOW), 0x0000_fff0);
    }

    #[test]
    fn leaves_alone_what_firmware_set_up() {
        let space = FakeSpace::default();
        with_bars(space.add(at(1), NIC)).set_masked(0x14, 0xfe00_0000, 0xffff_f000);
        with_bars(space.add(at(2), NIC));
        assert!(!is_untouched(space.config(), RANGE));
        assert!(!is_untouched(FakeSpace::default().config(), RANGE), "nothing wants anything");
    }

    #[test]
    fn names_the_function_that_does_not_fit() {
        let space = FakeSpace::default();
        with_bars(space.add(at(1), NIC));
        space.add(at(7), NIC).set_masked(0x10, 0, 0xe000_0000);
        assert_eq!(assign(space.config(), RANGE, WINDOW), Err(AssignError::WindowFull(at(7))));
        assert_eq!(assign(space.config(), RANGE, 0..0x2000), Err(AssignError::WindowFull(at(1))));
        let deep = FakeSpace::default();
        deep.add_bridge(at(3));
        let no_more = BusRange { last: 0, ..RANGE };
        assert_eq!(assign(deep.config(), no_more, WINDOW), Err(AssignError::BusesFull(at(3))));
    }
}

//! Finding every function: root buses, and the buses behind bridges.

use alloc::vec::Vec;

use super::config::ConfigSpace;
use super::function::{Function, functions_on};

/// A range of bus numbers that the configuration space reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BusRange {
    pub(super) segment: u16,
    pub(super) first: u8,
    pub(super) last: u8,
}

/// How to look for host bridges whose bus numbers only AML would tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// On every bus that no bridge led to.
    EveryBus,
    /// The same, but only where bus 0 shows that there is a second host bridge. Under a hypervisor each access to a
    /// function that is not there is an exit, and 8192 of them take longer than the rest of the boot.
    OnSigns,
}

/// Every function of a range of buses, sorted by address.
pub(super) fn scan(space: &'static dyn ConfigSpace, range: BusRange, search: Search) -> Vec<Function> {
    let mut scan = Scan { space, range, seen: [false; 256], found: Vec::new() };
    scan.follow(range.first);
    if search == Search::EveryBus || scan.shows_more_host_bridges() {
        for bus in range.first..=range.last {
            scan.follow(bus);
        }
    }
    scan.found.sort_by_key(|function| function.address);
    scan.found
}

struct Scan {
    space: &'static dyn ConfigSpace,
    range: BusRange,
    /// Buses that were looked at. Misnumbered bridges can form a circle.
    seen: [bool; 256],
    found: Vec<Function>,
}

impl Scan {
    /// Looks at a bus and all buses behind its bridges.
    fn follow(&mut self, bus: u8) {
        let mut waiting = Vec::from([bus]);
        while let Some(bus) = waiting.pop() {
            let in_range = (self.range.first..=self.range.last).contains(&bus);
            if !in_range || core::mem::replace(&mut self.seen[usize::from(bus)], true) {
                continue;
            }
            let functions = functions_on(self.space, self.range.segment, bus);
            let secondary =
                functions.iter().filter_map(Function::buses_behind).map(|(secondary, _)| secondary);
            waiting.extend(secondary.filter(|&secondary| secondary != 0));
            self.found.extend(functions);
        }
    }

    fn shows_more_host_bridges(&self) -> bool {
        self.found.iter().filter(|function| function.is_host_bridge()).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::super::Address;
    use super::super::testing::FakeSpace;
    use super::*;

    const ALL: BusRange = BusRange { segment: 0, first: 0, last: 255 };
    const NIC: u32 = 0x1041_1af4;

    fn at(bus: u8, device: u8, function: u8) -> Address {
        Address::new(0, bus, device, function)
    }

    fn addresses(space: FakeSpace, search: Search) -> Vec<String> {
        scan(space.config(), ALL, search).iter().map(|function| function.address.to_string()).collect()
    }

    #[test]
    fn finds_functions_behind_bridges_in_address_order() {
        let space = FakeSpace::default();
        space.add(at(0, 31, 0), NIC).with_functions();
        space.add(at(0, 31, 3), NIC);
        let outer = space.add_bridge(at(0, 1, 0)).with_buses(1, 2);
        outer.add(5, NIC);
        outer.add_bridge(0).with_buses(2, 2).add(0, NIC);
        let expected =
            ["0000:00:01.0", "0000:00:1f.0", "0000:00:1f.3", "0000:01:00.0", "0000:01:05.0", "0000:02:00.0"];
        assert_eq!(addresses(space, Search::OnSigns), expected);
    }

    #[test]
    fn believes_a_single_function_device() {
        let space = FakeSpace::default();
        space.add(at(0, 4, 0), NIC);
        space.add(at(0, 4, 1), NIC);
        assert_eq!(addresses(space, Search::OnSigns), ["0000:00:04.0"]);
    }

    #[test]
    fn survives_bridges_in_a_circle_and_without_numbers() {
        let space = FakeSpace::default();
        let bridge = space.add_bridge(at(0, 1, 0)).with_buses(1, 1);
        bridge.add_bridge(0).with_buses(1, 1);
        space.add_bridge(at(0, 2, 0)).add(0, NIC);
        assert_eq!(addresses(space, Search::OnSigns), ["0000:00:01.0", "0000:00:02.0", "0000:01:00.0"]);
    }

    #[test]
    fn finds_other_root_buses_where_a_second_host_bridge_shows() {
        let space = FakeSpace::default();
        space.add(at(0, 0, 0), 0x29c0_8086).with_class(6, 0);
        space.add(at(0x80, 3, 0), NIC);
        assert_eq!(addresses(space, Search::OnSigns), ["0000:00:00.0"]);
        assert_eq!(addresses(space, Search::EveryBus), ["0000:00:00.0", "0000:80:03.0"]);
        space.add(at(0, 5, 0), 0x000b_1b36).with_class(6, 0);
        assert_eq!(addresses(space, Search::OnSigns), ["0000:00:00.0", "0000:00:05.0", "0000:80:03.0"]);
    }

    #[test]
    fn stays_in_its_range() {
        let space = FakeSpace::default();
        space.add(at(0, 0, 0), NIC);
        space.add_bridge(at(16, 1, 0)).with_buses(40, 40).add(0, NIC);
        let range = BusRange { segment: 0, first: 16, last: 31 };
        assert_eq!(scan(space.config(), range, Search::EveryBus).len(), 1);
    }
}

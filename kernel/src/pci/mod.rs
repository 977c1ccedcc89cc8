//! PCI: finds every function, and gives access to its configuration space, base address registers and MSI-X table.
//!
//! [`init`] chooses the way to the configuration space (ECAM where firmware describes it, ports otherwise), places
//! what firmware left without an address, and scans. [`functions`] is the result, in address order.

mod assign;
mod bar;
mod capability;
mod config;
mod express;
mod function;
mod header;
pub mod msix;
mod scan;
#[cfg(test)]
mod testing;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use hermit_sync::OnceCell;
use log::{debug, info, warn};
use raw_cpuid::CpuId;

/// Segment, bus, device and function; it sorts in this order and prints as `0000:00:02.0`.
pub use pci_types::PciAddress as Address;

pub use self::bar::{Bar, BarError, Width};
pub use self::capability::{Capabilities, Capability, id as capability_id};
pub use self::config::ConfigSpace;
use self::config::{Ecam, Ports, SystemSpace};
pub use self::express::Link;
pub use self::function::{Class, Function};
use self::scan::{BusRange, Search};
use crate::acpi::{self, EcamRegion};
use crate::boot::{Boot, Region};

/// Base address registers of an endpoint.
pub const BAR_COUNT: usize = 6;

static FUNCTIONS: OnceCell<Vec<Function>> = OnceCell::new();

/// Finds every function, once; after that it does nothing. It needs [`acpi::init`].
pub fn init(boot: &Boot) {
    FUNCTIONS.get_or_init(|| {
        let ecam = sound_regions();
        let ranges = bus_ranges(&ecam);
        let space: &'static dyn ConfigSpace = Box::leak(Box::new(SystemSpace::new(ecam)));
        for range in &ranges {
            place_if_untouched(space, *range, boot.memory);
        }
        let functions: Vec<Function> =
            ranges.iter().flat_map(|range| scan::scan(space, *range, search())).collect();
        functions.iter().for_each(|function| debug!("{function}"));
        info!("{} functions", functions.len());
        functions
    });
}

/// Every function, sorted by address. None before [`init`].
#[must_use]
pub fn functions() -> Vec<Function> {
    FUNCTIONS.get().cloned().unwrap_or_default()
}

/// The ECAM regions that can be mapped and show what the ports show.
fn sound_regions() -> Vec<Ecam> {
    let ports = Ports::new();
    let map = |region: &EcamRegion| match Ecam::map(*region) {
        Ok(ecam) if ecam.agrees_with(&ports) => Some(ecam),
        Ok(_) => {
            warn!("{region} is not used: it does not show what the ports show");
            None
        }
        Err(error) => {
            warn!("{region} is not used: {error}");
            None
        }
    };
    acpi::platform().ecam.iter().filter_map(map).collect()
}

/// The buses that the configuration space reaches: those of the ECAM regions, and all of segment 0 where none of
/// them belongs to it, for then the ports do.
fn bus_ranges(ecam: &[Ecam]) -> Vec<BusRange> {
    let mut ranges: Vec<BusRange> = ecam.iter().map(Ecam::buses).collect();
    if ranges.iter().all(|range| range.segment != 0) {
        ranges.insert(0, BusRange { segment: 0, first: 0, last: u8::MAX });
    }
    ranges
}

fn search() -> Search {
    let hypervisor = CpuId::new().get_feature_info().is_some_and(|features| features.has_hypervisor());
    if hypervisor { Search::OnSigns } else { Search::EveryBus }
}

/// Gives everything in a range of buses its address when firmware gave none to anything.
fn place_if_untouched(space: &'static dyn ConfigSpace, range: BusRange, memory: &[Region]) {
    if !assign::is_untouched(space, range) {
        return;
    }
    let top = acpi::platform().ecam_below_4g(range.segment).unwrap_or(IO_APIC);
    let window = hole_below(top, memory);
    match assign::assign(space, range, window.clone()) {
        Ok(()) => info!("firmware placed no device: placed at {:#x} to {:#x}", window.start, window.end),
        Err(error) => {
            warn!("firmware placed no device, and {error} between {:#x} and {:#x}", window.start, window.end);
        }
    }
}

/// Where the I/O APIC, the HPET and other parts of every chipset begin.
const IO_APIC: u64 = 0xfec0_0000;

/// The memory space from the highest RAM, or whatever else the map lists, up to `top`. A host bridge decodes what lies
/// next to its configuration space; which part of it exactly, only AML would tell.
fn hole_below(top: u64, memory: &[Region]) -> Range<u64> {
    let bottom = memory.iter().filter(|region| region.start < top).map(|region| region.end.min(top)).max();
    bottom.unwrap_or(0)..top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::RegionKind;

    #[test]
    fn the_hole_begins_above_everything_listed() {
        let region = |start, end, kind| Region { start, end, kind };
        let memory = [
            region(0x10_0000, 0x400_0000, RegionKind::Usable),
            region(0x400_0000, 0x410_0000, RegionKind::Reserved),
            region(0xe000_0000, 0xf000_0000, RegionKind::Reserved),
            region(1 << 32, 2 << 32, RegionKind::Usable),
        ];
        assert_eq!(hole_below(0xe000_0000, &memory), 0x410_0000..0xe000_0000);
        assert!(hole_below(0xe800_0000, &memory).is_empty());
        assert_eq!(hole_below(IO_APIC, &[]), 0..IO_APIC);
    }
}

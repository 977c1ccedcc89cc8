//! A packed ring (virtio 1.2, 2.8), written from the specification and from nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Chain, Part, Registers, Side};

/// Flags of a descriptor (2.8.1, 2.8.4, 2.8.6).
const NEXT: u16 = 1 << 0;
const WRITE: u16 = 1 << 1;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// `struct pvirtq_event_suppress` (2.8.14): flags.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const DESC: u16 = 2;

/// `struct pvirtq_desc` (2.8.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    id: u16,
    flags: u16,
}

pub(super) struct PackedSide {
    registers: Registers,
    event_index: bool,
    /// Where the next available descriptor is, where the next used one goes, and where that was as the driver was last thought of:
    /// descriptors since the start.
    available: u64,
    used: u64,
    told: u64,
    /// What the device has: by id, the descriptors as they were offered, and where.
    lent: BTreeMap<u16, Vec<(u64, Descriptor)>>,
    /// Whether a used descriptor says that its buffer was written: QEMU's never do.
    says_written: bool,
    /// Written last of those that were completed together (2.8.9), once [`PackedSide::hand_over`] is called.
    first: Option<(u64, Descriptor)>,
    broken: bool,
}

impl PackedSide {
    pub(super) fn new(
        map: &GuestMemoryMmap,
        registers: Registers,
        event_index: bool,
        says_written: bool,
    ) -> PackedSide {
        let Registers { size, descriptors, driver, device } = registers;
        assert!(
            descriptors % 16 == 0 && driver % 4 == 0 && device % 4 == 0,
            "an area is not aligned (2.8.10.1)"
        );
        let side = PackedSide {
            registers,
            event_index,
            available: 0,
            used: 0,
            told: 0,
            lent: BTreeMap::new(),
            says_written,
            first: None,
            broken: false,
        };
        for position in 0..size.into() {
            let empty = Descriptor { address: 0, len: 0, id: 0, flags: 0 };
            assert_eq!(side.read(map, position), empty, "the ring is zero at the start (2.8.13)");
        }
        side
    }

    fn offset(&self, position: u64) -> u16 {
        (position % u64::from(self.registers.size)) as u16
    }

    /// What a wrap counter is at a position (2.8.1).
    fn wrap(&self, position: u64) -> bool {
        (position / u64::from(self.registers.size)).is_multiple_of(2)
    }

    fn place(&self, position: u64) -> u64 {
        self.registers.descriptors + 16 * u64::from(self.offset(position))
    }

    fn read(&self, map: &GuestMemoryMmap, position: u64) -> Descriptor {
        let place = self.place(position);
        let flags = map.load(GuestAddress(place + 14), Ordering::Acquire).expect("memory");
        Descriptor {
            address: map.read_obj(GuestAddress(place)).expect("memory"),
            len: map.read_obj(GuestAddress(place + 8)).expect("memory"),
            id: map.read_obj(GuestAddress(place + 12)).expect("memory"),
            flags,
        }
    }

    /// Writes what a device may write: not the address.
    fn write(&self, map: &GuestMemoryMmap, position: u64, descriptor: Descriptor) {
        let place = self.place(position);
        map.write_obj(descriptor.len, GuestAddress(place + 8)).expect("memory");
        map.write_obj(descriptor.id, GuestAddress(place + 12)).expect("memory");
        map.store(descriptor.flags, GuestAddress(place + 14), Ordering::Release).expect("memory");
    }

    /// The next descriptor that the driver has made available (2.8.1).
    fn next_available(&self, map: &GuestMemoryMmap) -> Option<Descriptor> {
        let descriptor = self.read(map, self.available);
        let (avail, used) = (descriptor.flags & AVAIL != 0, descriptor.flags & USED != 0);
        let wrap = self.wrap(self.available);
        (avail == wrap && used != wrap).then_some(descriptor)
    }

    fn take_chain(&mut self, map: &GuestMemoryMmap) -> Option<Chain> {
        let mut held = Vec::new();
        let mut descriptor = self.next_available(map)?;
        loop {
            let Descriptor { flags, .. } = descriptor;
            assert_eq!(
                flags & !(NEXT | WRITE | AVAIL | USED),
                0,
                "{descriptor:?}: flags that were not negotiated"
            );
            held.push((self.available, descriptor));
            self.available += 1;
            if flags & NEXT == 0 {
                break;
            }
            assert!(held.len() < self.registers.size.into(), "a chain without end");
            descriptor = self.next_available(map).expect("a chain is available as a whole (2.8.6)");
        }
        let part = |&(_, Descriptor { address, len, flags, .. }): &(u64, Descriptor)| Part {
            address,
            len,
            writable: flags & WRITE != 0,
        };
        let parts = held.iter().map(part).collect();
        assert!(descriptor.id < self.registers.size, "{descriptor:?}: an id that the ring has no place for");
        assert_eq!(
            self.lent.insert(descriptor.id, held),
            None,
            "{descriptor:?}: the device has that id already"
        );
        Some(Chain { id: descriptor.id, parts })
    }

    /// The used descriptor that goes to `at` (2.8.1, 2.8.4).
    fn used_descriptor(&self, at: u64, id: u16, written: u32) -> Descriptor {
        let owner = if self.wrap(at) { AVAIL | USED } else { 0 };
        let write = if written > 0 && self.says_written { WRITE } else { 0 };
        Descriptor { address: 0, len: written, id, flags: owner | write }
    }

    /// Takes back the descriptors of chain `id`, which the driver must have left alone. Returns how many there are.
    fn forget(&mut self, map: &GuestMemoryMmap, id: u16) -> usize {
        let held = self.lent.remove(&id).expect("the device has what it completes");
        // Out of order, completions go to places of buffers that the device still has.
        for (position, offered) in held.iter().filter(|(position, _)| *position >= self.used) {
            let now = self.read(map, *position);
            assert_eq!(now, *offered, "the driver changed a descriptor that the device had (2.8.13)");
        }
        held.len()
    }

    /// Ends a burst: its first descriptor is written, and all that were written behind it are the driver's with it.
    fn hand_over(&mut self, map: &GuestMemoryMmap) {
        if let Some((position, descriptor)) = self.first.take() {
            self.write(map, position, descriptor);
        }
    }

    fn use_descriptor(&mut self, map: &GuestMemoryMmap, id: u16, written: u32, count: u64) {
        let used = self.used_descriptor(self.used, id, written);
        match self.first {
            None => self.first = Some((self.used, used)),
            Some(_) => self.write(map, self.used, used),
        }
        self.used += count;
    }

    /// Asks for notifications, where `flags` say so at a position (2.8.14).
    fn ask(&self, map: &GuestMemoryMmap, flags: u16, at: u64) {
        let event = self.offset(at) | u16::from(self.wrap(at)) << 15;
        map.write_obj(event, GuestAddress(self.registers.device)).expect("memory");
        map.store(flags, GuestAddress(self.registers.device + 2), Ordering::Release).expect("memory");
    }
}

impl Side for PackedSide {
    fn disable_notification(&mut self, map: &GuestMemoryMmap) {
        self.ask(map, DISABLE, self.available);
    }

    fn enable_notification(&mut self, map: &GuestMemoryMmap) -> bool {
        self.ask(map, if self.event_index { DESC } else { ENABLE }, self.available);
        !self.broken && self.next_available(map).is_some()
    }

    fn can_refuse_notifications(&self) -> bool {
        true
    }

    fn take(&mut self, map: &GuestMemoryMmap) -> Vec<Chain> {
        let mut chains = Vec::new();
        while !self.broken
            && let Some(chain) = self.take_chain(map)
        {
            chains.push(chain);
        }
        chains
    }

    fn complete(&mut self, map: &GuestMemoryMmap, ids: &[u16], written: u32) {
        if let Some(last) = ids.last()
            && !self.broken
        {
            let count: usize = ids.iter().map(|id| self.forget(map, *id)).sum();
            self.use_descriptor(map, *last, written, count as u64);
        }
    }

    fn publish(&mut self, map: &GuestMemoryMmap) {
        self.hand_over(map);
    }

    fn complete_wrong(&mut self, map: &GuestMemoryMmap, id: u32) {
        if !self.broken {
            self.use_descriptor(map, id as u16, 64, 1);
            self.hand_over(map);
        }
    }

    /// Where the next used descriptor goes is one of the round after: the device has gone around the ring and on. That shows only
    /// where the driver waits for that descriptor; elsewhere it looks like a good one of the round before.
    fn jump(&mut self, map: &GuestMemoryMmap) -> Option<()> {
        while self.take_chain(map).is_some() {}
        if self.used >= self.available {
            return None;
        }
        let id = *self.lent.keys().next()?;
        self.used += u64::from(self.registers.size);
        self.use_descriptor(map, id, 64, 1);
        self.hand_over(map);
        self.broken = true;
        Some(())
    }

    fn wants_interrupt(&mut self, map: &GuestMemoryMmap) -> bool {
        let old = std::mem::replace(&mut self.told, self.used);
        if self.broken {
            return false;
        }
        let flags: u16 =
            map.load(GuestAddress(self.registers.driver + 2), Ordering::Acquire).expect("memory");
        let event: u16 = map.read_obj(GuestAddress(self.registers.driver)).expect("memory");
        match flags {
            ENABLE => self.used != old,
            DISABLE => false,
            DESC => {
                assert!(self.event_index, "an event at a descriptor was not negotiated (2.8.10)");
                let is_event = |position| {
                    (self.offset(position), self.wrap(position)) == (event & 0x7fff, event >> 15 == 1)
                };
                (old..self.used).any(is_event)
            }
            _ => panic!("event flags {flags:#x} are reserved (2.8.10)"),
        }
    }
}

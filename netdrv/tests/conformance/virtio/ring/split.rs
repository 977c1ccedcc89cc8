//! A split ring: rust-vmm's queue.

use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Chain, Part, Registers, Side};

pub(super) struct SplitSide {
    queue: Queue,
    registers: Registers,
    event_index: bool,
    /// With `VIRTIO_F_IN_ORDER`: the descriptor that the next chain must begin with.
    next_head: Option<u16>,
    /// The used index as the driver was last thought of.
    told: u16,
}

impl SplitSide {
    pub(super) fn new(registers: Registers, event_index: bool, in_order: bool) -> SplitSide {
        let mut queue = Queue::new(registers.size).expect("a size that virtio allows");
        let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
        let (low, high) = halves(registers.descriptors);
        queue.set_desc_table_address(low, high);
        let (low, high) = halves(registers.driver);
        queue.set_avail_ring_address(low, high);
        let (low, high) = halves(registers.device);
        queue.set_used_ring_address(low, high);
        queue.set_event_idx(event_index);
        queue.set_ready(true);
        let taken = [
            (queue.desc_table(), registers.descriptors),
            (queue.avail_ring(), registers.driver),
            (queue.used_ring(), registers.device),
        ];
        assert!(taken.iter().all(|(taken, given)| taken == given), "an area is not aligned");
        SplitSide { queue, registers, event_index, next_head: in_order.then_some(0), told: 0 }
    }

    /// Writes one used element by hand, and moves the index by `count`.
    fn write_used(&mut self, map: &GuestMemoryMmap, id: u32, written: u32, count: u16) {
        let at = self.queue.next_used() % self.registers.size;
        let element = self.registers.device + 4 + 8 * u64::from(at);
        map.write_obj(u64::from(id) | u64::from(written) << 32, GuestAddress(element)).expect("memory");
        self.queue.set_next_used(self.queue.next_used().wrapping_add(count));
        self.write_used_index(map, self.queue.next_used());
    }

    fn write_used_index(&self, map: &GuestMemoryMmap, index: u16) {
        map.store(index, GuestAddress(self.registers.device + 2), Ordering::Release).expect("memory");
    }
}

impl Side for SplitSide {
    fn disable_notification(&mut self, map: &GuestMemoryMmap) {
        self.queue.disable_notification(map).expect("memory");
    }

    fn enable_notification(&mut self, map: &GuestMemoryMmap) -> bool {
        self.queue.enable_notification(map).expect("memory")
    }

    fn can_refuse_notifications(&self) -> bool {
        !self.event_index
    }

    fn take(&mut self, map: &GuestMemoryMmap) -> Vec<Chain> {
        assert!(self.queue.is_valid(map), "its areas lie in DMA memory");
        let size = self.registers.size;
        let mut chains = Vec::new();
        for chain in self.queue.iter(map).expect("the available index moves by at most the ring's size") {
            let id = chain.head_index();
            let part = |part: virtio_queue::desc::split::Descriptor| Part {
                address: part.addr().0,
                len: part.len(),
                writable: part.is_write_only(),
            };
            let parts: Vec<Part> = chain.map(part).collect();
            assert!(!parts.is_empty(), "chain {id} has no buffer");
            if let Some(next) = &mut self.next_head {
                assert_eq!(id, *next, "descriptors are offered in ring order");
                *next = (*next + parts.len() as u16) % size;
            }
            chains.push(Chain { id, parts });
        }
        chains
    }

    fn complete(&mut self, map: &GuestMemoryMmap, ids: &[u16], written: u32) {
        match *ids {
            [id] => self.queue.add_used(map, id, written).map(drop).expect("memory"),
            [.., id] => self.write_used(map, id.into(), written, ids.len() as u16),
            [] => {}
        }
    }

    fn complete_wrong(&mut self, map: &GuestMemoryMmap, id: u32) {
        self.write_used(map, id, 64, 1);
    }

    /// A whole ring's worth of completions more than the driver can know of.
    fn jump(&mut self, map: &GuestMemoryMmap) -> Option<()> {
        self.write_used_index(map, self.queue.next_used().wrapping_add(self.registers.size).wrapping_add(1));
        Some(())
    }

    fn wants_interrupt(&mut self, map: &GuestMemoryMmap) -> bool {
        let old = std::mem::replace(&mut self.told, self.queue.next_used());
        let available = self.registers.driver;
        let flags: u16 = map.load(GuestAddress(available), Ordering::Relaxed).expect("memory");
        if !self.event_index {
            assert!(flags <= 1, "flags that the specification does not know: {flags:#x}");
            return flags == 0 && self.told != old;
        }
        assert_eq!(flags, 0, "with an event index the flags are 0");
        let event = available + 4 + 2 * u64::from(self.registers.size);
        let event: u16 = map.load(GuestAddress(event), Ordering::Relaxed).expect("memory");
        event.wrapping_sub(old) < self.told.wrapping_sub(old)
    }
}

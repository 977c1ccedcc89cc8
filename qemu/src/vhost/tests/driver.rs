//! The driver's side of one split ring, with nothing between a test and its bytes.

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;

/// Guest memory for one ring and its buffers.
pub(super) const STRIDE: u64 = 0x20_0000;
/// Guest memory for one buffer.
pub(super) const BUFFER: u64 = 2048;
const AVAILABLE: u64 = 0x8_0000;
const USED: u64 = 0xa_0000;
const BUFFERS: u64 = 0x10_0000;

/// A ring in guest memory, and the events of its two sides.
pub(super) struct DriverRing {
    memory: GuestMemoryMmap,
    base: u64,
    pub(super) size: u16,
    event_index: bool,
    next_available: u16,
    next_used: u16,
    /// The available index when the device was last considered for a kick.
    announced: u16,
    pub(super) free: Vec<u16>,
    pub(super) kick: EventFd,
    pub(super) call: EventFd,
}

impl DriverRing {
    pub(super) fn new(memory: GuestMemoryMmap, base: u64, size: u16, event_index: bool) -> Self {
        let [kick, call] = [(); 2].map(|()| EventFd::new(EFD_NONBLOCK).unwrap());
        let free = (0..size).rev().collect();
        let mut ring = Self {
            memory,
            base,
            size,
            event_index,
            next_available: 0,
            next_used: 0,
            announced: 0,
            free,
            kick,
            call,
        };
        ring.reset();
        ring
    }

    /// As after a reset of the card: all zero, all buffers with the driver.
    pub(super) fn reset(&mut self) {
        let zeros = vec![0; (USED - AVAILABLE) as usize];
        self.memory.write_slice(&zeros, self.available_ring()).unwrap();
        self.memory.write_slice(&zeros, self.used_ring()).unwrap();
        (self.next_available, self.next_used, self.announced) = (0, 0, 0);
        self.free = (0..self.size).rev().collect();
    }

    pub(super) fn descriptors(&self) -> GuestAddress {
        GuestAddress(self.base)
    }

    pub(super) fn available_ring(&self) -> GuestAddress {
        GuestAddress(self.base + AVAILABLE)
    }

    pub(super) fn used_ring(&self) -> GuestAddress {
        GuestAddress(self.base + USED)
    }

    /// The buffer that belongs to a descriptor.
    pub(super) fn buffer(&self, id: u16) -> GuestAddress {
        GuestAddress(self.base + BUFFERS + u64::from(id) * BUFFER)
    }

    pub(super) fn describe(&self, id: u16, address: GuestAddress, length: u32, flags: u16, next: u16) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&address.0.to_le_bytes());
        descriptor[8..12].copy_from_slice(&length.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        descriptor[14..].copy_from_slice(&next.to_le_bytes());
        self.memory.write_slice(&descriptor, GuestAddress(self.base + 16 * u64::from(id))).unwrap();
    }

    /// Makes a chain available by its head.
    pub(super) fn offer(&mut self, head: u16) {
        let slot = u64::from(self.next_available % self.size);
        let entry = GuestAddress(self.available_ring().0 + 4 + 2 * slot);
        self.memory.store(head.to_le(), entry, Ordering::Relaxed).unwrap();
        self.set_available_index(self.next_available.wrapping_add(1));
    }

    pub(super) fn set_available_index(&mut self, index: u16) {
        self.next_available = index;
        let address = GuestAddress(self.available_ring().0 + 2);
        self.memory.store(index.to_le(), address, Ordering::Release).unwrap();
    }

    /// Kicks the device if it wants to be kicked (virtio 1.2, 2.7.13.4.1); returns whether it did.
    pub(super) fn kick_if_wanted(&mut self) -> bool {
        fence(Ordering::SeqCst);
        let (new, old) = (self.next_available, std::mem::replace(&mut self.announced, self.next_available));
        let wanted = if self.event_index {
            let event = self.load(self.used_ring().0 + 4 + 8 * u64::from(self.size));
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.used_flags() == 0
        };
        if wanted {
            self.kick.write(1).unwrap();
        }
        wanted
    }

    pub(super) fn used_flags(&self) -> u16 {
        self.load(self.used_ring().0)
    }

    /// The next chain that the device gave back: its head, and how many bytes were written.
    pub(super) fn used(&mut self) -> Option<(u32, u32)> {
        let index: u16 = self.memory.load(GuestAddress(self.used_ring().0 + 2), Ordering::Acquire).unwrap();
        if u16::from_le(index) == self.next_used {
            return None;
        }
        let slot = u64::from(self.next_used % self.size);
        let entry = GuestAddress(self.used_ring().0 + 4 + 8 * slot);
        let [head, length] = self.memory.read_obj::<[u32; 2]>(entry).unwrap().map(u32::from_le);
        self.next_used = self.next_used.wrapping_add(1);
        Some((head, length))
    }

    /// Asks for an interrupt at the next used buffer.
    pub(super) fn ask_for_interrupt(&self) {
        self.store(self.available_ring().0, 0);
        self.store(self.available_ring().0 + 4 + 2 * u64::from(self.size), self.next_used);
        fence(Ordering::SeqCst);
    }

    /// Asks for none: by the flag, or by an event index that is far away.
    pub(super) fn ask_for_no_interrupt(&self) {
        self.store(self.available_ring().0, 1);
        let behind = self.next_used.wrapping_sub(1);
        self.store(self.available_ring().0 + 4 + 2 * u64::from(self.size), behind);
        fence(Ordering::SeqCst);
    }

    fn load(&self, address: u64) -> u16 {
        u16::from_le(self.memory.load(GuestAddress(address), Ordering::Relaxed).unwrap())
    }

    fn store(&self, address: u64, value: u16) {
        self.memory.store(value.to_le(), GuestAddress(address), Ordering::Relaxed).unwrap();
    }
}

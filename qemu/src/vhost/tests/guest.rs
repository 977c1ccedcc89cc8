//! A guest in the test's own process: a vhost-user frontend with a simple driver on top.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use super::driver::{BUFFER, DriverRing, STRIDE, WRITE};

/// Where the frontend has guest address 0 in its own address space, as far as the port is told.
const FRONTEND_BASE: u64 = 0x7f00_0000_0000;
/// How long anything may take before a test fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a guest does not accept of what the card offers.
#[derive(Clone, Copy, Default)]
pub(super) struct Refuses {
    pub(super) event_index: bool,
    /// Leaves the guest a driver of before virtio 1.0.
    pub(super) version_1: bool,
}

/// The guest, with its rings: receive ring `2 * pair`, transmit ring `2 * pair + 1`.
pub(super) struct Guest {
    pub(super) frontend: Frontend,
    pub(super) memory: GuestMemoryMmap,
    file: File,
    pub(super) rings: Vec<DriverRing>,
    header: usize,
}

impl Guest {
    /// Connects and starts so many queue pairs, with as many receive buffers as fit.
    pub(super) fn start(path: &Path, pairs: usize, size: u16) -> Self {
        Self::start_with(path, pairs, size, Refuses::default())
    }

    pub(super) fn start_with(path: &Path, pairs: usize, size: u16, refuses: Refuses) -> Self {
        let mut guest = Self::connect(path, pairs, size, refuses);
        for pair in 0..pairs {
            guest.start_pair(pair);
            guest.refill(pair, usize::from(size));
        }
        guest
    }

    /// Connects, negotiates and shares its memory; starts no ring.
    pub(super) fn connect(path: &Path, pairs: usize, size: u16, refuses: Refuses) -> Self {
        let bytes = STRIDE * 2 * pairs as u64;
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        let range = (GuestAddress(0), bytes as usize, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();

        let mut frontend = Frontend::connect(path, 2 * pairs as u64).unwrap();
        frontend.set_owner().unwrap();
        let offered = frontend.get_features().unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(protocol).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert!(protocol.contains(VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK));
        assert!(frontend.get_queue_num().unwrap() >= 2 * pairs as u64);
        let refused = u64::from(refuses.event_index) << VIRTIO_RING_F_EVENT_IDX
            | u64::from(refuses.version_1) << VIRTIO_F_VERSION_1;
        let accepted = offered & !refused;
        frontend.set_features(accepted).unwrap();

        let event_index = accepted & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let rings = (0..2 * pairs as u64)
            .map(|index| DriverRing::new(memory.clone(), index * STRIDE, size, event_index))
            .collect();
        let header = if accepted & 1 << VIRTIO_F_VERSION_1 != 0 { 12 } else { 10 };
        let guest = Self { frontend, memory, file, rings, header };
        guest.share_memory();
        guest
    }

    /// The one region of this guest.
    pub(super) fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: STRIDE * self.rings.len() as u64,
            userspace_addr: FRONTEND_BASE,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    pub(super) fn share_memory(&self) {
        self.frontend.set_mem_table(&[self.region()]).unwrap();
    }

    // ------------------------------------------------------------------------------------------ rings

    pub(super) fn start_pair(&mut self, pair: usize) {
        for index in [2 * pair, 2 * pair + 1] {
            self.start_ring(index, 0);
            self.frontend.set_vring_enable(index, true).unwrap();
        }
    }

    pub(super) fn start_ring(&mut self, index: usize, base: u16) {
        let ring = &self.rings[index];
        let frontend = |address: GuestAddress| FRONTEND_BASE + address.0;
        let config = VringConfigData {
            queue_max_size: ring.size,
            queue_size: ring.size,
            desc_table_addr: frontend(ring.descriptors()),
            avail_ring_addr: frontend(ring.available_ring()),
            used_ring_addr: frontend(ring.used_ring()),
            ..Default::default()
        };
        self.frontend.set_vring_num(index, ring.size).unwrap();
        self.frontend.set_vring_base(index, base).unwrap();
        self.frontend.set_vring_addr(index, &config).unwrap();
        self.frontend.set_vring_call(index, &ring.call).unwrap();
        self.frontend.set_vring_kick(index, &ring.kick).unwrap();
    }

    /// Stops both rings; returns where the port stopped.
    pub(super) fn stop_pair(&mut self, pair: usize) -> [u32; 2] {
        [2 * pair, 2 * pair + 1].map(|index| self.frontend.get_vring_base(index).unwrap())
    }

    // ------------------------------------------------------------------------------------------ frames

    /// Gives the port up to `count` receive buffers.
    pub(super) fn refill(&mut self, pair: usize, count: usize) {
        let ring = &mut self.rings[2 * pair];
        for _ in 0..count.min(ring.free.len()) {
            let id = ring.free.pop().unwrap();
            ring.describe(id, ring.buffer(id), BUFFER as u32, WRITE, 0);
            ring.offer(id);
        }
        ring.kick_if_wanted();
    }

    /// Takes a frame off a receive ring, if there is one, and checks its header.
    pub(super) fn receive(&mut self, pair: usize) -> Option<Vec<u8>> {
        let ring = &mut self.rings[2 * pair];
        let (id, length) = ring.used()?;
        let id = u16::try_from(id).unwrap();
        let mut bytes = vec![0; length as usize];
        self.memory.read_slice(&mut bytes, ring.buffer(id)).unwrap();
        ring.free.push(id);
        let frame = bytes.split_off(self.header);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0][..self.header], "the header of a plain frame");
        Some(frame)
    }

    /// Puts a frame on a transmit ring; `false` when the ring is full.
    pub(super) fn send(&mut self, pair: usize, frame: &[u8]) -> bool {
        let header = self.header;
        let ring = &mut self.rings[2 * pair + 1];
        while let Some((id, _)) = ring.used() {
            ring.free.push(u16::try_from(id).unwrap());
        }
        let Some(id) = ring.free.pop() else { return false };
        let bytes = [&[0; 12][..header], frame].concat();
        self.memory.write_slice(&bytes, ring.buffer(id)).unwrap();
        ring.describe(id, ring.buffer(id), bytes.len() as u32, 0, 0);
        ring.offer(id);
        true
    }

    /// Tells the port of what was sent, if it wants to know.
    pub(super) fn kick(&mut self, pair: usize) -> bool {
        self.rings[2 * pair + 1].kick_if_wanted()
    }

    /// Waits for a frame.
    pub(super) fn expect(&mut self, pair: usize) -> Vec<u8> {
        eventually(|| self.receive(pair))
    }

    /// Reflects whatever comes on any queue to the same queue, until `done`.
    pub(super) fn reflect_until(&mut self, mut done: impl FnMut() -> bool) {
        let pairs = self.rings.len() / 2;
        eventually(|| {
            for pair in 0..pairs {
                while let Some(frame) = self.receive(pair) {
                    eventually(|| self.send(pair, &frame).then_some(()));
                }
                self.kick(pair);
                self.refill(pair, usize::MAX);
            }
            done().then_some(())
        });
    }
}

/// Asks until there is an answer.
pub(super) fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

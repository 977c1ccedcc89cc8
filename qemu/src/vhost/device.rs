//! The card behind the socket: what it offers, and what the frontend has set up.
//!
//! Sections in quotes are those of the vhost-user specification (QEMU, `docs/interop/vhost-user.rst`).

use std::fs::File;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use virtio_bindings::bindings::virtio_config::{VIRTIO_F_IN_ORDER, VIRTIO_F_VERSION_1};
use virtio_bindings::bindings::virtio_net::VIRTIO_NET_F_MQ;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use super::counts::Faults;
use super::memory::Memory;
use super::ring::Ring;
use super::{Feature, TrafficConfig};

/// The most queue pairs: a message names a ring by one byte ("Vring descriptor indices").
pub(crate) const MAX_QUEUE_PAIRS: u16 = 128;
/// The most regions of memory, as many as vhost in Linux takes with its default limits and more than QEMU has.
const MAX_MEMORY_SLOTS: u64 = 509;

/// `struct virtio_net_hdr` with `num_buffers`, the only field that is ever set (virtio 1.2, 5.1.6.4.1); a driver of
/// before virtio 1.0 knows the first [`LEGACY_HEADER`] bytes only.
pub(super) const HEADER: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
pub(super) const LEGACY_HEADER: usize = 10;

/// The card.
pub(super) struct Device {
    offered: u64,
    accepted: u64,
    memory: Memory,
    /// Receive ring `2 * pair`, transmit ring `2 * pair + 1` (virtio 1.2, 5.1.2).
    rings: Vec<Ring>,
    pub(super) faults: Faults,
}

/// One direction of a queue pair, from the guest's view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Receive,
    Transmit,
}

impl Device {
    pub(super) fn new(config: &TrafficConfig) -> Self {
        let pairs = usize::from(config.queue_pairs);
        let offered = config.features.iter().fold(always_offered(pairs), |all, feature| all | feature.bit());
        let rings = (0..2 * pairs).map(|_| Ring::new()).collect();
        Self { offered, accepted: 0, memory: Memory::default(), rings, faults: Faults::default() }
    }

    pub(super) fn pairs(&self) -> usize {
        self.rings.len() / 2
    }

    /// Whether the frontend has said which of the features the guest accepts.
    pub(super) fn has_accepted_features(&self) -> bool {
        self.accepted != 0
    }

    /// The length of the header before each frame.
    pub(super) fn header_length(&self) -> usize {
        if self.accepted & bit(VIRTIO_F_VERSION_1) != 0 { HEADER.len() } else { LEGACY_HEADER }
    }

    /// The ring with its memory, if frames may move through it now.
    pub(super) fn running(
        &mut self,
        pair: usize,
        direction: Direction,
    ) -> Option<(&mut Ring, &vm_memory::GuestMemoryMmap)> {
        let ring = self.rings.get_mut(2 * pair + direction as usize)?;
        let memory = self.memory.guest();
        match ring.is_running(memory) {
            Ok(true) => Some((ring, memory)),
            Ok(false) => None,
            Err(fault) => {
                self.faults.record(fault);
                None
            }
        }
    }

    /// The file that says that the guest has done something with a ring.
    pub(super) fn kick(&self, pair: usize, direction: Direction) -> Option<&File> {
        self.rings.get(2 * pair + direction as usize)?.kick()
    }

    /// How many pairs can move frames both ways.
    pub(super) fn running_pairs(&mut self) -> usize {
        (0..self.pairs())
            .filter(|&pair| {
                self.running(pair, Direction::Receive).is_some()
                    && self.running(pair, Direction::Transmit).is_some()
            })
            .count()
    }

    /// The frontend has gone, and all that it had set up.
    pub(super) fn forget_frontend(&mut self) {
        self.accepted = 0;
        self.memory = Memory::default();
        self.rings.fill_with(Ring::new);
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    fn memory_changed(&mut self) {
        self.rings.iter_mut().for_each(Ring::check_again);
    }
}

impl Feature {
    fn bit(self) -> u64 {
        match self {
            Self::EventIndex => bit(VIRTIO_RING_F_EVENT_IDX),
            Self::InOrder => bit(VIRTIO_F_IN_ORDER),
        }
    }
}

fn bit(number: u32) -> u64 {
    1 << number
}

fn always_offered(pairs: usize) -> u64 {
    let multiqueue = if pairs > 1 { bit(VIRTIO_NET_F_MQ) } else { 0 };
    bit(VIRTIO_F_VERSION_1) | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | multiqueue
}

fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("the traffic port has not offered this"))
}

impl VhostUserBackendReqHandlerMut for Device {
    // ------------------------------------------------------------------------------------------ negotiation

    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.forget_frontend();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offered != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.accepted = features;
        let event_index = features & Feature::EventIndex.bit() != 0;
        self.rings.iter_mut().for_each(|ring| ring.set_event_index(event_index));
        // "Ring states": without protocol features rings are enabled from the start.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            self.rings.iter_mut().for_each(|ring| ring.set_enabled(true));
        }
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.rings.len() as u64)
    }

    // ------------------------------------------------------------------------------------------ memory

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_MEMORY_SLOTS)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.memory.replace(regions, files)?;
        self.memory_changed();
        Ok(None)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        self.memory.add(region, file)?;
        self.memory_changed();
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.memory.remove(region);
        self.memory_changed();
        Ok(())
    }

    // ------------------------------------------------------------------------------------------ rings

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.ring(index)?.set_size(num).ok_or(Error::InvalidParam)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let memory = &self.memory;
        let descriptors = memory.translate(descriptor)?;
        let available = memory.translate(available)?;
        let used = memory.translate(used)?;
        self.ring(index)?.set_addresses(descriptors, available, used).ok_or(Error::InvalidParam)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.set_base(base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.ring(index)?.stop();
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(u32::from(index))?.start(file);
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(u32::from(index))?.set_call(file);
        Ok(())
    }

    /// Errors are counted here; the frontend hears of none.
    fn set_vring_err(&mut self, _index: u8, _file: Option<File>) -> Result<()> {
        Ok(())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.set_enabled(enable);
        Ok(())
    }

    // ------------------------------------------------------------------------------------------ not offered

    fn reset_device(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        not_offered()
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        not_offered()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_offered()
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        not_offered()
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_offered()
    }
}

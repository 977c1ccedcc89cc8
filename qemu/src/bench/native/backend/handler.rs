//! One card: what a frontend sets up by messages, and the two rings of its queue pair.

#![allow(unsafe_code)] // Makes rings and buffers of addresses that were checked against the shared memory.

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
use virtio_bindings::bindings::virtio_config::{VIRTIO_F_IN_ORDER, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1};

use super::super::frames::{Expected, HEADER_LEN, Seen, TOUCHED};
use super::table::Table;
use super::{fetch_to_read, fetch_to_write, read_head, write_head};
use crate::bench::ring::{Areas, Layout, Ring};

/// Receive and transmit queue of one pair.
const QUEUES: usize = 2;
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
/// Both wrap counters of a packed ring are one at the start (vhost-user, "Vring state description").
const PACKED_BASE: u32 = 0x8000;

/// One card.
#[derive(Default)]
pub(super) struct Card {
    accepted: u64,
    table: Table,
    queues: [Queue; QUEUES],
    /// Frames given so far.
    number: u64,
    /// What came out, where it is looked at.
    pub(super) seen: Seen,
}

#[derive(Default)]
struct Queue {
    areas: Areas,
    started: bool,
    enabled: bool,
    ring: Option<Ring>,
}

impl Card {
    pub(super) fn is_running(&self) -> bool {
        self.queues.iter().all(|queue| queue.ring.is_some())
    }

    pub(super) fn forget_frontend(&mut self) {
        (self.accepted, self.table, self.queues) = Default::default();
    }

    /// Gives frames of `len` bytes for the buffers that there are, `most` at most.
    #[inline(always)]
    pub(super) fn give(&mut self, most: usize, len: usize) -> usize {
        let Card { table, queues, number, .. } = self;
        let Some(ring) = &mut queues[RECEIVE].ring else { return 0 };
        ring.survey(most, |address| table.buffer(address, TOUCHED).into_iter().for_each(fetch_to_write));
        ring.consume(most, (HEADER_LEN + len) as u32, |address| {
            if let Some(buffer) = table.buffer(address, TOUCHED) {
                // SAFETY: the buffer lies in shared memory and was given to be written.
                unsafe { write_head(buffer, *number) };
            }
            *number += 1;
        })
    }

    /// Takes what is sent, `most` at most, and reads it.
    #[inline(always)]
    pub(super) fn take(&mut self, most: usize) -> usize {
        self.transmitted(most, |head, _| {
            std::hint::black_box(head);
        })
    }

    /// Takes what is sent, `most` at most, and sees whether it is what it should be.
    #[inline(always)]
    pub(super) fn check(&mut self, most: usize, expected: Expected) -> usize {
        self.transmitted(most, |head, seen| seen.look(head, expected))
    }

    #[inline(always)]
    fn transmitted(&mut self, most: usize, mut look: impl FnMut(&[u8; TOUCHED], &mut Seen)) -> usize {
        let Card { table, queues, seen, .. } = self;
        let Some(ring) = &mut queues[TRANSMIT].ring else { return 0 };
        ring.survey(most, |address| table.buffer(address, TOUCHED).into_iter().for_each(fetch_to_read));
        ring.consume(most, 0, |address| {
            if let Some(buffer) = table.buffer(address, TOUCHED) {
                // SAFETY: the buffer lies in shared memory and was given to be read.
                look(&unsafe { read_head(buffer) }, seen);
            }
        })
    }

    fn layout(&self) -> Layout {
        if self.accepted & bit(VIRTIO_F_RING_PACKED) != 0 { Layout::Packed } else { Layout::Split }
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue> {
        self.queues.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// Starts the rings that may move frames, and stops the others.
    fn settle(&mut self) {
        let layout = self.layout();
        for queue in &mut self.queues {
            let is_complete = queue.started && queue.enabled && queue.areas.size > 0;
            if !is_complete {
                queue.ring = None;
            } else if queue.ring.is_none() {
                // SAFETY: the areas lie in memory that the frontend shares, as was checked when it named them; it
                // stays mapped until the rings are stopped.
                queue.ring = Some(unsafe { Ring::new(layout, queue.areas) });
            }
        }
    }
}

fn bit(number: u32) -> u64 {
    1 << number
}

fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("the benchmark's card has not offered this"))
}

impl VhostUserBackendReqHandlerMut for Card {
    // ------------------------------------------------------------------------------------------ negotiation

    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.forget_frontend();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        let virtio = [VIRTIO_F_VERSION_1, VIRTIO_F_IN_ORDER, VIRTIO_F_RING_PACKED];
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        Ok(virtio.into_iter().fold(protocol, |all, number| all | bit(number)))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        self.accepted = features;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES as u64)
    }

    // ------------------------------------------------------------------------------------------ memory

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        // Rings lie in the memory that goes; they have to be named again.
        self.queues
            .iter_mut()
            .for_each(|queue| *queue = Queue { enabled: queue.enabled, ..Queue::default() });
        self.table = Table::map(regions, files)?;
        Ok(None)
    }

    // ------------------------------------------------------------------------------------------ rings

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        if !num.is_power_of_two() || num > 1 << 15 {
            return Err(Error::InvalidParam);
        }
        self.queue(index)?.areas.size = num as usize;
        Ok(())
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
        let size = self.queue(index)?.areas.size;
        let (driver_len, device_len) = match self.layout() {
            Layout::Split => (4 + 2 * size, 4 + 8 * size),
            Layout::Packed => (4, 4),
        };
        let descriptors = self.table.ring(descriptor, 16 * size)?;
        let driver = self.table.ring(available, driver_len)?;
        let device = self.table.ring(used, device_len)?;
        self.queue(index)?.areas = Areas { size, descriptors, driver, device };
        Ok(())
    }

    /// Rings start from the beginning: nobody who is measured moves elsewhere with rings in use.
    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.queue(index)?;
        if base & !PACKED_BASE == 0 { Ok(()) } else { Err(Error::InvalidParam) }
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.queue(index)?.started = false;
        self.settle();
        Ok(VhostUserVringState::new(index, 0))
    }

    fn set_vring_kick(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.queue(u32::from(index))?.started = true;
        self.settle();
        Ok(())
    }

    fn set_vring_call(&mut self, _index: u8, _file: Option<File>) -> Result<()> {
        Ok(())
    }

    fn set_vring_err(&mut self, _index: u8, _file: Option<File>) -> Result<()> {
        Ok(())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.enabled = enable;
        self.settle();
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

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered()
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        not_offered()
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered()
    }
}

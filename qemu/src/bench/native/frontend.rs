//! A virtio-net device behind a vhost-user socket, as the driver sees it: registers become messages.

use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use netdrv::virtio::{Doorbell, Features, NetTransport, VirtioError};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use vhost::vhost_user::message::{
    VhostUserProtocolFeatures, VhostUserVirtioFeatures, VhostUserVringAddrFlags,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_drivers::PhysAddr;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::memory::{Arena, silent_doorbell};

/// Queues of one pair.
const QUEUES: u16 = 2;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
/// Both wrap counters of a packed ring are one at the start (vhost-user, "Vring state description").
const PACKED_BASE: u16 = 0x8000;

/// The device: one queue pair.
pub(super) struct VhostNet {
    frontend: Frontend,
    backend: Pid,
    /// Feature bits that the backend offers and the driver may see.
    offered: u64,
    accepted: u64,
    status: Cell<DeviceStatus>,
    enabled: [bool; QUEUES as usize],
    /// Nobody waits for these, but a backend wants one of each for every ring.
    events: Vec<EventFd>,
}

impl VhostNet {
    /// Connects to the backend that listens at `socket` and shares the memory of [`SharedHal`](super::memory::SharedHal)
    /// with it. The driver sees those of `features` that the backend offers.
    ///
    /// # Errors
    /// When there is no backend, or it does not speak as it should.
    pub(super) fn connect(socket: &Path, features: u64) -> Result<Self> {
        let stream =
            UnixStream::connect(socket).with_context(|| format!("no backend at {}", socket.display()))?;
        let backend = Pid::from_raw(getsockopt(&stream, PeerCredentials)?.pid());
        let mut frontend = Frontend::from_stream(stream, QUEUES.into());
        frontend.set_owner()?;
        let offered = frontend.get_features()?;
        ensure!(offered & PROTOCOL_FEATURES != 0, "the backend negotiates no protocol features");
        frontend.get_protocol_features()?;
        frontend.set_protocol_features(VhostUserProtocolFeatures::empty())?;
        let arena = Arena::get()?;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: arena.address(),
            memory_size: arena.len() as u64,
            userspace_addr: arena.address(),
            mmap_offset: 0,
            mmap_handle: arena.file().as_raw_fd(),
        };
        frontend.set_mem_table(&[region]).context("sharing the memory")?;
        let events = (0..2 * QUEUES).map(|_| EventFd::new(0)).collect::<Result<_, _>>()?;
        Ok(Self {
            frontend,
            backend,
            offered: offered & features,
            accepted: 0,
            status: Cell::new(DeviceStatus::empty()),
            enabled: [false; QUEUES as usize],
            events,
        })
    }

    /// The backend's process.
    pub(super) fn backend(&self) -> Pid {
        self.backend
    }

    fn set_up(&mut self, queue: u16, size: u32, addresses: [PhysAddr; 3]) -> Result<()> {
        let index = usize::from(queue);
        let base = if self.accepted & Features::RING_PACKED.bits() == 0 { 0 } else { PACKED_BASE };
        let [descriptors, driver, device] = addresses;
        let ring = VringConfigData {
            queue_max_size: size as u16,
            queue_size: size as u16,
            flags: VhostUserVringAddrFlags::empty().bits(),
            desc_table_addr: descriptors,
            used_ring_addr: device,
            avail_ring_addr: driver,
            log_addr: None,
        };
        self.frontend.set_vring_num(index, size as u16)?;
        self.frontend.set_vring_base(index, base)?;
        self.frontend.set_vring_addr(index, &ring)?;
        self.frontend.set_vring_call(index, &self.events[2 * index])?;
        self.frontend.set_vring_kick(index, &self.events[2 * index + 1])?;
        Ok(())
    }

    fn enable(&mut self) -> Result<()> {
        for index in 0..usize::from(QUEUES) {
            self.frontend.set_vring_enable(index, true)?;
        }
        Ok(())
    }

    /// The backend lets go of both rings.
    fn halt(&mut self) -> Result<()> {
        for index in 0..usize::from(QUEUES) {
            if self.enabled[index] {
                self.frontend.get_vring_base(index)?;
                self.enabled[index] = false;
            }
        }
        Ok(())
    }
}

impl Transport for VhostNet {
    fn device_type(&self) -> DeviceType {
        DeviceType::Network
    }

    fn read_device_features(&mut self) -> u64 {
        self.offered
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.accepted = driver_features;
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        if queue < QUEUES { 1 << 15 } else { 0 }
    }

    fn notify(&mut self, _queue: u16) {}

    fn get_status(&self) -> DeviceStatus {
        self.status.get()
    }

    /// A message that fails leaves the status as it was: the driver takes that for a refusal.
    fn set_status(&mut self, status: DeviceStatus) {
        let new = status - self.status.get();
        let outcome = match status {
            _ if status == DeviceStatus::empty() => self.halt(),
            _ if new == DeviceStatus::FEATURES_OK => {
                self.frontend.set_features(self.accepted | PROTOCOL_FEATURES).map_err(Into::into)
            }
            _ if new == DeviceStatus::DRIVER_OK => self.enable(),
            _ => Ok(()),
        };
        match outcome {
            Ok(()) => self.status.set(status),
            Err(error) => log::error!("vhost-user: {error:#}"),
        }
    }

    fn set_guest_page_size(&mut self, _guest_page_size: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        false
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver_area: PhysAddr,
        device_area: PhysAddr,
    ) {
        match self.set_up(queue, size, [descriptors, driver_area, device_area]) {
            Ok(()) => self.enabled[usize::from(queue)] = true,
            Err(error) => log::error!("vhost-user: queue {queue}: {error:#}"),
        }
    }

    fn queue_unset(&mut self, _queue: u16) {}

    fn queue_used(&mut self, queue: u16) -> bool {
        self.enabled[usize::from(queue)]
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }

    fn read_config_generation(&self) -> u32 {
        0
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, _offset: usize) -> virtio_drivers::Result<T> {
        Err(virtio_drivers::Error::ConfigSpaceMissing)
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        _offset: usize,
        _value: T,
    ) -> virtio_drivers::Result<()> {
        Err(virtio_drivers::Error::ConfigSpaceMissing)
    }
}

impl NetTransport for VhostNet {
    type Base = Self;

    fn base(&self) -> &Self {
        self
    }

    fn base_mut(&mut self) -> &mut Self {
        self
    }

    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError> {
        Ok(Doorbell::new(silent_doorbell(), queue))
    }

    fn identity(&self) -> u32 {
        1
    }
}

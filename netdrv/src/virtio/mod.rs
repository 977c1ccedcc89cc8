//! virtio-net: negotiation, queues, control (virtio 1.2, sections 3.1 and 5.1).
//!
//! The driver wants little: frames in, frames out, nothing computed for it. One descriptor holds one frame,
//! headed by 12 bytes that lie in the buffer's headroom; notifications go out only when the device asks; it
//! is never asked for interrupts. `rx.rs` and `tx.rs` move packets, `ring.rs` keeps them while the device has
//! them, `virtqueue.rs` is what they lie in, and `split.rs` and `packed.rs` are the two layouts of it in memory.

mod config;
mod control;
mod error;
mod features;
mod order;
mod packed;
mod pci;
mod registers;
mod ring;
mod rx;
mod split;
mod transport;
mod tx;
mod virtqueue;

use alloc::vec::Vec;

use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};

use self::config::{DeviceConfig, ETHERNET_OVERHEAD};
use self::control::{CONTROL_RING, ControlError, ControlQueue};
use self::ring::Fault;
use self::virtqueue::AnyQueue;
use crate::device::{DeviceFault, Link, Mac, NetDevice, QueueShape, QueueWish, Queues, Quiesced};
use crate::hal::Hal;
use crate::packet::BUFFER_SIZE;
use crate::pool::Pool;

pub use self::error::VirtioError;
pub use self::features::Features;
pub use self::pci::{PciFault, PciNet, Structure};
pub use self::rx::VirtioRx;
pub use self::transport::{Doorbell, NetTransport};
pub use self::tx::VirtioTx;

/// Bytes of `struct virtio_net_hdr` before a frame, without hash report (5.1.6).
pub const HEADER_LEN: usize = 12;

/// The smallest and largest rings that the driver makes.
const MIN_RING: u32 = 8;
const MAX_RING: usize = 4096;
/// How long the device may take to confirm a reset.
const RESET_PATIENCE_NS: u64 = 1_000_000_000;
/// The first bytes of an address for a device that has none: locally administered, individual.
const LOCAL_MAC_PREFIX: [u8; 2] = [0x02, 0x53];

/// Finds a virtio-net device in a PCI function and sets it up.
///
/// # Errors
/// See [`VirtioError`]; the device is left reset.
pub fn probe<H: Hal, C: ConfigurationAccess + Clone>(
    access: C,
    function: DeviceFunction,
    wish: QueueWish,
) -> Result<VirtioNet<PciNet>, VirtioError> {
    VirtioNet::new::<H>(PciNet::new::<H, C>(access, function)?, wish)
}

/// One virtio-net device.
pub struct VirtioNet<T: NetTransport> {
    transport: T,
    clock: fn() -> u64,
    status: DeviceStatus,
    features: Features,
    config: DeviceConfig,
    control: Option<ControlQueue>,
    /// Queues that are set up and not handed out. Those that the device then would not use stay here until
    /// the reset.
    rx: Vec<VirtioRx>,
    tx: Vec<VirtioTx>,
    /// How many pairs the device uses, and their rings.
    shape: QueueShape,
    taken: bool,
    /// Receive queues that can interrupt: all of these, from queue 0 on.
    interrupts: usize,
    faults: Vec<Fault>,
    quiesced: Quiesced,
}

impl<T: NetTransport> VirtioNet<T> {
    /// Sets up the device behind `transport` with as many of the wished queues as it gives. It receives
    /// nothing until the queues are taken.
    ///
    /// # Errors
    /// See [`VirtioError`]; the device is left reset.
    pub fn new<H: Hal>(transport: T, wish: QueueWish) -> Result<Self, VirtioError> {
        let mut device = VirtioNet {
            transport,
            clock: H::now_ns,
            status: DeviceStatus::empty(),
            features: Features::empty(),
            config: DeviceConfig::default(),
            control: None,
            rx: Vec::new(),
            tx: Vec::new(),
            shape: QueueShape { rx: 0, tx: 0, rx_ring: MAX_RING, tx_ring: MAX_RING },
            taken: false,
            interrupts: 0,
            faults: Vec::new(),
            quiesced: Quiesced::default(),
        };
        match device.bring_up::<H>(wish) {
            Ok(()) => Ok(device),
            Err(error) => {
                if device.status != DeviceStatus::empty() {
                    device.add_status(DeviceStatus::FAILED);
                }
                Err(error) // Dropping the device resets it.
            }
        }
    }

    /// The features that driver and device agreed on.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Device initialisation in the order of section 3.1.1.
    fn bring_up<H: Hal>(&mut self, wish: QueueWish) -> Result<(), VirtioError> {
        if self.transport.base().device_type() != DeviceType::Network {
            return Err(VirtioError::NotNetwork);
        }
        self.reset()?;
        self.add_status(DeviceStatus::ACKNOWLEDGE);
        self.add_status(DeviceStatus::DRIVER);
        self.negotiate(wish.pairs.max(1))?;
        self.create_queues::<H>(wish)?;
        self.add_status(DeviceStatus::DRIVER_OK);
        self.command();
        Ok(())
    }

    /// Step 1: the device forgets everything, and says when it has (2.4.1).
    fn reset(&mut self) -> Result<(), VirtioError> {
        self.transport.base_mut().set_status(DeviceStatus::empty());
        let started = (self.clock)();
        while self.transport.base().get_status() != DeviceStatus::empty() {
            if (self.clock)().wrapping_sub(started) > RESET_PATIENCE_NS {
                return Err(VirtioError::ResetTimeout);
            }
            core::hint::spin_loop();
        }
        self.status = DeviceStatus::empty();
        Ok(())
    }

    fn add_status(&mut self, bit: DeviceStatus) {
        self.status |= bit;
        self.transport.base_mut().set_status(self.status);
    }

    /// Steps 4 to 6: a subset of what is offered, and the device's word that it can work with that.
    fn negotiate(&mut self, pairs: usize) -> Result<(), VirtioError> {
        let offered = Features::from_bits_truncate(self.transport.base_mut().read_device_features());
        if !offered.contains(Features::VERSION_1) {
            return Err(VirtioError::Legacy);
        }
        self.config = DeviceConfig::read(self.transport.base(), offered)?;
        self.features = Features::choose(offered, &self.config, pairs);
        self.transport.base_mut().write_driver_features(self.features.bits());
        self.add_status(DeviceStatus::FEATURES_OK);
        if !self.transport.base().get_status().contains(DeviceStatus::FEATURES_OK) {
            self.status.remove(DeviceStatus::FEATURES_OK);
            return Err(VirtioError::FeaturesRefused(self.features));
        }
        log::debug!("virtio-net: {:?}", self.features);
        Ok(())
    }

    /// Step 7: receive queues are even, transmit queues odd, and the control queue comes after all pairs that
    /// the device has, used or not (5.1.2).
    fn create_queues<H: Hal>(&mut self, wish: QueueWish) -> Result<(), VirtioError> {
        let has_pairs = self.features.intersects(Features::MQ | Features::RSS);
        let device_pairs = self.config.usable_pairs().filter(|_| has_pairs).unwrap_or(1);
        let wanted = wish.pairs.clamp(1, usize::from(device_pairs)) as u16;
        for pair in 0..wanted {
            match self.create_pair::<H>(pair, wish) {
                Ok(()) => {}
                // The device has fewer queues than it said.
                Err(VirtioError::QueueTooSmall { .. }) if pair > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if self.features.contains(Features::CTRL_VQ) {
            let index = 2 * device_pairs;
            ring_size(&mut self.transport, index, usize::from(CONTROL_RING), u32::from(CONTROL_RING))?;
            let control =
                ControlQueue::create::<H>(&mut self.transport, index, self.features, &self.quiesced)?;
            self.control = Some(control);
        }
        Ok(())
    }

    fn create_pair<H: Hal>(&mut self, pair: u16, wish: QueueWish) -> Result<(), VirtioError> {
        let (rx, tx) = (2 * pair, 2 * pair + 1);
        let rx_ring = ring_size(&mut self.transport, rx, wish.ring, MIN_RING)?;
        let tx_ring = ring_size(&mut self.transport, tx, wish.ring, MIN_RING)?;
        let all_before_can = self.interrupts == usize::from(pair);
        if all_before_can && pair < wish.interrupts && self.transport.set_vector(rx, pair) {
            self.interrupts += 1;
        }
        let (features, quiesced) = (self.features, &self.quiesced);
        let queue = AnyQueue::create::<H>(&mut self.transport, rx, rx_ring, features, quiesced)?;
        let fault = Fault::default();
        self.rx.push(VirtioRx::new(queue, features, fault.clone(), quiesced.clone()));
        self.faults.push(fault);
        let queue = AnyQueue::create::<H>(&mut self.transport, tx, tx_ring, features, quiesced)?;
        let fault = Fault::default();
        self.tx.push(VirtioTx::new(queue, features, self.max_frame(), fault.clone(), quiesced.clone()));
        self.faults.push(fault);
        self.shape.rx_ring = self.shape.rx_ring.min(usize::from(rx_ring));
        self.shape.tx_ring = self.shape.tx_ring.min(usize::from(tx_ring));
        Ok(())
    }

    /// The longest frame that may be sent: a negotiated MTU binds us too (5.1.4.2).
    fn max_frame(&self) -> usize {
        match self.features.contains(Features::MTU) {
            true => usize::from(self.config.mtu() + ETHERNET_OVERHEAD),
            false => BUFFER_SIZE,
        }
    }

    /// Step 8 is done, and the device takes commands: every frame is to come in, and all pairs are to be
    /// used. A device that will not is used as it is.
    fn command(&mut self) {
        if self.features.contains(Features::CTRL_RX)
            && let Some(Err(error)) = self.control.as_mut().map(ControlQueue::receive_all)
        {
            log::warn!("virtio-net: promiscuous mode: {error}");
        }
        let pairs = self.tx.len();
        let mut used = pairs;
        if pairs > 1
            && let Err(error) = self.use_pairs(pairs as u16)
        {
            log::warn!("virtio-net: {pairs} queue pairs: {error}; 1 is used");
            used = 1;
        }
        (self.shape.rx, self.shape.tx) = (used, used);
    }

    /// Spreads flows over `pairs` pairs, by our own hash if the device can.
    fn use_pairs(&mut self, pairs: u16) -> Result<(), ControlError> {
        let control = self.control.as_mut().ok_or(ControlError::Refused)?;
        let mut result = Err(ControlError::Refused);
        if self.features.contains(Features::RSS)
            && let Some(limits) = self.config.usable_rss()
        {
            result = control.set_rss(&limits, pairs);
        }
        if result.is_err() && self.features.contains(Features::MQ) {
            result = control.set_pairs(pairs);
        }
        result
    }
}

impl<T: NetTransport> NetDevice for VirtioNet<T> {
    type Rx = VirtioRx;
    type Tx = VirtioTx;

    fn driver(&self) -> &'static str {
        "virtio-net"
    }

    fn mac(&self) -> Mac {
        self.config.usable_mac().unwrap_or_else(|| {
            let [prefix, brand] = LOCAL_MAC_PREFIX;
            let [a, b, c, d] = self.transport.identity().to_be_bytes();
            Mac([prefix, brand, a, b, c, d])
        })
    }

    /// Without a status field the link counts as up (5.1.4.2). A device that is stopped, or whose status
    /// can't be read, has none.
    fn link(&self) -> Link {
        let live = self.status.contains(DeviceStatus::DRIVER_OK);
        let has_status = self.features.contains(Features::STATUS);
        match live && (!has_status || config::link_is_up(self.transport.base()).unwrap_or(false)) {
            true => Link::Up,
            false => Link::Down,
        }
    }

    fn mtu(&self) -> u16 {
        self.config.mtu()
    }

    fn shape(&self) -> QueueShape {
        self.shape
    }

    fn rx_interrupts(&self) -> usize {
        self.interrupts.min(self.shape.rx)
    }

    fn take_queues(&mut self, pool: &'static Pool) -> Option<Queues<VirtioRx, VirtioTx>> {
        if self.taken || !self.status.contains(DeviceStatus::DRIVER_OK) {
            return None;
        }
        self.taken = true;
        let mut rx: Vec<VirtioRx> = self.rx.drain(..self.shape.rx).collect();
        let tx = self.tx.drain(..self.shape.tx).collect();
        let mut cache = pool.cache();
        rx.iter_mut().for_each(|queue| queue.fill(&mut cache));
        Some(Queues { rx, tx })
    }

    fn fault(&self) -> Option<DeviceFault> {
        if self.transport.base().get_status().contains(DeviceStatus::DEVICE_NEEDS_RESET) {
            return Some(DeviceFault::NeedsReset);
        }
        let queue = self.faults.iter().position(Fault::is_raised)?;
        Some(DeviceFault::BrokenRing { queue })
    }

    fn stop(&mut self) {
        if self.status == DeviceStatus::empty() {
            return;
        }
        match self.reset() {
            Ok(()) => self.quiesced.confirm(),
            Err(error) => log::error!("virtio-net: {error}; its buffers are lost"),
        }
    }
}

impl<T: NetTransport> Drop for VirtioNet<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The largest ring that wish and device allow: a power of two of at least `least` descriptors (2.7).
fn ring_size<T: NetTransport>(
    transport: &mut T,
    queue: u16,
    wish: usize,
    least: u32,
) -> Result<u16, VirtioError> {
    let size = transport.base_mut().max_queue_size(queue);
    let most = size.min(MAX_RING as u32).min(u32::try_from(wish).unwrap_or(u32::MAX));
    match most.checked_ilog2().map(|log| 1 << log) {
        Some(ring) if u32::from(ring) >= least => Ok(ring),
        _ => Err(VirtioError::QueueTooSmall { queue, size }),
    }
}

//! A card that costs next to nothing: a virtio-net device with one queue pair in plain memory, worked by the threads
//! that use its driver. What is measured before it is the driver and the forwarder, as shipped.
//!
//! It gives frames without end, as many as are asked for at a time, and is done with what is sent as soon as it is told. Of
//! a frame it writes the addresses, and reads nothing. It wants no notifications.

#![allow(unsafe_code)] // The device's side of the rings: it follows addresses that the driver wrote.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, anyhow};
use netdrv::device::{NetDevice, QueueWish, Queues, RxDrops, RxQueue, TxQueue};
use netdrv::mmio::Window;
use netdrv::packet::Burst;
use netdrv::pool::{Pool, PoolCache};
use netdrv::process::ProcessHal;
use netdrv::virtio::{
    Doorbell, Features, HEADER_LEN, NetTransport, VirtioError, VirtioNet, VirtioRx, VirtioTx,
};
use virtio_drivers::PhysAddr;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::measure::Recorder;

/// Bytes of every frame, without CRC.
pub(super) const FRAME_LEN: usize = 64;
/// Where every frame comes from and goes to, and what it is.
const ADDRESSES: [u8; 16] = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0";
/// `VIRTQ_USED_F_NO_NOTIFY`: no notifications, please.
const NO_NOTIFY: u16 = 1;

/// The driver over such a card, and its queues with the device's side of them.
pub(super) struct NullCard {
    driver: VirtioNet<NullTransport>,
    transport: NullTransport,
}

impl NullCard {
    /// A card with rings of `ring` descriptors.
    ///
    /// # Errors
    /// When the driver refuses it.
    pub(super) fn new(ring: usize) -> Result<NullCard> {
        let transport = NullTransport::default();
        let driver = VirtioNet::new::<ProcessHal>(
            transport.clone(),
            QueueWish { pairs: 1, ring, interrupts: 0, tx_needed: 0 },
        );
        Ok(NullCard { driver: driver.map_err(|error| anyhow!("{error}"))?, transport })
    }

    /// The queues; what is received goes into `recorder`.
    ///
    /// # Errors
    /// When they were taken before.
    pub(super) fn take_queues(
        &mut self,
        pool: &'static Pool,
        recorder: Recorder,
    ) -> Result<(NullRx, NullTx)> {
        let Queues { mut rx, mut tx } = self.driver.take_queues(pool).context("the queues are taken once")?;
        let (rx, tx) = (rx.remove(0), tx.remove(0));
        let state = self.transport.state();
        let ring = |index: usize| state.queues[index].map(Ring::new).context("the driver set the queue up");
        Ok((NullRx { ring: ring(0)?, queue: rx, recorder }, NullTx { ring: ring(1)?, queue: tx }))
    }

    /// Buffers that the rings hold.
    pub(super) fn buffers(&self) -> usize {
        self.driver.shape().buffers()
    }

    /// Ends the card: queues that are dropped from now on send their buffers home.
    pub(super) fn stop(&mut self) {
        self.driver.stop();
    }
}

/// A receive queue with frames in it whenever someone looks.
pub(super) struct NullRx {
    ring: Ring,
    queue: VirtioRx,
    recorder: Recorder,
}

impl NullRx {
    /// Where the queue's user keeps its times.
    pub(super) fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }
}

impl RxQueue for NullRx {
    #[inline(always)]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        self.ring.deliver(limit);
        let received = self.queue.receive(cache, burst, limit);
        self.recorder.note(received);
        received
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn drops(&self) -> RxDrops {
        self.queue.drops()
    }
}

/// A transmit queue whose device is done as soon as it is told.
pub(super) struct NullTx {
    ring: Ring,
    queue: VirtioTx,
}

impl TxQueue for NullTx {
    #[inline(always)]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        self.queue.reclaim(cache)
    }

    #[inline(always)]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        self.queue.enqueue(burst)
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.queue.flush();
        self.ring.complete();
    }

    #[inline(always)]
    fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    #[inline(always)]
    fn room(&self) -> usize {
        self.queue.room()
    }

    #[inline(always)]
    fn refused(&self) -> u64 {
        self.queue.refused()
    }
}

/// The device's side of a split ring (virtio 1.2, 2.7).
struct Ring {
    descriptors: &'static [AtomicU64],
    available_index: &'static AtomicU16,
    available: &'static [AtomicU16],
    used_index: &'static AtomicU16,
    used: &'static [AtomicU64],
    /// Buffers used so far, modulo 2^16.
    position: u16,
}

impl Ring {
    fn new(areas: Areas) -> Ring {
        let Areas { size, descriptors, available, used } = areas;
        /// The words at an address that the driver has given.
        fn words<T>(address: u64, len: usize) -> &'static [T] {
            // SAFETY: the driver gave the areas of a queue with so many entries. They live as long as its queue, which
            // lies in one struct with this ring, and both sides use atomics.
            unsafe { std::slice::from_raw_parts(address as *const T, len) }
        }
        let [_, available_index] = words(available, 2) else { unreachable!("two words were asked for") };
        let [used_flags, used_index] = words::<AtomicU16>(used, 2) else { unreachable!("as above") };
        used_flags.store(NO_NOTIFY, Ordering::Relaxed);
        Ring {
            descriptors: words(descriptors, 2 * size),
            available_index,
            available: words(available + 4, size),
            used_index,
            used: words(used + 4, size),
            position: 0,
        }
    }

    /// Fills up to `most` of the receive buffers.
    #[inline(always)]
    fn deliver(&mut self, most: usize) {
        let count = most.min(self.offered());
        for _ in 0..count {
            let id = self.next();
            let frame = self.descriptors[2 * usize::from(id)].load(Ordering::Relaxed) + HEADER_LEN as u64;
            // SAFETY: the driver has given the buffer to the device, and it is longer than that.
            unsafe { (frame as *mut [u8; 16]).write_unaligned(ADDRESSES) };
            self.put_back(id, (HEADER_LEN + FRAME_LEN) as u32);
        }
        self.publish();
    }

    /// Is done with everything that is to be sent.
    #[inline(always)]
    fn complete(&mut self) {
        for _ in 0..self.offered() {
            let id = self.next();
            self.put_back(id, 0);
        }
        self.publish();
    }

    /// Buffers that the driver has offered and that are not used.
    #[inline(always)]
    fn offered(&self) -> usize {
        usize::from(self.available_index.load(Ordering::Acquire).wrapping_sub(self.position))
    }

    #[inline(always)]
    fn next(&self) -> u16 {
        self.available[self.slot()].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn put_back(&mut self, id: u16, len: u32) {
        self.used[self.slot()].store(u64::from(id) | u64::from(len) << 32, Ordering::Relaxed);
        self.position = self.position.wrapping_add(1);
    }

    #[inline(always)]
    fn publish(&self) {
        fence(Ordering::Release);
        self.used_index.store(self.position, Ordering::Relaxed);
    }

    #[inline(always)]
    fn slot(&self) -> usize {
        usize::from(self.position) & (self.used.len() - 1)
    }
}

/// Where the driver has put a queue.
#[derive(Clone, Copy)]
struct Areas {
    size: usize,
    descriptors: u64,
    available: u64,
    used: u64,
}

/// The registers: enough for a driver to set the two queues up.
#[derive(Clone)]
struct NullTransport(Arc<Mutex<State>>);

struct State {
    status: DeviceStatus,
    queues: [Option<Areas>; 2],
}

impl Default for NullTransport {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { status: DeviceStatus::empty(), queues: [None; 2] })))
    }
}

impl NullTransport {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics while he has the registers")
    }
}

impl NetTransport for NullTransport {
    type Base = NullTransport;

    fn base(&self) -> &NullTransport {
        self
    }

    fn base_mut(&mut self) -> &mut NullTransport {
        self
    }

    /// A word that nobody reads: the card asks for no notifications.
    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError> {
        let word: &'static AtomicU16 = Box::leak(Box::default());
        // SAFETY: the word is there for as long as the program runs.
        let window = unsafe { Window::map::<ProcessHal>(word.as_ptr() as u64, size_of::<u16>()) };
        Ok(Doorbell::new(window.register(0).expect("the register is the whole window"), queue))
    }

    fn identity(&self) -> u32 {
        0
    }
}

impl Transport for NullTransport {
    fn device_type(&self) -> DeviceType {
        DeviceType::Network
    }

    fn read_device_features(&mut self) -> u64 {
        Features::VERSION_1.bits()
    }

    fn write_driver_features(&mut self, _driver_features: u64) {}

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        if queue < 2 { 4096 } else { 0 }
    }

    fn notify(&mut self, _queue: u16) {}

    fn get_status(&self) -> DeviceStatus {
        self.state().status
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.state().status = status;
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
        available: PhysAddr,
        used: PhysAddr,
    ) {
        let areas = Areas { size: size as usize, descriptors, available, used };
        self.state().queues[usize::from(queue)] = Some(areas);
    }

    fn queue_unset(&mut self, queue: u16) {
        self.state().queues[usize::from(queue)] = None;
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        self.state().queues[usize::from(queue)].is_some()
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

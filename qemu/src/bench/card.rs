//! A card that costs next to nothing: a virtio-net device with one queue pair in plain memory, worked by the threads
//! that use its driver. What is measured before it is the driver and the forwarder, as shipped.
//!
//! It gives frames without end, as many as are asked for at a time, and is done with what is sent as soon as it is told. Of
//! a frame it writes the addresses, and reads nothing. It wants no notifications.

#![allow(unsafe_code)] // The device's side of the rings: it follows addresses that the driver wrote.

use std::sync::atomic::AtomicU16;
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
use super::ring::{Areas, Layout, Ring};

/// Bytes of every frame, without CRC.
pub(super) const FRAME_LEN: usize = 64;
/// Where every frame comes from and goes to, and what it is.
const ADDRESSES: [u8; 16] = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0";

/// The same with the rest of an IPv4 header (RFC 791, 3.1) and the ports of UDP (RFC 768): 10.0.0.0 speaks with 11.0.0.1.
const FLOW: [u8; 38] = {
    let mut head =
        *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x32\0\0\0\0\x40\x11\0\0\x0a\0\0\0\x0b\0\0\x01\x10\0\0\x07";
    head.split_at_mut(ADDRESSES.len()).0.copy_from_slice(&ADDRESSES);
    head
};
/// Where the sender's address is, and the lowest of them.
const SENDER: std::ops::Range<usize> = 26..30;
const SENDERS: u32 = 10 << 24;

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

    /// The queues; what is received goes into `recorder`, and is of so many flows.
    ///
    /// # Errors
    /// When they were taken before.
    pub(super) fn take_queues(
        &mut self,
        pool: &'static Pool,
        recorder: Recorder,
        flows: u32,
    ) -> Result<(NullRx, NullTx)> {
        let Queues { mut rx, mut tx } = self.driver.take_queues(pool).context("the queues are taken once")?;
        let (rx, tx) = (rx.remove(0), tx.remove(0));
        let state = self.transport.state();
        let ring = |index: usize| {
            let areas = state.queues[index].context("the driver set the queue up")?;
            // SAFETY: the driver gave the areas of its queue, which lies in one struct with this ring; it uses atomics.
            anyhow::Ok(unsafe { Ring::new(Layout::Split, areas) })
        };
        Ok((
            NullRx { ring: ring(0)?, queue: rx, recorder, flows, next: 0 },
            NullTx { ring: ring(1)?, queue: tx },
        ))
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
    flows: u32,
    /// The flow of the next frame.
    next: u32,
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
        if self.flows == 1 {
            deliver(&mut self.ring, limit);
        } else {
            deliver_flows(&mut self.ring, limit, self.flows, &mut self.next);
        }
        let received = self.queue.receive(cache, burst, limit);
        self.recorder.note(received);
        received
    }

    fn leave_unread(&mut self) {
        self.queue.leave_unread();
    }

    fn keep_full(&mut self) {
        self.queue.keep_full();
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn drops(&self) -> RxDrops {
        self.queue.drops()
    }
}

// Apart from their callers, so that who counts instructions can tell them from ours.

/// Fills up to `most` receive buffers.
#[inline(never)]
fn deliver(ring: &mut Ring, most: usize) {
    ring.consume(most, (HEADER_LEN + FRAME_LEN) as u32, address_frame);
}

/// The same with frames of so many flows in turn.
#[inline(never)]
fn deliver_flows(ring: &mut Ring, most: usize, flows: u32, next: &mut u32) {
    ring.consume(most, (HEADER_LEN + FRAME_LEN) as u32, |buffer| {
        let frame = buffer + HEADER_LEN as u64;
        let mut head = FLOW;
        head[SENDER].copy_from_slice(&(SENDERS + *next).to_be_bytes());
        *next = (*next + 1) % flows;
        // SAFETY: as in `address_frame`.
        unsafe { (frame as *mut [u8; FLOW.len()]).write_unaligned(head) };
    });
}

/// Is done with all that is to be sent.
#[inline(never)]
fn complete(ring: &mut Ring) {
    ring.consume(usize::MAX, 0, |_| {});
}

/// Writes the addresses of the frame in a receive buffer.
#[inline(always)]
fn address_frame(buffer: u64) {
    let frame = buffer + HEADER_LEN as u64;
    // SAFETY: the driver has given the buffer to the device, and it is longer than that.
    unsafe { (frame as *mut [u8; 16]).write_unaligned(ADDRESSES) };
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
        complete(&mut self.ring);
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
        driver: PhysAddr,
        device: PhysAddr,
    ) {
        let areas = Areas { size: size as usize, descriptors, driver, device };
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

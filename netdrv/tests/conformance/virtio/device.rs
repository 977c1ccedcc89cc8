//! A virtio-net device: its registers, and the order in which the driver must use them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netdrv::virtio::{Doorbell, Features, NetTransport, VirtioError};
use virtio_drivers::PhysAddr;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::control::Controller;
use super::memory::{DeviceMemory, Loans};
use super::profile::{Oddity, Profile, UNWANTED};
use super::ring::{HEADER, Receiver, Registers, Ring, SILENT, Sender};
use crate::bench::Misdeed;

/// The rings, once the driver has said `DRIVER_OK`.
struct Live {
    memory: DeviceMemory,
    loans: Loans,
    receivers: Vec<Receiver>,
    senders: Vec<Sender>,
    controller: Option<Controller>,
}

pub(crate) struct FakeDevice {
    pub(crate) profile: Profile,
    pub(crate) status: DeviceStatus,
    accepted: Features,
    generation: u32,
    queues: Vec<Option<Registers>>,
    doorbells: &'static [AtomicU16],
    live: Option<Live>,
    never_stops: bool,
    /// Frames that are to come in and have come out, by queue.
    inbound: Vec<VecDeque<Vec<u8>>>,
    outbound: Vec<Vec<Vec<u8>>>,
}

impl FakeDevice {
    fn new(profile: Profile) -> FakeDevice {
        let queues = 2 * usize::from(profile.pairs.max(profile.claimed_pairs.min(64))) + 1;
        FakeDevice {
            status: DeviceStatus::empty(),
            accepted: Features::empty(),
            generation: 0,
            queues: vec![None; queues],
            doorbells: Box::leak((0..queues).map(|_| AtomicU16::new(SILENT)).collect()),
            live: None,
            never_stops: profile.oddity == Oddity::NeverResets,
            inbound: vec![VecDeque::new(); usize::from(profile.pairs)],
            outbound: vec![Vec::new(); usize::from(profile.pairs)],
            profile,
        }
    }

    /// The index of the control queue: behind all pairs with several, behind the only one without (5.1.2).
    fn control_index(&self) -> u16 {
        match self.accepted.intersects(Features::MQ | Features::RSS) {
            true => 2 * self.profile.claimed_pairs,
            false => 2,
        }
    }

    fn max_size(&self, queue: u16) -> u32 {
        let has_control = self.accepted.contains(Features::CTRL_VQ);
        match queue {
            _ if has_control && queue == self.control_index() => 64,
            _ if queue < 2 * self.profile.pairs => self.profile.queue_max,
            _ => 0,
        }
    }

    fn set_status(&mut self, status: DeviceStatus) {
        if status == DeviceStatus::empty() {
            return self.reset();
        }
        let (ack, driver, features_ok, driver_ok) = (
            DeviceStatus::ACKNOWLEDGE,
            DeviceStatus::DRIVER,
            DeviceStatus::FEATURES_OK,
            DeviceStatus::DRIVER_OK,
        );
        let steps = [ack, ack | driver, ack | driver | features_ok, ack | driver | features_ok | driver_ok];
        let failed = status.contains(DeviceStatus::FAILED);
        let next = steps.iter().find(|step| !self.status.contains(**step));
        assert!(failed || next == Some(&status), "{status:?} after {:?} (3.1.1)", self.status);
        assert!(!failed || status - DeviceStatus::FAILED == self.status, "FAILED changes nothing else");
        self.status = status;
        if status == steps[2] && self.profile.oddity == Oddity::RefusesFeatures {
            self.status = steps[1];
        }
        if status == steps[3] {
            self.start();
        }
    }

    fn reset(&mut self) {
        if self.never_stops {
            self.status |= DeviceStatus::ACKNOWLEDGE;
            return;
        }
        self.status = DeviceStatus::empty();
        self.accepted = Features::empty();
        self.queues.fill(None);
        self.doorbells.iter().for_each(|doorbell| doorbell.store(SILENT, Ordering::Relaxed));
        self.live = None;
    }

    fn start(&mut self) {
        let rung = |doorbell: &AtomicU16| doorbell.load(Ordering::Relaxed) != SILENT;
        assert!(!self.doorbells.iter().any(rung), "no notification before DRIVER_OK (3.1.1)");
        let (accepted, profile) = (self.accepted, &self.profile);
        let mut memory = DeviceMemory::new();
        let mut ring = |index: u16, registers: Registers| {
            let doorbell = &self.doorbells[usize::from(index)];
            Ring::start(memory.map(), index, registers, doorbell, profile, accepted)
        };
        let (mut receivers, mut senders, mut controller) = (Vec::new(), Vec::new(), None);
        for (index, registers) in self.queues.iter().enumerate() {
            let (index, Some(registers)) = (index as u16, *registers) else { continue };
            if accepted.contains(Features::CTRL_VQ) && index == self.control_index() {
                controller = Some(Controller::new(ring(index, registers), profile));
            } else if index % 2 == 0 {
                receivers.push(Receiver::new(ring(index, registers)));
            } else {
                senders.push(Sender::new(ring(index, registers)));
            }
        }
        assert!(!receivers.is_empty() && receivers.len() == senders.len(), "queues come in pairs");
        self.live = Some(Live { memory, loans: Loans::default(), receivers, senders, controller });
    }

    /// Pairs that the driver has the device use.
    pub(crate) fn pairs_in_use(&self) -> u16 {
        self.controller().map_or(1, |controller| controller.pairs)
    }

    /// What the driver has said on the control queue.
    pub(crate) fn controller(&self) -> Option<&Controller> {
        self.live.as_ref()?.controller.as_ref()
    }

    /// Answers commands.
    fn obey(&mut self) {
        if let Some(live) = &mut self.live
            && let Some(controller) = &mut live.controller
        {
            controller.run(live.memory.map(), self.accepted);
        }
    }

    pub(crate) fn feed(&mut self, queue: usize, frame: Vec<u8>) {
        assert!(queue < usize::from(self.pairs_in_use()), "no flow goes to a pair that is not in use");
        self.inbound[queue].push_back(frame);
    }

    pub(crate) fn pending(&self, queue: usize) -> usize {
        self.inbound[queue].len()
    }

    pub(crate) fn collect(&mut self, queue: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outbound[queue])
    }

    /// Works until nothing is left to do that the device knows of, holding back some of the sent buffers.
    pub(crate) fn run(&mut self) {
        let Some(live) = &mut self.live else { return };
        let map = live.memory.map();
        for (receiver, inbound) in live.receivers.iter_mut().zip(&mut self.inbound) {
            receiver.look(map, &mut live.loans);
            while let Some(frame) = inbound.front()
                && receiver.deliver(map, &mut live.loans, frame)
            {
                inbound.pop_front();
            }
            receiver.ring.publish(map);
        }
        for (sender, outbound) in live.senders.iter_mut().zip(&mut self.outbound) {
            outbound.extend(sender.look(map, &mut live.loans));
            sender.give_back(map, &mut live.loans);
        }
    }

    /// Breaks a rule; `None` where there is no buffer to break it with.
    pub(crate) fn misbehave(&mut self, misdeed: Misdeed) -> Option<()> {
        let live = self.live.as_mut()?;
        let map = live.memory.map();
        let (receiver, sender) = (&mut live.receivers[0], &mut live.senders[0]);
        receiver.look(map, &mut live.loans);
        match misdeed {
            Misdeed::Truncated => receiver.deliver_wrong(map, &mut live.loans, |_| HEADER as u32 - 1)?,
            Misdeed::Oversize => receiver.deliver_wrong(map, &mut live.loans, |len| len + 1)?,
            Misdeed::UnknownDescriptor => {
                receiver.lose()?;
                receiver.ring.complete_wrong(map, u32::from(receiver.ring.size()));
            }
            Misdeed::DuplicateDescriptor => {
                receiver.deliver_wrong(map, &mut live.loans, |_| 0)?;
                receiver.lose()?;
                receiver.ring.complete_wrong(map, u32::from(receiver.ring.last_completed()));
            }
            Misdeed::ReceiveIndexJump => receiver.ring.jump(map)?,
            Misdeed::TransmitUnknown => {
                self.outbound[0].extend(sender.look(map, &mut live.loans));
                sender.lose()?;
                sender.ring.complete_wrong(map, u32::MAX);
            }
            Misdeed::TransmitIndexJump => sender.ring.jump(map)?,
            Misdeed::NeedsReset => self.status |= DeviceStatus::DEVICE_NEEDS_RESET,
            Misdeed::NeverStops => self.never_stops = true,
        }
        Some(())
    }

    fn live(&mut self) -> &mut Live {
        self.live.as_mut().expect("a device that was started")
    }

    /// The driver may ask the first receive queue for interrupts from now on.
    pub(crate) fn expect_interrupts(&mut self) {
        self.live().receivers[0].ring.expect_interrupts();
    }

    /// How often that queue has interrupted.
    pub(crate) fn interrupts(&mut self) -> usize {
        self.live().receivers[0].ring.interrupts()
    }

    /// A device that polled its first transmit queue wants to be notified of what is sent.
    pub(crate) fn doze(&mut self) {
        self.live().senders[0].ring.doze();
    }

    /// Writes what has come in to receive buffers and says so of all but the first.
    pub(crate) fn receive_all_but_the_first_descriptor(&mut self) {
        let Some(live) = &mut self.live else { return };
        let map = live.memory.map();
        let receiver = &mut live.receivers[0];
        receiver.look(map, &mut live.loans);
        for frame in self.inbound[0].drain(..) {
            assert!(
                receiver.deliver(map, &mut live.loans, &frame),
                "the test feeds no more than the ring has"
            );
        }
        receiver.ring.write_entries(map);
    }

    /// Completes one more buffer than queue 0 or 1 has been given.
    pub(crate) fn complete_what_it_has_not(&mut self, queue: usize) {
        let live = self.live();
        let ring = if queue == 0 { &mut live.receivers[0].ring } else { &mut live.senders[0].ring };
        ring.complete_wrong(live.memory.map(), 0);
    }

    /// The configuration space (5.1.4).
    fn config(&self) -> Vec<u8> {
        let profile = &self.profile;
        let (key, table, hashes) = profile.rss;
        let mut bytes = profile.mac.to_vec();
        bytes.extend(u16::from(profile.link_up).to_le_bytes());
        bytes.extend(profile.claimed_pairs.to_le_bytes());
        bytes.extend(profile.mtu.to_le_bytes());
        bytes.extend([0; 5]); // speed and duplex
        bytes.push(key);
        bytes.extend(table.to_le_bytes());
        bytes.extend(hashes.to_le_bytes());
        bytes.truncate(profile.config_len);
        bytes
    }
}

/// The driver's way to the device, and the test's.
#[derive(Clone)]
pub(crate) struct FakeNet(Arc<Mutex<FakeDevice>>);

impl FakeNet {
    pub(crate) fn new(profile: Profile) -> FakeNet {
        let net = FakeNet(Arc::new(Mutex::new(FakeDevice::new(profile))));
        let device = net.clone();
        crate::hal::on_tick(move || device.lock().obey());
        net
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FakeDevice> {
        // After a panic of the device the driver still stops it as it is dropped: one report is enough.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetTransport for FakeNet {
    type Base = FakeNet;

    fn base(&self) -> &FakeNet {
        self
    }

    fn base_mut(&mut self) -> &mut FakeNet {
        self
    }

    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError> {
        let device = self.lock();
        if device.profile.oddity == Oddity::NoDoorbell(queue) {
            return Err(VirtioError::NoDoorbell { queue });
        }
        let register = super::doorbell_register(&device.doorbells[usize::from(queue)]);
        Ok(Doorbell::new(register, queue))
    }

    fn identity(&self) -> u32 {
        0x0102_0304
    }
}

impl Transport for FakeNet {
    fn device_type(&self) -> DeviceType {
        self.lock().profile.device_type
    }

    fn read_device_features(&mut self) -> u64 {
        let device = self.lock();
        assert!(device.status.contains(DeviceStatus::DRIVER), "features are read after DRIVER (3.1.1)");
        device.profile.features.bits() | UNWANTED
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        let mut device = self.lock();
        let allowed = device.status == DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
        assert!(allowed, "features are written between DRIVER and FEATURES_OK (3.1.1)");
        assert_eq!(
            driver_features & !device.profile.features.bits(),
            0,
            "a subset of what is offered and wanted"
        );
        device.accepted = Features::from_bits_retain(driver_features);
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.lock().max_size(queue)
    }

    fn notify(&mut self, queue: u16) {
        panic!("queue {queue} has a doorbell of its own");
    }

    fn get_status(&self) -> DeviceStatus {
        self.lock().status
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.lock().set_status(status);
    }

    fn set_guest_page_size(&mut self, _guest_page_size: u32) {
        panic!("a legacy register");
    }

    fn requires_legacy_layout(&self) -> bool {
        false
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver: PhysAddr,
        device_area: PhysAddr,
    ) {
        let mut device = self.lock();
        let ready = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER | DeviceStatus::FEATURES_OK;
        assert_eq!(device.status, ready, "queues are set up between FEATURES_OK and DRIVER_OK (3.1.1)");
        assert!(size.is_power_of_two() && size <= device.max_size(queue), "queue {queue} of {size}");
        assert!(device.queues[usize::from(queue)].is_none(), "queue {queue} is set up once");
        if device.profile.oddity != Oddity::DeadQueue(queue) {
            let registers = Registers { size: size as u16, descriptors, driver, device: device_area };
            device.queues[usize::from(queue)] = Some(registers);
        }
    }

    fn queue_unset(&mut self, queue: u16) {
        panic!("queue {queue} is not reset alone");
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        self.lock().queues[usize::from(queue)].is_some()
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        panic!("the driver polls");
    }

    fn read_config_generation(&self) -> u32 {
        let mut device = self.lock();
        if device.profile.oddity == Oddity::RestlessConfig {
            device.generation += 1;
        }
        device.generation
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> virtio_drivers::Result<T> {
        let config = self.lock().config();
        let bytes =
            config.get(offset..offset + size_of::<T>()).ok_or(virtio_drivers::Error::ConfigSpaceTooSmall)?;
        T::read_from_bytes(bytes).map_err(|_| virtio_drivers::Error::ConfigSpaceTooSmall)
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        offset: usize,
        _value: T,
    ) -> virtio_drivers::Result<()> {
        panic!("byte {offset} of the configuration is the device's to write");
    }
}

//! The bench of virtio-net, and what only virtio has.

#![allow(unsafe_code)] // Makes registers of memory that the fake device reads.

mod control;
mod device;
mod memory;
mod negotiation;
mod notifications;
mod pci;
mod profile;
mod ring;
mod suite;

use std::sync::atomic::AtomicU16;

use netdrv::device::QueueWish;
use netdrv::mmio::{Register, Window};
use netdrv::packet::FRAME_CAPACITY;
use netdrv::virtio::{Features, VirtioError, VirtioNet};

use self::device::FakeNet;
use self::profile::Profile;
use self::ring::{Attention, Completion};
use crate::bench::{Bench, Misdeed};
use crate::hal::TestHal;

/// virtio-net before its fake device.
pub(crate) struct VirtioBench {
    driver: VirtioNet<FakeNet>,
    pub(crate) net: FakeNet,
}

impl VirtioBench {
    pub(crate) fn new(profile: Profile, wish: QueueWish) -> Result<VirtioBench, VirtioError> {
        let net = FakeNet::new(profile);
        let driver = VirtioNet::new::<TestHal>(net.clone(), wish)?;
        Ok(VirtioBench { driver, net })
    }

    pub(crate) fn driver(&self) -> &VirtioNet<FakeNet> {
        &self.driver
    }
}

impl Bench for VirtioBench {
    type Device = VirtioNet<FakeNet>;
    const SPARE: usize = 0;
    const SHORTEST: usize = 0;
    const LONGEST: usize = FRAME_CAPACITY;
    const SENDS_EMPTY: bool = true;
    const SENDS_WHOLE_BUFFERS: bool = false;

    fn device(&mut self) -> &mut VirtioNet<FakeNet> {
        &mut self.driver
    }

    fn feed(&mut self, queue: usize, frame: Vec<u8>) {
        self.net.lock().feed(queue, frame);
    }

    fn pending(&self, queue: usize) -> usize {
        self.net.lock().pending(queue)
    }

    fn run(&mut self) {
        self.net.lock().run();
    }

    fn collect(&mut self, queue: usize) -> Vec<Vec<u8>> {
        self.net.lock().collect(queue)
    }

    fn misbehave(&mut self, misdeed: Misdeed) -> bool {
        self.net.lock().misbehave(misdeed).is_some()
    }
}

/// Every way in which a sane device can treat its rings.
pub(crate) fn flavours() -> Vec<Profile> {
    let mut flavours = Vec::new();
    for layout in [Features::empty(), Features::RING_PACKED] {
        for event_index in [Features::EVENT_IDX, Features::empty()] {
            for attention in [Attention::Sleeps, Attention::Polls, Attention::Nods] {
                if attention == Attention::Nods && layout.is_empty() {
                    // In a split ring a device moves its event on as it takes what is there.
                    continue;
                }
                for (in_order, completion) in [
                    (Features::empty(), Completion::OneByOne),
                    (Features::empty(), Completion::Shuffled),
                    (Features::IN_ORDER, Completion::OneByOne),
                    (Features::IN_ORDER, Completion::InBatches),
                ] {
                    let choices = Features::RING_PACKED | Features::EVENT_IDX | Features::IN_ORDER;
                    let features = (Features::all() - choices) | layout | event_index | in_order;
                    let says_written = completion != Completion::OneByOne;
                    flavours.push(Profile {
                        features,
                        attention,
                        completion,
                        says_written,
                        ..Profile::default()
                    });
                }
            }
        }
    }
    flavours
}

/// The doorbell that a fake device looks at.
fn doorbell_register(doorbell: &'static AtomicU16) -> Register<u16> {
    // SAFETY: the memory is a register for as long as the program runs, and the device reads it atomically.
    let window = unsafe { Window::map::<TestHal>(doorbell.as_ptr() as u64, size_of::<u16>()) };
    window.register(0).expect("the register is the whole window")
}

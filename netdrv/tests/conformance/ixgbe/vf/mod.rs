//! The bench of the driver of virtual functions: function 0 of a card whose physical function is the model's own driver's.

mod faults;
mod frames;
mod host;
mod hostile;
mod init;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ixgbe_model::{CardOptions, Corruption, HostDriver, Model, Policy, VirtualInProcess};
use netdrv::device::{NetDevice, QueueWish};
use netdrv::ixgbe::{IxgbeError, IxgbeVf, virtual_model};
use netdrv::mmio::Bar;

use super::bar::{CTRL, Write};
use super::{Card, OnCard, lock};
use crate::bench::{Bench, Misdeed};
use crate::hal::TestHal;

/// The address that the host gives to the function.
const ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 1, 0];
const NEIGHBOUR: [u8; 6] = [0x02, 0, 0, 0, 1, 1];

const RESET: u32 = 1 << 26;
/// Queue registers, with the bit that switches a queue on.
const CONTROLS: [u32; 2] = [0x1028, 0x2028];
const ENABLE: u32 = 1 << 25;

/// The driver's way to the function's registers.
#[derive(Clone)]
pub(crate) struct VfBar {
    function: VirtualInProcess,
    writes: Arc<Mutex<Vec<Write>>>,
    never_stops: Arc<AtomicBool>,
}

impl VfBar {
    /// Whether a write would stop something that never stops.
    fn is_lost(&self, offset: u32, value: u32) -> bool {
        let stops = offset == 0 || CONTROLS.contains(&offset) && value & ENABLE == 0;
        stops && self.never_stops.load(Ordering::Relaxed)
    }
}

impl Bar for VfBar {
    fn read(&self, offset: u32) -> u32 {
        self.function.read(offset)
    }

    fn write(&self, offset: u32, value: u32) {
        lock(&self.writes).push((offset, value));
        if !self.is_lost(offset, value) {
            self.function.write(offset, value);
        }
    }
}

/// A virtual function and its driver.
pub(crate) struct VfBench {
    driver: IxgbeVf<VfBar>,
    bar: VfBar,
    card: Card,
}

impl VfBench {
    /// A driver before a function of such a card, whose host grants what `policy` says.
    fn new(model: Model, policy: Policy, wish: QueueWish) -> Result<VfBench, IxgbeError> {
        let card = Card::new(CardOptions { model, ..CardOptions::default() });
        card.bar.model.write(CTRL, RESET);
        card.bar.model.pass(Duration::from_millis(20));
        let functions = card.bar.model.share(&[ADDRESS, NEIGHBOUR], policy);
        let bar =
            VfBar { function: functions[0].clone(), writes: Arc::default(), never_stops: Arc::default() };
        let ids = card.bar.model.with_card(|card| card.virtual_function_ids());
        let model = virtual_model(ids.device).expect("a function that the driver knows");
        let driver = IxgbeVf::new::<TestHal>(bar.clone(), model, wish)?;
        Ok(VfBench { driver, bar, card })
    }

    /// One queue pair of a function that gets every frame, with link.
    pub(crate) fn with_ring(ring: usize) -> VfBench {
        let wish = QueueWish { pairs: 1, ring, interrupts: 0, tx_needed: 0 };
        let mut bench = VfBench::new(Model::X540, Policy::default(), wish).expect("a sane function");
        bench.live(20);
        bench
    }

    /// Has the host do something.
    fn with_host<R>(&self, act: impl FnOnce(&mut HostDriver, &mut ixgbe_model::Card) -> R) -> R {
        self.card.bar.model.with_host(act).expect("a host")
    }
}

impl OnCard for VfBench {
    fn card(&self) -> &Card {
        &self.card
    }
}

impl Bench for VfBench {
    type Device = IxgbeVf<VfBar>;
    const SPARE: usize = 1;
    const SHORTEST: usize = 60;
    /// The host's MAXFRS is 1522, with the CRC.
    const LONGEST: usize = 1518;
    const SENDS_EMPTY: bool = false;
    const SENDS_WHOLE_BUFFERS: bool = true;

    fn device(&mut self) -> &mut IxgbeVf<VfBar> {
        &mut self.driver
    }

    fn feed(&mut self, _queue: usize, frame: Vec<u8>) {
        lock(&self.card.cable).inbound.push_back(frame);
    }

    fn pending(&self, _queue: usize) -> usize {
        lock(&self.card.cable).inbound.len()
    }

    fn run(&mut self) {
        self.card.work(self.driver.shape());
    }

    fn collect(&mut self, queue: usize) -> Vec<Vec<u8>> {
        self.card.collect(queue)
    }

    fn misbehave(&mut self, misdeed: Misdeed) -> bool {
        let corruption = match misdeed {
            Misdeed::Truncated => Corruption::LengthZero,
            Misdeed::Oversize => Corruption::LengthTooLong,
            Misdeed::NeverStops => {
                self.bar.never_stops.store(true, Ordering::Relaxed);
                return true;
            }
            _ => return false,
        };
        self.card.corrupt(corruption, self.driver.shape())
    }
}

impl Drop for VfBench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.card.check();
        }
    }
}

//! The bench of the driver of virtual functions: function 0 of a card whose physical function is the model's own driver's.

mod faults;
mod frames;
mod host;
mod hostile;
mod init;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ixgbe_model::{CardOptions, HostDriver, Model, Policy, VirtualInProcess};
use netdrv::device::QueueWish;
use netdrv::ixgbe::{IxgbeError, IxgbeVf, virtual_model};
use netdrv::mmio::Bar;

use super::bar::{CTRL, Write};
use super::{Card, CardBench, Function, lock};
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

impl Function for VfBar {
    type Driver = IxgbeVf<VfBar>;

    /// The host's MAXFRS is 1522, with the CRC.
    const LONGEST: usize = 1518;

    fn never_stop(&self) {
        self.never_stops.store(true, Ordering::Relaxed);
    }
}

/// A virtual function, and its driver.
pub(crate) type VfBench = CardBench<VfBar>;

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
        Ok(CardBench { driver, bar, card })
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

//! A device that says anything: the driver comes to an end, one way or the other, and believes nothing that it can't use.

use std::sync::{Arc, Mutex};

use netdrv::device::{NetDevice, QueueWish};
use netdrv::ixgbe::{IxgbeVf, virtual_model};
use netdrv::mmio::Bar;

use super::super::lock;
use crate::bench::PATIENCE;
use crate::hal::TestHal;

const VFMBMEM: u32 = 0x200;
const VFMAILBOX: u32 = 0x2fc;
/// It is the function's turn, and there is a message.
const OURS_AND_MESSAGE: u32 = 1 << 2 | 1 << 4;

/// Registers that hold what was written to them, or whatever else comes to their mind.
#[derive(Clone)]
struct Liar {
    chance: Arc<Mutex<fastrand::Rng>>,
    registers: Arc<Mutex<std::collections::BTreeMap<u32, u32>>>,
}

impl Bar for Liar {
    fn read(&self, offset: u32) -> u32 {
        let chance = &mut *lock(&self.chance);
        let written = lock(&self.registers).get(&offset).copied().unwrap_or(0);
        let any = chance.u32(..);
        match (offset, chance.u8(..100)) {
            // An answer to the last request, so that the conversation goes on; more or less granted.
            (VFMBMEM, 5..) => written & 0xffff | any & 7 << 29,
            (VFMAILBOX, 5..) => OURS_AND_MESSAGE,
            (_, 0) => any,
            (_, 1) => u32::MAX,
            (VFMBMEM..0x240, 2..) => any >> chance.u32(..32),
            _ => written,
        }
    }

    fn write(&self, offset: u32, value: u32) {
        lock(&self.registers).insert(offset, value);
    }
}

#[test]
fn whatever_a_device_says_the_driver_comes_to_an_end() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..3_000 {
        let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        let liar = Liar { chance, registers: Arc::default() };
        let model = virtual_model([0x10ed, 0x1515, 0x1565][seed as usize % 3]).expect("a function");
        let wish = QueueWish { pairs: 16, ring: 64, interrupts: 64, tx_needed: 0 };
        match IxgbeVf::new::<TestHal>(liar, model, wish) {
            Ok(mut device) => {
                accepted += 1;
                let shape = device.shape();
                assert!((1..=8).contains(&shape.rx) && (1..=8).contains(&shape.tx), "{shape:?}");
                assert!(shape.rx.is_power_of_two() && device.rx_interrupts() <= shape.rx.min(3));
                assert!(device.mac().0[0] & 1 == 0 && device.mac().0 != [0; 6], "{}", device.mac());
                (0..PATIENCE).for_each(|_| device.attend());
                device.stop();
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(accepted > 20 && refused > 20, "{accepted} accepted, {refused} refused: both ways are tried");
}

//! The two wires to the module of an SFP+ port, moved by hand through I2CCTL (8.2.3.1.4; I²C specification, 3.1).

use super::access::Readable;
use super::registers::{I2CCTL, i2cctl};
use super::wait::{self, Clock, MICROSECOND};
use crate::mmio::Bar;

/// Half a period of the clock: 100 kHz, which every module takes.
const HALF: u64 = 5 * MICROSECOND;
/// How long a module may hold the clock.
const STRETCH: u64 = 500 * MICROSECOND;

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum I2cError {
    /// Nobody answered to the address.
    NoAnswer,
    /// The clock was held for too long.
    Stuck,
}

/// The bus, with this side as its only master.
pub(super) struct I2c<'b, B: Bar> {
    bar: &'b B,
    clock: Clock,
}

impl<'b, B: Bar> I2c<'b, B> {
    pub(super) fn new(bar: &'b B, clock: Clock) -> I2c<'b, B> {
        I2c { bar, clock }
    }

    /// Reads successive bytes, from `offset` on, of the memory at the seven-bit address `device`.
    pub(super) fn read(&self, device: u8, offset: u8, into: &mut [u8]) -> Result<(), I2cError> {
        let result = self.transfer(device, offset, into);
        self.stop();
        result
    }

    fn transfer(&self, device: u8, offset: u8, into: &mut [u8]) -> Result<(), I2cError> {
        self.start()?;
        self.send(device << 1)?;
        self.send(offset)?;
        self.start()?;
        self.send(device << 1 | 1)?;
        let last = into.len().saturating_sub(1);
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.receive()?;
            // The byte that gets no acknowledgement is the last.
            self.write_bit(index == last)?;
        }
        Ok(())
    }

    /// Data falls while the clock is high.
    fn start(&self) -> Result<(), I2cError> {
        self.set(i2cctl::DATA_OUT);
        self.raise_clock(i2cctl::DATA_OUT)?;
        self.set(i2cctl::CLOCK_OUT);
        self.set(0);
        Ok(())
    }

    /// Data rises while the clock is high.
    fn stop(&self) {
        self.set(0);
        self.set(i2cctl::CLOCK_OUT);
        self.set(i2cctl::CLOCK_OUT | i2cctl::DATA_OUT);
    }

    fn send(&self, byte: u8) -> Result<(), I2cError> {
        (0..8).rev().try_for_each(|bit| self.write_bit(byte >> bit & 1 == 1))?;
        let is_silent = self.read_bit()?;
        if is_silent { Err(I2cError::NoAnswer) } else { Ok(()) }
    }

    fn receive(&self) -> Result<u8, I2cError> {
        (0..8).try_fold(0, |byte, _| Ok(byte << 1 | u8::from(self.read_bit()?)))
    }

    fn write_bit(&self, bit: bool) -> Result<(), I2cError> {
        let data = if bit { i2cctl::DATA_OUT } else { 0 };
        self.set(data);
        self.raise_clock(data)?;
        self.set(data);
        Ok(())
    }

    fn read_bit(&self) -> Result<bool, I2cError> {
        // The wire is let go: the module drives it.
        self.set(i2cctl::DATA_OUT);
        self.raise_clock(i2cctl::DATA_OUT)?;
        let bit = I2CCTL.read(self.bar) & i2cctl::DATA_IN != 0;
        self.set(i2cctl::DATA_OUT);
        Ok(bit)
    }

    /// Lets the clock go and waits until it is high: the module may hold it.
    fn raise_clock(&self, data: u32) -> Result<(), I2cError> {
        self.set(i2cctl::CLOCK_OUT | data);
        let high = (i2cctl::CLOCK_IN, i2cctl::CLOCK_IN);
        wait::until((self.bar, self.clock), I2CCTL, high, STRETCH, "the clock to rise")
            .map_err(|_| I2cError::Stuck)
    }

    fn set(&self, wires: u32) {
        I2CCTL.write(self.bar, wires);
        wait::pause(self.clock, HALF);
    }
}

//! A driver for unit tests: the least that makes a card forward, over memory that is a vector.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::card::Card;
use crate::host::{Memory, Unmapped, Wire};
use crate::options::CardOptions;
use crate::registers::*;

/// Where the memory begins, as the card sees it.
pub(crate) const MEMORY: u64 = 0x10_0000;
const LEN: usize = 0x20_0000;
/// Descriptors of each ring.
pub(crate) const RING: u32 = 64;
/// Bytes from one buffer to the next.
const BUFFER: u64 = 2048;

/// Where the parts are: a ring and its buffers a queue, for the first few queues.
pub(crate) fn rx_ring(queue: usize) -> u64 {
    MEMORY + queue as u64 * 0x1000
}

pub(crate) fn tx_ring(queue: usize) -> u64 {
    MEMORY + 0x8000 + queue as u64 * 0x1000
}

pub(crate) fn rx_buffer(queue: usize, index: u32) -> u64 {
    MEMORY + 0x1_0000 + queue as u64 * 0x2_0000 + u64::from(index) * BUFFER
}

pub(crate) fn tx_buffer(index: u32) -> u64 {
    MEMORY + 0x18_0000 + u64::from(index) * BUFFER
}

/// Memory that is a vector.
pub(crate) struct Ram(RefCell<Vec<u8>>);

impl Ram {
    pub(crate) fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).expect("an address of the test's memory");
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn set_word(&self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes()).expect("an address of the test's memory");
    }

    fn place(address: u64, len: usize) -> Result<std::ops::Range<usize>, Unmapped> {
        let start = address.wrapping_sub(MEMORY) as usize;
        match start.checked_add(len) {
            Some(end) if end <= LEN => Ok(start..end),
            _ => Err(Unmapped { address, len }),
        }
    }
}

impl Memory for Ram {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        into.copy_from_slice(&self.0.borrow()[Self::place(address, into.len())?]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.0.borrow_mut()[Self::place(address, from.len())?].copy_from_slice(from);
        Ok(())
    }
}

/// A cable whose both ends the test has.
#[derive(Default)]
pub(crate) struct Cable {
    pub(crate) to_card: VecDeque<Vec<u8>>,
    pub(crate) from_card: Vec<(u16, Vec<u8>)>,
}

impl Wire for Cable {
    fn transmit(&mut self, queue: u16, frame: &[u8]) {
        self.from_card.push((queue, frame.to_vec()));
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let Some(next) = self.to_card.pop_front() else { return false };
        frame.clone_from(&next);
        true
    }
}

/// A card, its memory and its cable.
pub(crate) struct Bench {
    pub(crate) card: Card,
    pub(crate) ram: Ram,
    pub(crate) cable: Cable,
    time: Duration,
}

impl Bench {
    /// A card that was just powered up.
    pub(crate) fn new(options: CardOptions) -> Bench {
        let ram = Ram(RefCell::new(vec![0; LEN]));
        Bench { card: Card::new(options), ram, cable: Cable::default(), time: Duration::ZERO }
    }

    /// A card with its link up that receives and transmits on this many queues, promiscuously.
    pub(crate) fn running(options: CardOptions, queues: usize) -> Bench {
        let mut bench = Bench::new(options);
        bench.start(queues);
        bench
    }

    /// The order is that of the datasheet: 4.6.3, 4.6.7, 4.6.8.
    pub(crate) fn start(&mut self, queues: usize) {
        self.write(Register::EIMC, 0, !0);
        self.write(Register::CTRL, 0, CTRL_RST);
        self.pass(Duration::from_millis(10));
        self.write(Register::FCTRL, 0, FCTRL_BAM | FCTRL_MPE | FCTRL_UPE);
        self.write(Register::HLREG0, 0, HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_TXPADEN);
        self.write(Register::RDRXCTL, 0, RDRXCTL_CRC_STRIP);
        for queue in 0..queues {
            self.start_rx(queue);
        }
        self.write(Register::SECRXCTRL, 0, SEC_PATH_DIS);
        self.write(Register::RXCTRL, 0, RXCTRL_RXEN);
        self.write(Register::SECRXCTRL, 0, 0);
        self.write(Register::DMATXCTL, 0, DMATXCTL_TE);
        for queue in 0..queues {
            self.write(Register::TDBAL, queue, tx_ring(queue) as u32);
            self.write(Register::TDLEN, queue, RING * 16);
            self.write(Register::TXDCTL, queue, DCTL_ENABLE | 32);
        }
    }

    /// A receive ring full of buffers.
    pub(crate) fn start_rx(&mut self, queue: usize) {
        self.write(Register::RDBAL, queue, rx_ring(queue) as u32);
        self.write(Register::RDLEN, queue, RING * 16);
        self.write(Register::SRRCTL, queue, 1 << 25 | 2);
        self.write(Register::RXDCTL, queue, DCTL_ENABLE);
        for index in 0..RING {
            self.rearm(queue, index);
        }
        self.write(Register::RDT, queue, RING - 1);
    }

    /// Puts the buffer of a receive descriptor back.
    pub(crate) fn rearm(&mut self, queue: usize, index: u32) {
        let descriptor = rx_ring(queue) + u64::from(index) * 16;
        self.ram.set_word(descriptor, rx_buffer(queue, index));
        self.ram.set_word(descriptor + 8, 0);
    }

    pub(crate) fn read(&mut self, register: Register, index: usize) -> u32 {
        self.card.read(register.offset(index))
    }

    pub(crate) fn write(&mut self, register: Register, index: usize, value: u32) {
        self.card.write(register.offset(index), value);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.time += time;
        self.card.advance(self.time);
    }

    pub(crate) fn run(&mut self) -> usize {
        self.card.run(&self.ram, &mut self.cable)
    }

    /// A receive descriptor as the card left it.
    pub(crate) fn rx_descriptor(&self, queue: usize, index: u32) -> (u64, u64) {
        let descriptor = rx_ring(queue) + u64::from(index) * 16;
        (self.ram.word(descriptor), self.ram.word(descriptor + 8))
    }

    pub(crate) fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read(address, &mut bytes).expect("an address of the test's memory");
        bytes
    }

    /// Puts an advanced descriptor with these bits above its length in a transmit ring, and the bytes in its buffer.
    pub(crate) fn put_tx(&mut self, queue: usize, index: u32, bytes: &[u8], command: u64) {
        self.ram.write(tx_buffer(index), bytes).expect("an address of the test's memory");
        let descriptor = tx_ring(queue) + u64::from(index) * 16;
        self.ram.set_word(descriptor, tx_buffer(index));
        self.ram.set_word(descriptor + 8, command | bytes.len() as u64);
    }
}

/// EOP, IFCS, DEXT and the type of a data descriptor.
pub(crate) const WHOLE: u64 = 1 << 24 | 1 << 25 | 1 << 29 | 3 << 20;
/// RS.
pub(crate) const REPORT: u64 = 1 << 27;

/// PAYLEN.
pub(crate) fn payload(len: usize) -> u64 {
    (len as u64) << 46
}

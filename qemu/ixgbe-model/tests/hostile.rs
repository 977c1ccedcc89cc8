//! Whatever a driver does, the card stays on its feet: no panic, and memory outside of what was handed over is not
//! touched.

use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use ixgbe_model::registers::{self, Register};
use ixgbe_model::{
    Card, CardOptions, Corruption, Fault, HostDriver, Memory, Model, Overrun, Policy, Unmapped, Wire,
};

const MEMORY_LEN: usize = 0x1_0000;
const ROUNDS: usize = 60;
const STEPS: usize = 2_000;

/// Memory at address 0, full of what might be descriptors if one does not look closely.
struct Noise(Mutex<Vec<u8>>);

impl Noise {
    fn new(rng: &mut Rng) -> Noise {
        let bytes = (0..MEMORY_LEN / 16).flat_map(|_| {
            let address = if rng.u8(..) < 250 { rng.u64(..0xf000) } else { rng.u64(..) };
            [address, Self::command(rng)].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
        });
        Noise(Mutex::new(bytes.collect()))
    }

    /// The upper half of a transmit descriptor: advanced data mostly, context, legacy, or anything.
    fn command(rng: &mut Rng) -> u64 {
        let len = rng.u64(1..600);
        let flags = rng.u64(..) & !(0xff << 16 | 0xffff | 1 << 29);
        let end = if rng.u8(..) < 200 { 1 << 24 | 1 << 25 } else { 0 };
        match rng.u8(..10) {
            0..5 => len | 3 << 20 | 1 << 29 | end | flags & !(7 << 30),
            5 | 6 => len | 3 << 20 | 1 << 29 | end | flags,
            7 => rng.u64(..0x4000) | 2 << 20 | 1 << 29 | rng.u64(1..2000) << 48 | rng.u64(..64) << 40,
            8 => len | end | flags & !(1 << 29),
            _ => rng.u64(..),
        }
    }

    fn place(address: u64, len: usize) -> Result<std::ops::Range<usize>, Unmapped> {
        let end = usize::try_from(address).ok().and_then(|start| start.checked_add(len));
        match end {
            Some(end) if end <= MEMORY_LEN => Ok(end - len..end),
            _ => Err(Unmapped { address, len }),
        }
    }
}

impl Memory for Noise {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let place = Self::place(address, into.len())?;
        into.copy_from_slice(&self.0.lock().expect("memory")[place]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let place = Self::place(address, from.len())?;
        self.0.lock().expect("memory")[place].copy_from_slice(from);
        Ok(())
    }
}

/// Frames of any length and any content.
struct Babble(Rng);

impl Wire for Babble {
    fn transmit(&mut self, _queue: u16, _frame: &[u8]) {}

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let Babble(rng) = self;
        frame.clear();
        frame.extend((0..rng.usize(..2000)).map(|_| rng.u8(..)));
        if frame.len() > 14 {
            // Something to look into: a tag, IPv4, IPv6.
            let ethertype: u16 = *rng.choice(&[0x8100, 0x0800, 0x86dd, 0x8808]).expect("a choice");
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            frame[14] = *rng.choice(&[0x45, 0x4f, 0x60]).expect("a choice");
        }
        rng.u8(..) < 200
    }
}

/// Values that are likely to reach something.
fn value(rng: &mut Rng) -> u32 {
    match rng.u8(..6) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << rng.u32(..32),
        3 => rng.u32(..0x1_0000) & !0x7f,
        4 => rng.u32(..64),
        _ => rng.u32(..),
    }
}

fn fault(rng: &mut Rng) -> Fault {
    let queue = rng.u16(..200);
    match rng.u8(..8) {
        0 => Fault::LinkDown,
        1 | 2 => Fault::LinkUp,
        3 => Fault::TransmitHang { queue },
        4 => Fault::ReceiveStall { queue },
        5 => Fault::LostCompletions { queue, count: rng.u32(..3) },
        6 => Fault::CorruptWriteBack { queue, count: rng.u32(..3), corruption: Corruption::LengthTooLong },
        _ => Fault::NeedsSecondReset,
    }
}

/// A ring that works, so that the noise in it is looked at.
fn enable_ring(card: &mut Card, rng: &mut Rng) {
    let queue = rng.usize(..128);
    for (register, value) in [
        (Register::RDBAL, rng.u32(..0xf000) & !0x7f),
        (Register::RDLEN, 1024),
        (Register::RXDCTL, registers::DCTL_ENABLE),
        (Register::RDT, rng.u32(..64)),
        (Register::TDBAL, rng.u32(..0xf000) & !0x7f),
        (Register::TDLEN, 1024),
        (Register::TXDCTL, registers::DCTL_ENABLE),
        (Register::TDT, rng.u32(..64)),
    ] {
        card.write(register.offset(queue), value);
    }
    for (register, value) in [
        (Register::RXCTRL, registers::RXCTRL_RXEN),
        (Register::DMATXCTL, registers::DMATXCTL_TE),
        (Register::SECRXCTRL, 0),
        (Register::SECTXCTRL, 0),
        (Register::CTRL, 0),
        (Register::FCTRL, rng.u32(..)),
        (Register::HLREG0, rng.u32(..)),
        (Register::AUTOC, registers::AUTOC_FLU),
    ] {
        card.write(register.offset(0), value);
    }
}

#[test]
fn no_sequence_of_accesses_brings_the_card_down() {
    let registers: Vec<Register> = Register::all().collect();
    let (mut sent, mut received) = (0, 0);
    for seed in 0..ROUNDS as u64 {
        let mut rng = Rng::with_seed(seed);
        let model = *rng.choice(&[Model::Sfp82599, Model::X540, Model::X550]).expect("a choice");
        let overrun = *rng.choice(&[Overrun::Wait, Overrun::Miss]).expect("a choice");
        let mut card = Card::new(CardOptions { model, overrun, ..CardOptions::default() });
        let memory = Noise::new(&mut rng);
        let mut wire = Babble(rng.fork());
        let mut host = (seed % 2 == 0).then(|| {
            HostDriver::start(&mut card, &[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], Policy::default())
        });
        let mut time = Duration::ZERO;
        for _ in 0..STEPS {
            let register = registers[rng.usize(..registers.len())];
            let offset = register.offset(rng.usize(..register.row().count()));
            match rng.u8(..12) {
                0..4 => card.write(offset, value(&mut rng)),
                4 | 5 => drop(card.read(offset)),
                6 => drop(card.read(rng.u32(..))),
                7 => drop(card.run(&memory, &mut wire)),
                8 => drop(card.take_interrupts()),
                9 => enable_ring(&mut card, &mut rng),
                10 => card.inject(fault(&mut rng)),
                _ => {
                    time += Duration::from_micros(rng.u64(..2000));
                    card.advance(time);
                }
            }
            sent += card.read(Register::GPTC.offset(0));
            received += card.read(Register::RXDGPC.offset(0));
            if let Some(host) = &mut host {
                card.write_virtual(rng.usize(..2), rng.u32(..0x4000), value(&mut rng));
                card.read_virtual(rng.usize(..2), rng.u32(..0x4000));
                card.take_virtual_interrupts(rng.usize(..2));
                host.serve(&mut card);
            }
        }
        assert!(!card.violations().is_empty(), "seed {seed}: the noise broke no rule");
    }
    assert!(sent > 100 && received > 100, "the noise reached the engines: {sent} sent, {received} received");
}

//! The SFP+ module behind the two wires of I2CCTL (datasheet 8.2.3.1.5; SFF-8472; the I2C-bus specification).
//!
//! The driver is the master and moves both wires by hand. Both are open drain: a wire is high when nobody pulls it.

use crate::core::Core;
use crate::options::{Model, Module};
use crate::registers::*;

/// The address of the module's identity (SFF-8472, A0h), without the direction bit.
const IDENTITY: u8 = 0xa0 >> 1;

/// The module as a slave on the bus.
pub(crate) struct Bus {
    /// What the module says of itself; `None` where there is nobody to answer.
    identity: Option<[u8; 256]>,
    /// The next byte of it that is read or written.
    pointer: u8,
    state: State,
    /// The wires as the master left them.
    clock: bool,
    data: bool,
    /// The module pulls the data wire down.
    pulls: bool,
}

/// Where in a transfer the module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No transfer, or one that is for somebody else.
    Idle,
    /// Bits of a byte come in.
    Receiving { what: Byte, bits: u8, value: u8 },
    /// The byte was for us: the data wire is pulled for a clock.
    Acknowledging(Next),
    /// A byte goes out, its highest bit first.
    Sending { value: u8, left: u8 },
    /// The master says whether it wants another.
    Asking,
}

/// What the byte that comes in means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Address,
    Pointer,
    Data,
}

/// What follows an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Receive(Byte),
    Send,
}

impl Bus {
    pub(crate) fn new(core: &Core) -> Bus {
        let caged = core.options.model == Model::Sfp82599;
        Bus {
            identity: caged.then(|| identity(core.options.module)).flatten(),
            pointer: 0,
            state: State::Idle,
            clock: true,
            data: true,
            pulls: false,
        }
    }

    /// The master moves the wires; the two lowest bits that are read show what is on them.
    pub(crate) fn write(&mut self, core: &mut Core, value: u32) {
        let (clock, data) = (value & I2CCTL_CLK_OUT != 0, value & I2CCTL_DATA_OUT != 0);
        match (self.clock, clock) {
            (true, true) if self.data && !data => self.start(),
            (true, true) if !self.data && data => self.stop(),
            (false, true) => self.rise(data),
            (true, false) => self.fall(),
            _ => {}
        }
        (self.clock, self.data) = (clock, data);
        let shown = |set: bool, bit: u32| if set { bit } else { 0 };
        let outputs = value & (I2CCTL_CLK_OUT | I2CCTL_DATA_OUT);
        let inputs = shown(clock, I2CCTL_CLK_IN) | shown(data && !self.pulls, I2CCTL_DATA_IN);
        core.values.set(Register::I2CCTL, outputs | inputs);
    }

    fn start(&mut self) {
        self.pulls = false;
        self.state = match self.identity {
            Some(_) => State::Receiving { what: Byte::Address, bits: 0, value: 0 },
            None => State::Idle,
        };
    }

    fn stop(&mut self) {
        self.pulls = false;
        self.state = State::Idle;
    }

    /// Bits are valid while the clock is high.
    fn rise(&mut self, data: bool) {
        match &mut self.state {
            State::Receiving { bits, value, .. } => {
                *value = *value << 1 | u8::from(data);
                *bits += 1;
            }
            // The master wants no more: it leaves the wire up.
            State::Asking if data => self.state = State::Idle,
            _ => {}
        }
    }

    /// The wires change while the clock is low.
    fn fall(&mut self) {
        match self.state {
            State::Receiving { what, bits: 8, value } => self.received(what, value),
            State::Acknowledging(Next::Receive(what)) => {
                self.pulls = false;
                self.state = State::Receiving { what, bits: 0, value: 0 };
            }
            State::Acknowledging(Next::Send) | State::Asking => self.load(),
            State::Sending { left: 0, .. } => {
                self.pulls = false;
                self.state = State::Asking;
            }
            State::Sending { value, left } => self.shift(value, left),
            State::Receiving { .. } | State::Idle => {}
        }
    }

    fn received(&mut self, what: Byte, value: u8) {
        let next = match what {
            Byte::Address if value >> 1 != IDENTITY => None,
            Byte::Address if value & 1 == 1 => Some(Next::Send),
            Byte::Address => Some(Next::Receive(Byte::Pointer)),
            Byte::Pointer => {
                self.pointer = value;
                Some(Next::Receive(Byte::Data))
            }
            Byte::Data => {
                self.store(value);
                Some(Next::Receive(Byte::Data))
            }
        };
        self.pulls = next.is_some();
        self.state = next.map_or(State::Idle, State::Acknowledging);
    }

    /// Only what the vendor left to the user can be written (SFF-8472: bytes 128 to 255).
    fn store(&mut self, value: u8) {
        if let Some(identity) = &mut self.identity
            && self.pointer >= 128
        {
            identity[usize::from(self.pointer)] = value;
        }
        self.pointer = self.pointer.wrapping_add(1);
    }

    fn load(&mut self) {
        let value = self.identity.map_or(0xff, |identity| identity[usize::from(self.pointer)]);
        self.pointer = self.pointer.wrapping_add(1);
        self.shift(value, 8);
    }

    /// Puts the highest bit of what is left on the wire.
    fn shift(&mut self, value: u8, left: u8) {
        self.pulls = value & 0x80 == 0;
        self.state = State::Sending { value: value << 1, left: left - 1 };
    }
}

/// The first page of a module (SFF-8472, table 4-1); `None` for an empty cage.
fn identity(module: Module) -> Option<[u8; 256]> {
    const SFP: u8 = 3;
    const LC: u8 = 0x07;
    const COPPER_PIGTAIL: u8 = 0x21;
    const SR: u8 = 0x10;
    const LR: u8 = 0x20;
    const PASSIVE: u8 = 0x04;
    let (connector, compliance, cable) = match module {
        Module::Empty => return None,
        Module::Sr => (LC, SR, 0),
        Module::Lr => (LC, LR, 0),
        Module::Twinax => (COPPER_PIGTAIL, 0, PASSIVE),
        Module::Unknown => (LC, 0, 0),
    };
    let mut page = [0; 256];
    page[0] = SFP;
    page[1] = 0x04;
    page[2] = connector;
    page[3] = compliance;
    page[8] = cable;
    // 10.3 Gbd.
    page[12] = 103;
    page[20..36].copy_from_slice(b"SLUICE          ");
    // An identifier that drivers know, so that they take the module for a supported one.
    page[37..40].copy_from_slice(&[0x00, 0x1b, 0x21]);
    page[40..56].copy_from_slice(b"MODEL           ");
    page[56..60].copy_from_slice(b"A   ");
    page[68..84].copy_from_slice(b"0001            ");
    page[84..92].copy_from_slice(b"260101  ");
    page[63] = page[..63].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    page[95] = page[64..95].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CardOptions;

    /// The master's side, one wire at a time.
    struct Master {
        core: Core,
        bus: Bus,
        wires: u32,
    }

    impl Master {
        fn new(module: Module) -> Master {
            let core = Core::new(CardOptions { module, ..CardOptions::default() });
            let bus = Bus::new(&core);
            Master { core, bus, wires: I2CCTL_CLK_OUT | I2CCTL_DATA_OUT }
        }

        fn set(&mut self, wire: u32, up: bool) {
            self.wires = if up { self.wires | wire } else { self.wires & !wire };
            self.bus.write(&mut self.core, self.wires);
        }

        fn start(&mut self) {
            self.set(I2CCTL_DATA_OUT, true);
            self.set(I2CCTL_CLK_OUT, true);
            self.set(I2CCTL_DATA_OUT, false);
            self.set(I2CCTL_CLK_OUT, false);
        }

        fn stop(&mut self) {
            self.set(I2CCTL_DATA_OUT, false);
            self.set(I2CCTL_CLK_OUT, true);
            self.set(I2CCTL_DATA_OUT, true);
        }

        /// One clock; what is on the data wire meanwhile.
        fn clock(&mut self, data: bool) -> bool {
            self.set(I2CCTL_DATA_OUT, data);
            self.set(I2CCTL_CLK_OUT, true);
            assert!(self.core.values.has(Register::I2CCTL, I2CCTL_CLK_IN), "nobody stretches the clock");
            let seen = self.core.values.has(Register::I2CCTL, I2CCTL_DATA_IN);
            self.set(I2CCTL_CLK_OUT, false);
            seen
        }

        /// Sends a byte; whether it was acknowledged.
        fn send(&mut self, byte: u8) -> bool {
            (0..8).rev().for_each(|bit| {
                self.clock(byte >> bit & 1 == 1);
            });
            !self.clock(true)
        }

        fn receive(&mut self, more: bool) -> u8 {
            let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.clock(true)));
            self.clock(!more);
            byte
        }

        fn read(&mut self, from: u8, count: usize) -> Option<Vec<u8>> {
            self.start();
            let answered = self.send(0xa0) && self.send(from);
            self.start();
            let bytes =
                (answered && self.send(0xa1)).then(|| (1..=count).map(|n| self.receive(n < count)).collect());
            self.stop();
            bytes
        }
    }

    #[test]
    fn a_module_tells_what_it_is() {
        for (module, compliance, cable) in
            [(Module::Sr, 0x10, 0), (Module::Lr, 0x20, 0), (Module::Twinax, 0, 4), (Module::Unknown, 0, 0)]
        {
            let mut master = Master::new(module);
            assert_eq!(master.read(0, 1), Some(vec![3]), "{module:?}");
            assert_eq!(master.read(3, 1), Some(vec![compliance]), "{module:?}");
            assert_eq!(master.read(8, 1), Some(vec![cable]), "{module:?}");
            assert_eq!(master.read(20, 6).as_deref(), Some(&b"SLUICE"[..]), "{module:?}");
        }
    }

    #[test]
    fn the_check_sums_of_a_module_are_right() {
        let mut master = Master::new(Module::Sr);
        let page = master.read(0, 96).expect("a module");
        let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum(&page[..63]), page[63]);
        assert_eq!(sum(&page[64..95]), page[95]);
    }

    #[test]
    fn nobody_answers_in_an_empty_cage_or_at_another_address() {
        assert_eq!(Master::new(Module::Empty).read(0, 1), None);
        let mut master = Master::new(Module::Sr);
        master.start();
        assert!(!master.send(0xa2), "no diagnostics");
        master.stop();
        assert_eq!(master.read(0, 1), Some(vec![3]));
    }

    #[test]
    fn the_identity_cannot_be_written() {
        let mut master = Master::new(Module::Sr);
        for (at, value) in [(0, 0x55), (200, 0x66)] {
            master.start();
            assert!(master.send(0xa0) && master.send(at) && master.send(value));
            master.stop();
        }
        assert_eq!(master.read(0, 1), Some(vec![3]));
        assert_eq!(master.read(200, 1), Some(vec![0x66]));
    }
}

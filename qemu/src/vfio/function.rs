//! Which function of the card is plugged into the machine: the card as a whole, or a virtual function of it.

use std::time::Duration;

use ixgbe_model::{Card, CardOptions, Fault, HostDriver, PciIds, Policy};

use super::config_space::{Layout, PHYSICAL, VIRTUAL};

/// The virtual function that is plugged in, where one is.
const FIRST: usize = 0;
/// The control register of either kind of function, and its bit for a reset (82599 datasheet, 8.2.3.1.1, 8.3.5.1.1).
const CONTROL: u32 = 0;
const RESET: u32 = 1 << 26;

/// How long a message of a written register may take: QEMU does not wait for it, and the thread that reads it may have to
/// wait for a processor.
const WRITE_DELAY: Duration = Duration::from_secs(1);

/// A function.
pub(super) enum Function {
    /// The physical one: the machine has the card to itself.
    Physical,
    /// A virtual one: the card is in this process's hands, as in those of a host that lends it.
    Virtual(HostDriver),
}

impl Function {
    /// A card that the machine has to itself.
    pub(super) fn physical(options: CardOptions) -> (Card, Function) {
        (card(options), Function::Physical)
    }

    /// A virtual function with the address of `options`, of a card that its host has set up.
    pub(super) fn lent(options: CardOptions, policy: Policy) -> (Card, Function) {
        let (address, settled) = (options.mac, options.reset_time.max(options.settle_time));
        let mut card = card(options);
        card.write(CONTROL, RESET);
        card.advance(settled);
        let host = HostDriver::start(&mut card, &[address], policy);
        (card, Function::Virtual(host))
    }

    pub(super) fn layout(&self) -> Layout {
        match self {
            Self::Physical => PHYSICAL,
            Self::Virtual(_) => VIRTUAL,
        }
    }

    pub(super) fn ids(&self, card: &Card) -> PciIds {
        match self {
            Self::Physical => card.ids(),
            Self::Virtual(_) => card.virtual_function_ids(),
        }
    }

    pub(super) fn read(&self, card: &mut Card, register: u32) -> u32 {
        match self {
            Self::Physical => card.read(register),
            Self::Virtual(_) => card.read_virtual(FIRST, register),
        }
    }

    pub(super) fn write(&mut self, card: &mut Card, register: u32, value: u32) {
        match self {
            Self::Physical => card.write(register, value),
            Self::Virtual(_) => card.write_virtual(FIRST, register, value),
        }
        self.serve(card);
    }

    /// Lets the host answer.
    pub(super) fn serve(&mut self, card: &mut Card) {
        if let Self::Virtual(host) = self {
            host.serve(card);
        }
    }

    /// What is reset with the bus: a virtual function alone, or the card.
    pub(super) fn reset(&mut self, card: &mut Card) {
        match self {
            Self::Physical => card.inject(Fault::SpontaneousReset),
            Self::Virtual(_) => self.write(card, CONTROL, RESET),
        }
    }

    pub(super) fn take_interrupts(&self, card: &mut Card) -> u64 {
        match self {
            Self::Physical => card.take_interrupts(),
            Self::Virtual(_) => card.take_virtual_interrupts(FIRST),
        }
    }
}

fn card(options: CardOptions) -> Card {
    Card::new(CardOptions { write_delay: WRITE_DELAY, ..options })
}

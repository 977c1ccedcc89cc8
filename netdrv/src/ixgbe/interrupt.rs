//! The interrupt of one receive queue: sent once after it was asked for.

use super::access::Rows;
use super::access::WriteOnly;
use super::gate::Gate;
use super::registers::{EIMC_EX, EIMS_EX};
use crate::mmio::Bar;

/// The interrupt of one receive queue, by its entry of the MSI-X table.
///
/// An entry masks itself when its message is sent (7.3.1.3). A frame that comes in while it is masked is remembered, and
/// the message is sent when it is unmasked: so a wake-up is never lost, at worst there is one for a frame that is
/// taken already.
pub(super) struct Interrupt<B: Bar> {
    bar: B,
    entry: Option<u16>,
    is_armed: bool,
}

impl<B: Bar> Interrupt<B> {
    /// The interrupt of table entry `entry`, or of none.
    pub(super) fn new(bar: B, entry: Option<u16>) -> Interrupt<B> {
        Interrupt { bar, entry, is_armed: false }
    }

    /// Asks for the message.
    pub(super) fn arm(&mut self, gate: &Gate) {
        self.is_armed = self.write(EIMS_EX, gate);
    }

    /// Takes that back, if there was a wish and whether or not it was fulfilled.
    #[inline(always)]
    pub(super) fn disarm(&mut self, gate: &Gate) {
        if self.is_armed {
            self.is_armed = false;
            self.write(EIMC_EX, gate);
        }
    }

    fn write(&self, register: Rows<WriteOnly>, gate: &Gate) -> bool {
        let Some(entry) = self.entry else { return false };
        gate.pass(|| register.row(usize::from(entry / 32)).write(&self.bar, 1 << (entry % 32)))
    }
}

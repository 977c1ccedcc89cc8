//! The interrupt of one receive queue: sent once after it was asked for.

use super::access::WriteOnly;
use super::gate::Gate;
use crate::mmio::Bar;

/// An entry of the MSI-X table: a bit of the registers that mask and unmask.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) unmask: WriteOnly,
    pub(super) mask: WriteOnly,
    pub(super) bit: u32,
}

/// The interrupt of one receive queue, by its entry of the MSI-X table.
///
/// An entry masks itself when its message is sent (7.3.1.3). A frame that comes in while it is masked is remembered, and
/// the message is sent when it is unmasked: so a wake-up is never lost, at worst there is one for a frame that is
/// taken already.
pub(super) struct Interrupt<B: Bar> {
    bar: B,
    entry: Option<Entry>,
    is_armed: bool,
}

impl<B: Bar> Interrupt<B> {
    /// The interrupt of an entry, or of none.
    pub(super) fn new(bar: B, entry: Option<Entry>) -> Interrupt<B> {
        Interrupt { bar, entry, is_armed: false }
    }

    /// Asks for the message.
    pub(super) fn arm(&mut self, gate: &Gate) {
        let Some(Entry { unmask, bit, .. }) = self.entry else { return };
        self.is_armed = gate.pass(|| unmask.write(&self.bar, bit));
    }

    /// Takes that back, if there was a wish and whether or not it was fulfilled.
    #[inline(always)]
    pub(super) fn disarm(&mut self, gate: &Gate) {
        if self.is_armed {
            self.mask(gate);
        }
    }

    #[cold]
    fn mask(&mut self, gate: &Gate) {
        self.is_armed = false;
        let Some(Entry { mask, bit, .. }) = self.entry else { return };
        gate.pass(|| mask.write(&self.bar, bit));
    }
}

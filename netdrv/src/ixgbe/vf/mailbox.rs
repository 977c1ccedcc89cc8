//! The mailbox: sixteen words that the two functions share, and flags that say whose turn it is (7.10.2.9).

use super::registers::*;
use crate::ixgbe::access::Readable;
use crate::mmio::Bar;

/// Words of the longest message that the driver reads.
pub(super) const WORDS: usize = 5;

/// The function's side.
#[derive(Clone, Copy, Default)]
pub(super) struct Mailbox {
    /// Flags that a read has cleared, until somebody has used them.
    kept: u32,
}

impl Mailbox {
    /// The flags as they are, and those that have come up since they were last forgotten.
    pub(super) fn look(&mut self, bar: &impl Bar) -> u32 {
        let flags = VFMAILBOX.take(bar);
        self.kept |= flags & vfmailbox::CLEARED;
        flags | self.kept
    }

    /// Nothing that happened before counts.
    pub(super) fn forget(&mut self) {
        self.kept = 0;
    }

    /// Sends a request. False, and nothing done, while the memory is the other side's.
    pub(super) fn send(&mut self, bar: &impl Bar, request: &[u32]) -> bool {
        if !self.seize(bar) {
            return false;
        }
        // What came before is overwritten.
        self.kept &= !(vfmailbox::MESSAGE | vfmailbox::ACKNOWLEDGED);
        VFMBMEM.all().zip(request).for_each(|(register, word)| register.write(bar, *word));
        VFMAILBOX.command(bar, vfmailbox::REQUEST);
        true
    }

    /// The message that has come in, if one has.
    pub(super) fn receive(&mut self, bar: &impl Bar) -> Option<[u32; WORDS]> {
        if self.look(bar) & vfmailbox::MESSAGE == 0 || !self.seize(bar) {
            return None;
        }
        self.kept &= !vfmailbox::MESSAGE;
        let message = core::array::from_fn(|word| VFMBMEM.row(word).read(bar));
        VFMAILBOX.command(bar, vfmailbox::ACKNOWLEDGE);
        Some(message)
    }

    fn seize(&mut self, bar: &impl Bar) -> bool {
        VFMAILBOX.command(bar, vfmailbox::OURS);
        self.look(bar) & vfmailbox::OURS != 0
    }
}

//! Whether a queue still moves what it has.

use alloc::vec::Vec;

use super::access::{ReadWrite, Readable};
use super::gate::Notice;
use crate::mmio::Bar;

/// Looks without progress after which a queue counts as hung: five seconds, as in Linux. In a virtual machine, whoever plays the
/// card may well be off its CPU for one or two.
const PATIENCE: u8 = 4;

/// How far a queue was: what it takes back next, and what the card completes next.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    clean: u32,
    head: u32,
    /// For how many looks it has been there although it should have moved.
    still: u8,
}

impl Progress {
    /// Another look: whether the queue has not moved for too long.
    pub(super) fn is_stuck(&mut self, should_move: bool, clean: u32, head: u32) -> bool {
        let is_still = should_move && (clean, head) == (self.clean, self.head);
        let still = if is_still { self.still + 1 } else { 0 };
        *self = Progress { clean, head, still };
        still >= PATIENCE
    }
}

/// How far the transmit queues were.
pub(super) struct TxProgress(Vec<Progress>);

impl TxProgress {
    pub(super) fn new(queues: usize) -> TxProgress {
        TxProgress((0..queues).map(|_| Progress::default()).collect())
    }

    /// The card's life begins: nothing is known of it.
    pub(super) fn begin(&mut self) {
        self.0.fill(Progress::default());
    }

    /// The queue that has frames and moves none: the card fetches none of them, or has fetched all and reports none although
    /// the queue's owner looks for that.
    pub(super) fn hung<'a>(
        &mut self,
        bar: &impl Bar,
        head_of: impl Fn(usize) -> ReadWrite,
        notices: impl Iterator<Item = &'a Notice>,
    ) -> Option<usize> {
        let mut hung = None;
        for (queue, (notice, progress)) in notices.zip(&mut self.0).enumerate() {
            let (clean, published) = notice.progress();
            // A register is read only where there is a question.
            let has_frames = clean != published;
            let head = if has_frames { head_of(queue).read(bar) } else { 0 };
            let waits_in_vain = notice.take_vain_looks() > 0;
            if progress.is_stuck(has_frames && (head != published || waits_in_vain), clean, head) {
                hung = hung.or(Some(queue));
            }
        }
        hung
    }
}

//! Faults on demand: what a driver has to live through.

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The cable is pulled.
    LinkDown,
    /// The cable is plugged in again.
    LinkUp,
    /// The transmit queue fetches nothing more, until the card is reset.
    TransmitHang {
        /// Which.
        queue: u16,
    },
    /// Frames for the receive queue are thrown away, until the card is reset.
    ReceiveStall {
        /// Which.
        queue: u16,
    },
    /// The next completions of the transmit queue are not written: the frames are sent, but no DD says so.
    LostCompletions {
        /// Which.
        queue: u16,
        /// How many.
        count: u32,
    },
    /// The next write-backs of the receive queue are wrong.
    CorruptWriteBack {
        /// Which.
        queue: u16,
        /// How many.
        count: u32,
        /// In what way.
        corruption: Corruption,
    },
    /// The card resets itself, as on an internal error: every register is lost, and nobody is told.
    SpontaneousReset,
    /// STATUS says that the card still makes requests after it was told to stop, until it has been reset twice (erratum
    /// on master disable).
    MasterStaysEnabled,
    /// The card is pulled out of its slot: reads are all ones, and nothing else happens any more.
    Unplugged,
    /// After the next reset the link stays down; the one after that cures it.
    NeedsSecondReset,
}

/// What is wrong in a receive descriptor that is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A length beyond the buffer.
    LengthTooLong,
    /// Length zero.
    LengthZero,
    /// The error bits say that the frame is bad.
    ErrorBits,
    /// The end-of-packet bit is missing.
    NoEnd,
}

/// What is broken at present.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Transmit queues that hang.
    pub(crate) hung: u128,
    /// Receive queues that are stalled.
    pub(crate) stalled: u128,
    lost_completions: Vec<(u16, u32)>,
    corrupt: Vec<(u16, u32, Corruption)>,
    pub(crate) link: LinkFault,
    /// Resets until STATUS tells the truth about the master again.
    pub(crate) busy_master: u32,
    /// The card is gone.
    pub(crate) unplugged: bool,
}

/// What keeps the link down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// Nothing.
    #[default]
    None,
    /// Nothing yet: the next reset will go wrong.
    AtReset,
    /// A reset that went wrong; another one cures it.
    UntilReset,
}

impl Faults {
    /// Takes note of a fault that lasts.
    pub(crate) fn insert(&mut self, fault: Fault) {
        match fault {
            Fault::TransmitHang { queue } => self.hung |= bit(queue),
            Fault::ReceiveStall { queue } => self.stalled |= bit(queue),
            Fault::LostCompletions { queue, count } => self.lost_completions.push((queue, count)),
            Fault::CorruptWriteBack { queue, count, corruption } => {
                self.corrupt.push((queue, count, corruption));
            }
            Fault::NeedsSecondReset => self.link = LinkFault::AtReset,
            Fault::MasterStaysEnabled => self.busy_master = 2,
            Fault::Unplugged => self.unplugged = true,
            Fault::LinkDown | Fault::LinkUp | Fault::SpontaneousReset => {}
        }
    }

    /// A reset cures the queues, and the link if it is not the one that goes wrong.
    pub(crate) fn reset(&mut self) {
        (self.hung, self.stalled) = (0, 0);
        self.busy_master = self.busy_master.saturating_sub(1);
        self.link = match self.link {
            LinkFault::AtReset => LinkFault::UntilReset,
            LinkFault::None | LinkFault::UntilReset => LinkFault::None,
        };
    }

    /// Whether the completion that is about to be written is to be lost.
    pub(crate) fn loses_completion(&mut self, queue: u16) -> bool {
        let Some(at) = self.lost_completions.iter().position(|(of, _)| *of == queue) else { return false };
        self.lost_completions[at].1 = self.lost_completions[at].1.saturating_sub(1);
        if self.lost_completions[at].1 == 0 {
            self.lost_completions.swap_remove(at);
        }
        true
    }

    /// What is to be wrong in the receive descriptor that is about to be written.
    pub(crate) fn corruption(&mut self, queue: u16) -> Option<Corruption> {
        let at = self.corrupt.iter().position(|(of, ..)| *of == queue)?;
        let corruption = self.corrupt[at].2;
        self.corrupt[at].1 = self.corrupt[at].1.saturating_sub(1);
        if self.corrupt[at].1 == 0 {
            self.corrupt.swap_remove(at);
        }
        Some(corruption)
    }
}

/// The bit of a queue in a set of queues; none for a queue that does not exist.
fn bit(queue: u16) -> u128 {
    1u128.checked_shl(u32::from(queue)).unwrap_or(0)
}

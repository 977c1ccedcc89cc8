//! Looking after a running card: its link, its counters, and whether it still moves what it has.

use alloc::vec::Vec;

use super::access::{ClearOnRead, Readable};
use super::gate::Gates;
use super::progress::{Progress, TxProgress};
use super::registers::*;
use super::tx_mode::TxMode;
use super::wait::{MILLISECOND, SECOND};
use crate::device::{DeviceCounters, Link};
use crate::mmio::Bar;

/// How often the link is looked at.
pub(super) const LINK_PERIOD: u64 = 100 * MILLISECOND;
/// How often progress is looked at, and counters are read: the fastest of them take minutes to wrap.
pub(super) const PROGRESS_PERIOD: u64 = SECOND;
/// Counters of frames that came in damaged, or too short, or too long.
const ERRORS: [ClearOnRead; 6] = [CRCERRS, RLEC, RUC, RFC, ROC, RJC];

/// Reads all counters that the driver uses, which clears them.
pub(super) fn clear_counters(bar: &impl Bar) {
    let counters = ERRORS.into_iter().chain([RXMPC]).chain(QPRDC.all());
    counters.for_each(|counter| {
        counter.take(bar);
    });
}

/// What a look at the card found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// Nothing new.
    Nothing,
    /// The link has changed.
    LinkIs(Link, u32),
    /// This transmit queue no longer sends, or no longer reports.
    TxHung(usize),
    /// Frames for this receive queue come in, and do not reach its ring.
    RxStalled(usize),
    /// The card has lost what it was told: it has reset itself.
    Forgetful,
}

/// What was seen before.
pub(super) struct Watch {
    link: Link,
    had_link: bool,
    link_looked: Option<u64>,
    progress_looked: u64,
    tx: TxProgress,
    tx_mode: TxMode,
    /// By set of counters.
    rx: Vec<Progress>,
    rx_queues: usize,
    pub(super) counters: DeviceCounters,
}

impl Watch {
    pub(super) fn new(rx: usize, tx: usize, tx_mode: TxMode) -> Watch {
        Watch {
            link: Link::Down,
            had_link: false,
            link_looked: None,
            progress_looked: 0,
            tx: TxProgress::new(tx),
            tx_mode,
            rx: (0..rx.min(COUNTER_SETS)).map(|_| Progress::default()).collect(),
            rx_queues: rx,
            counters: DeviceCounters::default(),
        }
    }

    /// The card's life begins: nothing is known of it.
    pub(super) fn begin(&mut self, now: u64) {
        (self.had_link, self.link_looked, self.progress_looked) = (false, None, now);
        self.tx.begin();
        self.rx.fill(Progress::default());
    }

    /// Whether there was no link in this life.
    pub(super) fn never_had_link(&self) -> bool {
        !self.had_link
    }

    /// The link as it is at this moment.
    pub(super) fn link_now(&self, bar: &impl Bar) -> Link {
        links::link(LINKS.read(bar))
    }

    /// Looks at what is due. `gates` are those of the receive queues, then those of the transmit queues.
    pub(super) fn look(&mut self, bar: &impl Bar, gates: &Gates, now: u64) -> Finding {
        if self.link_looked.is_none_or(|looked| now.saturating_sub(looked) >= LINK_PERIOD) {
            self.link_looked = Some(now);
            if CTRL_EXT.read(bar) & ctrl_ext::DRIVER_LOADED == 0 {
                return Finding::Forgetful;
            }
            let finding = self.look_at_link(bar);
            if finding != Finding::Nothing {
                return finding;
            }
        }
        if now.saturating_sub(self.progress_looked) < PROGRESS_PERIOD {
            return Finding::Nothing;
        }
        self.progress_looked = now;
        let missed = self.read_counters(bar);
        // Without a link a card may keep what it has.
        if self.link == Link::Down {
            return Finding::Nothing;
        }
        let head = |queue| TX_RINGS.tdh.row(self.tx_mode.queue(queue));
        let hung = self.tx.hung(bar, head, gates.notices().skip(self.rx_queues));
        match (hung, self.stalled_rx(bar, gates, missed)) {
            (Some(queue), _) => Finding::TxHung(queue),
            (None, Some(queue)) => Finding::RxStalled(queue),
            (None, None) => Finding::Nothing,
        }
    }

    fn look_at_link(&mut self, bar: &impl Bar) -> Finding {
        let links = LINKS.read(bar);
        let link = links::link(links);
        self.had_link |= link == Link::Up;
        if link == self.link {
            return Finding::Nothing;
        }
        self.link = link;
        self.counters.link_changes += 1;
        Finding::LinkIs(link, links::speed(links))
    }

    /// Adds the card's counters to ours, and returns how many frames found no descriptor, by set of queues.
    pub(super) fn read_counters(&mut self, bar: &impl Bar) -> [u32; COUNTER_SETS] {
        let missed = core::array::from_fn(|set| QPRDC.row(set).take(bar));
        let counters = &mut self.counters;
        counters.errors += ERRORS.iter().map(|counter| u64::from(counter.take(bar))).sum::<u64>();
        counters.missed += u64::from(RXMPC.take(bar)) + missed.iter().copied().map(u64::from).sum::<u64>();
        missed
    }

    /// The first of a set of queues that has buffers and misses frames all the same. Queues that share a set, beyond 16, are
    /// judged together: which of them missed a frame is not known.
    fn stalled_rx(&mut self, bar: &impl Bar, gates: &Gates, missed: [u32; COUNTER_SETS]) -> Option<usize> {
        let mut stalled = None;
        for (set, progress) in self.rx.iter_mut().enumerate() {
            let queues = gates.notices().enumerate().take(self.rx_queues).skip(set).step_by(COUNTER_SETS);
            let (mut has_buffers, mut heads, mut tails) = (false, 0u32, 0u32);
            // A register is read only where there is a question.
            for (queue, notice) in queues.filter(|_| missed[set] > 0) {
                let (head, (_, tail)) = (RDH.row(queue).read(bar), notice.progress());
                has_buffers |= head != tail;
                heads = heads.wrapping_add(head);
                tails = tails.wrapping_add(tail);
            }
            if progress.is_stuck(has_buffers, tails, heads) {
                stalled = stalled.or(Some(set));
            }
        }
        stalled
    }
}

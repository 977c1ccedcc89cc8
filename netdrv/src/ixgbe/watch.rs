//! Looking after a running card: its link, its counters, and whether it still moves what it has.

use alloc::vec::Vec;

use super::access::{ClearOnRead, Readable};
use super::gate::Gates;
use super::registers::*;
use super::wait::{MILLISECOND, SECOND};
use crate::device::{DeviceCounters, Link};
use crate::mmio::Bar;

/// How often the link is looked at.
const LINK_PERIOD: u64 = 100 * MILLISECOND;
/// How often progress is looked at, and counters are read: the fastest of them take minutes to wrap.
const PROGRESS_PERIOD: u64 = SECOND;
/// Looks without progress after which a queue counts as hung.
const PATIENCE: u8 = 2;

/// Counters of frames that came in damaged, or too short, or too long.
const ERRORS: [ClearOnRead; 6] = [CRCERRS, RLEC, RUC, RFC, ROC, RJC];
/// Every counter that the driver reads.
pub(super) const COUNTERS: [ClearOnRead; 9] = [CRCERRS, RLEC, RUC, RFC, ROC, RJC, RXMPC, QPRDC, GPRC];

/// What a look at the card found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// Nothing new.
    Nothing,
    /// The link has changed.
    LinkIs(Link, u32),
    /// This transmit queue no longer sends, or no longer reports.
    TxHung(usize),
    /// Frames come in, and none reaches a ring.
    RxStalled,
}

/// What was seen before.
pub(super) struct Watch {
    link: Link,
    had_link: bool,
    link_looked: u64,
    progress_looked: u64,
    tx: Vec<Progress>,
    rx_heads: Vec<u32>,
    rx_stalled: u8,
    pub(super) counters: DeviceCounters,
}

/// How far a transmit queue was, and for how many looks it has been there.
#[derive(Clone, Copy, Default)]
struct Progress {
    clean: u32,
    head: u32,
    still: u8,
}

impl Watch {
    pub(super) fn new(rx: usize, tx: usize) -> Watch {
        Watch {
            link: Link::Down,
            had_link: false,
            link_looked: 0,
            progress_looked: 0,
            tx: (0..tx).map(|_| Progress::default()).collect(),
            rx_heads: (0..rx).map(|_| 0).collect(),
            rx_stalled: 0,
            counters: DeviceCounters::default(),
        }
    }

    /// The card's life begins: nothing is known of it.
    pub(super) fn begin(&mut self, now: u64) {
        (self.had_link, self.link_looked, self.progress_looked, self.rx_stalled) = (false, 0, now, 0);
        self.tx.fill(Progress::default());
        self.rx_heads.fill(0);
    }

    /// Whether there was no link in this life.
    pub(super) fn never_had_link(&self) -> bool {
        !self.had_link
    }

    /// The link as it is at this moment.
    pub(super) fn link_now(&self, bar: &impl Bar) -> Link {
        link_of(LINKS.read(bar))
    }

    /// Looks at what is due. `gates` are those of the receive queues, then those of the transmit queues.
    pub(super) fn look(&mut self, bar: &impl Bar, gates: &Gates, now: u64) -> Finding {
        if now.saturating_sub(self.link_looked) >= LINK_PERIOD {
            self.link_looked = now;
            let finding = self.look_at_link(bar);
            if finding != Finding::Nothing {
                return finding;
            }
        }
        if now.saturating_sub(self.progress_looked) < PROGRESS_PERIOD {
            return Finding::Nothing;
        }
        self.progress_looked = now;
        let arrived = self.read_counters(bar);
        // Without a link a card may keep what it has.
        if self.link == Link::Down {
            return Finding::Nothing;
        }
        match self.look_at_tx(bar, gates) {
            Some(queue) => Finding::TxHung(queue),
            None if self.look_at_rx(bar, gates, arrived) => Finding::RxStalled,
            None => Finding::Nothing,
        }
    }

    fn look_at_link(&mut self, bar: &impl Bar) -> Finding {
        let links = LINKS.read(bar);
        let link = link_of(links);
        self.had_link |= link == Link::Up;
        if link == self.link {
            return Finding::Nothing;
        }
        self.link = link;
        self.counters.link_changes += 1;
        Finding::LinkIs(link, links::speed(links))
    }

    /// Adds the card's counters to ours, and returns how many good frames it has received since the last time.
    pub(super) fn read_counters(&mut self, bar: &impl Bar) -> u32 {
        let counters = &mut self.counters;
        counters.errors += ERRORS.iter().map(|counter| u64::from(counter.take(bar))).sum::<u64>();
        counters.missed += u64::from(RXMPC.take(bar)) + u64::from(QPRDC.take(bar));
        GPRC.take(bar)
    }

    /// The queue that has frames and has not moved for too long: neither did the card fetch any, nor did it report any.
    fn look_at_tx(&mut self, bar: &impl Bar, gates: &Gates) -> Option<usize> {
        let notices = gates.notices().skip(self.rx_heads.len());
        let mut hung = None;
        for (queue, (notice, before)) in notices.zip(&mut self.tx).enumerate() {
            let (clean, published) = notice.progress();
            if clean == published {
                *before = Progress::default();
                continue;
            }
            let head = TDH.row(queue).read(bar);
            let is_still = (clean, head) == (before.clean, before.head);
            let still = if is_still { before.still + 1 } else { 0 };
            *before = Progress { clean, head, still };
            if still >= PATIENCE {
                hung = hung.or(Some(queue));
            }
        }
        hung
    }

    /// Whether frames have come in for too long, with buffers for them, and no ring has taken any.
    fn look_at_rx(&mut self, bar: &impl Bar, gates: &Gates, arrived: u32) -> bool {
        let mut has_moved = false;
        let mut has_buffers = false;
        for (queue, (notice, before)) in gates.notices().zip(&mut self.rx_heads).enumerate() {
            let head = RDH.row(queue).read(bar);
            has_moved |= head != *before;
            has_buffers |= head != notice.progress().1;
            *before = head;
        }
        let is_stalled = arrived > 0 && has_buffers && !has_moved;
        self.rx_stalled = if is_stalled { self.rx_stalled + 1 } else { 0 };
        self.rx_stalled >= PATIENCE
    }
}

/// A card that is gone has no link.
fn link_of(links: u32) -> Link {
    if links & links::UP != 0 && links != u32::MAX { Link::Up } else { Link::Down }
}

//! Looking after a running function: its link, what the physical function has to say, and whether queues still move.

use super::host;
use super::mailbox::Mailbox;
use super::registers::*;
use crate::device::{DeviceCounters, Link};
use crate::ixgbe::access::Readable;
use crate::ixgbe::gate::Gates;
use crate::ixgbe::progress::TxProgress;
use crate::ixgbe::registers::{RXDCTL, links, rxdctl};
use crate::ixgbe::watch::{LINK_PERIOD, PROGRESS_PERIOD};
use crate::mmio::Bar;

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// Nothing new.
    Nothing,
    /// The link has changed.
    LinkIs(Link, u32),
    /// This transmit queue no longer sends, or no longer reports.
    TxHung(usize),
    /// The physical function was reset, or is in reset.
    HostWasReset,
    /// The physical function wants everything to begin anew: it has other terms.
    Unwelcome,
    /// The function has lost what it was told.
    Forgetful,
}

/// What was seen before.
pub(super) struct Watch {
    link: Link,
    /// The physical function lets this one use the link.
    may_link: bool,
    looked: Option<u64>,
    progress_looked: u64,
    tx: TxProgress,
    rx_queues: usize,
    pub(super) counters: DeviceCounters,
}

impl Watch {
    pub(super) fn new(rx: usize, tx: usize) -> Watch {
        Watch {
            link: Link::Down,
            may_link: false,
            looked: None,
            progress_looked: 0,
            tx: TxProgress::new(tx),
            rx_queues: rx,
            counters: DeviceCounters::default(),
        }
    }

    /// The function's life begins, with a link or, if the physical function says so, without.
    pub(super) fn begin(&mut self, now: u64, may_link: bool) {
        (self.may_link, self.looked, self.progress_looked) = (may_link, None, now);
        self.tx.begin();
    }

    /// Looks at what is due. `gates` are those of the receive queues, then those of the transmit queues.
    pub(super) fn look(&mut self, bar: &impl Bar, mailbox: &mut Mailbox, gates: &Gates, now: u64) -> Finding {
        if self.looked.is_none_or(|looked| now.saturating_sub(looked) >= LINK_PERIOD) {
            self.looked = Some(now);
            let finding = self.look_at_host(bar, mailbox);
            if finding != Finding::Nothing {
                return finding;
            }
        }
        if now.saturating_sub(self.progress_looked) < PROGRESS_PERIOD {
            return Finding::Nothing;
        }
        self.progress_looked = now;
        // Without a link a card may keep what it has.
        if self.link == Link::Down {
            return Finding::Nothing;
        }
        let hung = self.tx.hung(bar, |queue| TX_RINGS.tdh.row(queue), gates.notices().skip(self.rx_queues));
        hung.map_or(Finding::Nothing, Finding::TxHung)
    }

    fn look_at_host(&mut self, bar: &impl Bar, mailbox: &mut Mailbox) -> Finding {
        let flags = mailbox.look(bar);
        if flags & (vfmailbox::HOST_IN_RESET | vfmailbox::HOST_WAS_RESET) != 0 {
            return Finding::HostWasReset;
        }
        if mailbox.receive(bar).is_some_and(host::is_farewell) {
            return Finding::Unwelcome;
        }
        if RXDCTL.row(0).read(bar) & rxdctl::ENABLE == 0 {
            return Finding::Forgetful;
        }
        self.look_at_link(bar)
    }

    fn look_at_link(&mut self, bar: &impl Bar) -> Finding {
        let links = VFLINKS.read(bar);
        let link = self.link_of(links);
        if link == self.link {
            return Finding::Nothing;
        }
        self.link = link;
        self.counters.link_changes += 1;
        Finding::LinkIs(link, links::speed(links))
    }

    /// The link at this moment.
    pub(super) fn link_now(&self, bar: &impl Bar) -> Link {
        self.link_of(VFLINKS.read(bar))
    }

    fn link_of(&self, links: u32) -> Link {
        if self.may_link { links::link(links) } else { Link::Down }
    }
}

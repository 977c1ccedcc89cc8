//! What a virtual function is told after each reset, when its terms are settled. Everything that concerns the whole card is
//! the physical function's: the link, filters, the longest frame, packet buffers.

use alloc::vec::Vec;

use super::mailbox::Mailbox;
use super::registers::*;
use crate::device::Mac;
use crate::ixgbe::access::in_fours;
use crate::ixgbe::enable::{self, RingPlace};
use crate::ixgbe::error::IxgbeError;
use crate::ixgbe::models::Family;
use crate::ixgbe::registers::{ivar, mrqc};
use crate::ixgbe::wait::Clock;
use crate::mmio::Bar;
use crate::rss;

/// Entries of a function's own RSS table.
const RSS_TABLE: u16 = 64;
/// RSS as a whole, in VFMRQC.
const RSS_ENABLE: u32 = 1 << 0;

/// Everything that the function has to know, and its way to the physical one.
pub(super) struct Setup<B: Bar> {
    pub(super) bar: B,
    pub(super) clock: Clock,
    pub(super) family: Family,
    pub(super) mailbox: Mailbox,
    /// The address that the function has where it is given none.
    pub(super) own_mac: Mac,
    pub(super) rx: Vec<RingPlace>,
    pub(super) tx: Vec<RingPlace>,
    /// Receive queues that interrupt, from queue 0 on.
    pub(super) interrupts: usize,
}

impl<B: Bar> Setup<B> {
    /// Interrupts, the receiving side, the transmitting side. Frames come in as soon as there are buffers.
    pub(super) fn configure(&self) -> Result<(), IxgbeError> {
        self.interrupts();
        self.spread_flows();
        let way = (&self.bar, self.clock);
        self.rx.iter().enumerate().try_for_each(|(queue, place)| enable::rx(way, queue, *place))?;
        self.tx.iter().enumerate().try_for_each(|(queue, place)| enable::tx(way, &TX_RINGS, queue, *place))
    }

    /// Receive queue `i` sends entry `i`, which masks itself then. All are masked now. The mailbox is looked at, not
    /// interrupted for: whoever is at its other end can't flood the machine.
    fn interrupts(&self) {
        if self.interrupts == 0 {
            return;
        }
        let bar = &self.bar;
        VTEIAM.write(bar, EVERY_VECTOR);
        VTEIAC.write(bar, EVERY_VECTOR);
        for queue in 0..self.interrupts {
            let vector = ivar::receive(queue, queue as u32);
            VTIVAR.row(queue / 2).replace(bar, ivar::receive_mask(queue), vector);
        }
    }

    /// RSS over all receive queues. Only the X550 has a key and a table for each function; with others the physical function
    /// has chosen them, and so which of our queues a flow comes to.
    fn spread_flows(&self) {
        let bar = &self.bar;
        let queues = self.rx.len();
        if self.family == Family::X550 {
            VFMRQC.write(bar, 0);
        }
        VFPSRTYPE.write(bar, vfpsrtype::queues(queues));
        if self.family != Family::X550 || queues == 1 {
            return;
        }
        for (register, key) in VFRSSRK.all().zip(in_fours(rss::KEY.into_iter())) {
            register.write(bar, key);
        }
        let table = rss::indirection(RSS_TABLE, queues as u16).map(|queue| queue as u8);
        for (register, queues) in VFRETA.all().zip(in_fours(table)) {
            register.write(bar, queues);
        }
        VFMRQC.write(bar, RSS_ENABLE | mrqc::FIELDS);
    }
}

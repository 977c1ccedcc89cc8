//! What a card is told after each reset, in the order of the datasheet's section 4.6.3.

use alloc::vec::Vec;

use super::access::{ReadWrite, Readable, Rows, in_fours};
use super::enable::{self, RingPlace};
use super::error::IxgbeError;
use super::models::{Medium, Model};
use super::registers::*;
use super::tx_mode::TxMode;
use super::wait::{self, Clock, MILLISECOND};
use super::watch;
use crate::mmio::Bar;
use crate::packet::FRAME_CAPACITY;
use crate::rss;

/// Everything that the card has to know.
pub(super) struct Setup<B: Bar> {
    pub(super) bar: B,
    pub(super) clock: Clock,
    pub(super) model: &'static Model,
    pub(super) rx: Vec<RingPlace>,
    pub(super) tx: Vec<RingPlace>,
    pub(super) tx_mode: TxMode,
    /// Receive queues that interrupt, from queue 0 on.
    pub(super) interrupts: usize,
}

/// How long the receive path may take to run empty.
const PATH_PATIENCE: u64 = 4 * MILLISECOND;

/// The longest frame that the MAC lets in, with its CRC: with a VLAN tag beside that, of which the MAC knows, it fills a
/// buffer, and no card ever writes past one although it believes that buffers are [`enable::BUFFER_KILOBYTES`] long.
const LONGEST_FRAME: u32 = (FRAME_CAPACITY - VLAN_TAG + CRC) as u32;
const VLAN_TAG: usize = 4;
const CRC: usize = 4;

/// The packet buffers, in KB: one of each direction gets everything (4.6.11.3.4).
const RX_BUFFER: u32 = 512;
const TX_BUFFER: u32 = 160;
/// No descriptor is fetched while there is less room than the largest frame takes, in KB.
const LARGEST_FRAME: u32 = 10;

impl<B: Bar> Setup<B> {
    /// Everything but the start of receiving, which waits until there are buffers.
    pub(super) fn configure(&self) -> Result<(), IxgbeError> {
        self.general();
        self.link();
        self.statistics();
        self.interrupts();
        self.receive()?;
        self.transmit()
    }

    /// General configuration (4.6.3.2). No flow control: a forwarder that stops its neighbour spreads a jam. PAUSE frames
    /// are for this link alone and go nowhere else (IEEE 802.3, 31B.1).
    fn general(&self) {
        let bar = &self.bar;
        CTRL_EXT.set(bar, ctrl_ext::NO_SNOOP_DISABLE | ctrl_ext::DRIVER_LOADED);
        FCCFG.write(bar, 0);
        MFLCN.write(bar, mflcn::DISCARD_PAUSE);
    }

    /// The link (4.6.4). Only a module's port needs settings of ours; others have theirs from the EEPROM or the firmware.
    fn link(&self) {
        let bar = &self.bar;
        if self.model.medium == Medium::Sfp {
            ESDP.clear(bar, esdp::LASER_OFF);
            AUTOC2.replace(bar, autoc2::SERIAL_PMD, autoc2::SERIAL_PMD_SFI);
            AUTOC.replace(bar, autoc::LINK_MODE, autoc::LINK_MODE_10G_SERIAL);
        }
        if self.model.medium != Medium::Copper {
            AUTOC.set(bar, autoc::RESTART);
        }
    }

    /// Counters start at 0 when they have been read (4.6.5). Each receive queue has a set of its own, as far as they reach.
    fn statistics(&self) {
        let sets = (0..self.rx.len().next_multiple_of(4)).map(|queue| (queue % COUNTER_SETS) as u8);
        for (register, sets) in RQSMR.all().zip(in_fours(sets)) {
            register.write(&self.bar, sets);
        }
        watch::clear_counters(&self.bar);
    }

    /// Interrupts (4.6.6): receive queue `i` sends entry `i`, which masks itself then. All are masked now. Link changes are
    /// looked for, not interrupted for: a loose plug can't flood the machine.
    fn interrupts(&self) {
        if self.interrupts == 0 {
            return;
        }
        let bar = &self.bar;
        GPIE.write(bar, gpie::MSIX | gpie::OTHER_CLEAR_DISABLE | gpie::AUTO_MASK | gpie::PENDING_BITS);
        EIAM_EX.all().for_each(|register| register.write(bar, u32::MAX));
        EIAC.write(bar, eiac::QUEUES);
        for queue in 0..self.interrupts {
            let vector = ivar::receive(queue, queue as u32);
            IVAR.row(queue / 2).replace(bar, ivar::receive_mask(queue), vector);
        }
    }

    /// The receiving side (4.6.7).
    fn receive(&self) -> Result<(), IxgbeError> {
        let bar = &self.bar;
        RXCTRL.clear(bar, rxctrl::ENABLE);
        // Every frame comes in, whatever its address and VLAN; tags stay in the frame.
        FCTRL.write(bar, fctrl::ALL_UNICAST | fctrl::ALL_MULTICAST | fctrl::BROADCAST);
        VLNCTRL.clear(bar, vlnctrl::FILTER);
        HLREG0.set(bar, hlreg0::RX_CRC_STRIP | hlreg0::JUMBO);
        MAXFRS.write(bar, maxfrs::bytes(LONGEST_FRAME));
        let rdrxctl = RDRXCTL.read(bar) & !rdrxctl::RSC_FIRST_SIZE;
        RDRXCTL.write(bar, rdrxctl | rdrxctl::CRC_STRIP | rdrxctl::RESERVED_ONES);
        split_buffer(bar, RXPBSIZE, rxpbsize::kilobytes(RX_BUFFER), 1);
        self.spread_flows();
        self.rx.iter().enumerate().try_for_each(|(queue, place)| enable::rx((bar, self.clock), queue, *place))
    }

    /// RSS over all receive queues (7.1.2.8): by addresses and ports.
    fn spread_flows(&self) {
        let bar = &self.bar;
        if self.rx.len() == 1 {
            return MRQC.write(bar, 0);
        }
        for (register, key) in RSSRK.all().zip(in_fours(rss::KEY.into_iter())) {
            register.write(bar, key);
        }
        let table = rss::indirection(self.model.family.rss_table(), self.rx.len() as u16);
        let table = in_fours(table.map(|queue| queue as u8));
        for (register, queues) in RETA.all().chain(ERETA.all()).zip(table) {
            register.write(bar, queues);
        }
        RXCSUM.set(bar, rxcsum::HASH);
        MRQC.write(bar, mrqc::RSS | mrqc::FIELDS);
    }

    /// The transmitting side (4.6.8).
    fn transmit(&self) -> Result<(), IxgbeError> {
        let bar = &self.bar;
        HLREG0.set(bar, hlreg0::TX_CRC | hlreg0::TX_PAD);
        RTTDCS.set(bar, rttdcs::ARBITER_DISABLE);
        let (mode, classes) = (self.tx_mode, self.tx_mode.classes());
        let buffer = TX_BUFFER / classes as u32;
        let (groups, outstanding) = match mode {
            TxMode::Plain => (mtqc::PLAIN, dtxmxszrq::MOST),
            TxMode::Classes => (mtqc::FOUR_CLASSES, dtxmxszrq::WITH_CLASSES),
        };
        MTQC.write(bar, groups);
        split_buffer(bar, TXPBSIZE, txpbsize::kilobytes(buffer), classes);
        split_buffer(bar, TXPBTHRESH, buffer - LARGEST_FRAME, classes);
        DTXMXSZRQ.write(bar, outstanding);
        if mode == TxMode::Classes {
            SECTXMINIFG.set(bar, sectxminifg::WITH_CLASSES);
        }
        RTTDCS.clear(bar, rttdcs::ARBITER_DISABLE);
        DMATXCTL.set(bar, dmatxctl::ENABLE);
        let enable = |(queue, place): (usize, &RingPlace)| {
            enable::tx((bar, self.clock), &TX_RINGS, mode.queue(queue), *place)
        };
        self.tx.iter().enumerate().try_for_each(enable)
    }

    /// Lets frames in, the last step of 4.6.7. The path from the MAC is held meanwhile: DMA that starts amid a frame can hang
    /// (82599 specification update).
    pub(super) fn start_receiving(&self) -> Result<(), IxgbeError> {
        let bar = &self.bar;
        SECRXCTRL.set(bar, secrxctrl::RX_DISABLE);
        let ready = (secrxstat::READY, secrxstat::READY);
        wait::until((bar, self.clock), SECRXSTAT, ready, PATH_PATIENCE, "the receive path to be empty")?;
        RXCTRL.set(bar, rxctrl::ENABLE);
        SECRXCTRL.clear(bar, secrxctrl::RX_DISABLE);
        Ok(())
    }
}

/// Gives each of the first `classes` traffic classes that much, the others nothing.
fn split_buffer(bar: &impl Bar, sizes: Rows<ReadWrite>, size: u32, classes: usize) {
    let all = core::iter::repeat_n(size, classes).chain(core::iter::repeat(0));
    sizes.all().zip(all).for_each(|(register, size)| register.write(bar, size));
}

//! The registers that the driver uses, and their bits: Intel 82599 10 GbE controller datasheet, chapter 8. The X540 and
//! the X550 have the same ones, except where a row says otherwise. Sections are those of the 82599's.

use super::access::{ClearOnRead, ReadOnly, ReadWrite, Rows, WriteOnly};

// ---- General (8.2.3.1) ----

/// Device control.
pub(super) const CTRL: ReadWrite = ReadWrite::at("CTRL", 0x0_0000);
pub(super) mod ctrl {
    /// The device is to start no more accesses to memory.
    pub(crate) const MASTER_DISABLE: u32 = 1 << 2;
    /// Resets the link's logic; clears itself.
    pub(crate) const LINK_RESET: u32 = 1 << 3;
    /// Resets the device; clears itself.
    pub(crate) const RESET: u32 = 1 << 26;
}

/// Device status.
pub(super) const STATUS: ReadOnly = ReadOnly::at("STATUS", 0x0_0008);
pub(super) mod status {
    /// Accesses to memory are outstanding or may be started.
    pub(crate) const MASTER_ENABLE: u32 = 1 << 19;
    /// Which of the chip's two ports this is.
    pub(crate) const LAN_ID: u32 = 0b11 << 2;
}

/// Extended device control.
pub(super) const CTRL_EXT: ReadWrite = ReadWrite::at("CTRL_EXT", 0x0_0018);
pub(super) mod ctrl_ext {
    /// No-snoop accesses are not used: 4.6.7 asks for this where a CPU's caches may hold buffers.
    pub(crate) const NO_SNOOP_DISABLE: u32 = 1 << 16;
    /// Tells the firmware that a driver is there.
    pub(crate) const DRIVER_LOADED: u32 = 1 << 28;
}

/// Software-definable pins of the port.
pub(super) const ESDP: ReadWrite = ReadWrite::at("ESDP", 0x0_0020);
pub(super) mod esdp {
    /// Pin 3: on boards with an SFP+ cage it turns the laser off.
    pub(crate) const LASER_OFF: u32 = 1 << 3;
}

/// The two wires to the SFP+ module.
pub(super) const I2CCTL: ReadWrite = ReadWrite::at("I2CCTL", 0x0_0028);
pub(super) mod i2cctl {
    pub(crate) const CLOCK_IN: u32 = 1 << 0;
    pub(crate) const CLOCK_OUT: u32 = 1 << 1;
    pub(crate) const DATA_IN: u32 = 1 << 2;
    pub(crate) const DATA_OUT: u32 = 1 << 3;
}

// ---- EEPROM, firmware, semaphores (8.2.3.2, 8.2.3.4) ----

/// EEPROM control.
pub(super) const EEC: ReadOnly = ReadOnly::at("EEC", 0x1_0010);
pub(super) mod eec {
    /// The device has loaded its defaults.
    pub(crate) const AUTO_READ_DONE: u32 = 1 << 9;
}

/// Semaphore between the two functions' drivers, and between them and the firmware.
pub(super) const SWSM: ReadWrite = ReadWrite::at("SWSM", 0x1_0140);
pub(super) mod swsm {
    /// Reads 0 to the driver that then has it; set by that read.
    pub(crate) const DRIVERS: u32 = 1 << 0;
    /// Sticks for the driver that then has it.
    pub(crate) const FIRMWARE: u32 = 1 << 1;
}

/// Who uses which part of the chip: drivers' bits, and the firmware's above them.
pub(super) const SW_FW_SYNC: ReadWrite = ReadWrite::at("SW_FW_SYNC", 0x1_0160);
pub(super) mod sw_fw_sync {
    /// A driver uses the pins to the module of port 0; the next bit is port 1's.
    pub(crate) const SW_PHY_0: u32 = 1 << 1;
    pub(crate) const SW_PHY_1: u32 = 1 << 2;
    /// From a driver's bit to the firmware's of the same part.
    pub(crate) const FIRMWARE_SHIFT: u32 = 5;
}

// ---- PCIe (8.2.3.4) ----

/// Extended PCIe control.
pub(super) const GCR_EXT: ReadWrite = ReadWrite::at("GCR_EXT", 0x1_1050);
pub(super) mod gcr_ext {
    /// Clears the buffers of accesses that were not carried out.
    pub(crate) const BUFFERS_CLEAR: u32 = 1 << 30;
}

// ---- Interrupts (8.2.3.5) ----

/// Causes that have come up; those written as 1 are cleared, and so are all by a read.
pub(super) const EICR: ClearOnRead = ClearOnRead::at("EICR", 0x0_0800);
/// Interrupts by entry of the MSI-X table, 32 in a word: unmask, mask, raise.
pub(super) const EIMS_EX: Rows<WriteOnly> = Rows::at("EIMS_EX", 0x0_0AA0, 4, 2);
pub(super) const EIMC_EX: Rows<WriteOnly> = Rows::at("EIMC_EX", 0x0_0AB0, 4, 2);
pub(super) const EICS_EX: Rows<WriteOnly> = Rows::at("EICS_EX", 0x0_0A90, 4, 2);
/// Those that mask themselves when they are sent.
pub(super) const EIAM_EX: Rows<WriteOnly> = Rows::at("EIAM_EX", 0x0_0AD0, 4, 2);
/// Masks causes; bits 15:0 are the queues'.
pub(super) const EIMC: WriteOnly = WriteOnly::at("EIMC", 0x0_0888);
pub(super) mod eimc {
    /// Every cause; bit 31 is reserved.
    pub(crate) const ALL: u32 = 0x7fff_ffff;
}
/// Causes that a sent message clears; bits 15:0 are the queues'.
pub(super) const EIAC: ReadWrite = ReadWrite::at("EIAC", 0x0_0810);
pub(super) mod eiac {
    pub(crate) const QUEUES: u32 = 0xffff;
}
/// Which entry a queue's cause goes to: a register for two queues.
pub(super) const IVAR: Rows<ReadWrite> = Rows::at("IVAR", 0x0_0900, 4, 64);
pub(super) mod ivar {
    /// The receive cause of queue `queue`, sent by entry `entry`, in the register of `queue / 2`.
    pub(crate) const fn receive(queue: usize, entry: u32) -> u32 {
        (VALID | entry) << shift(queue)
    }
    /// Where that is.
    pub(crate) const fn receive_mask(queue: usize) -> u32 {
        0xff << shift(queue)
    }
    const VALID: u32 = 1 << 7;
    const fn shift(queue: usize) -> u32 {
        16 * (queue as u32 % 2)
    }
}
/// How interrupts work altogether.
pub(super) const GPIE: ReadWrite = ReadWrite::at("GPIE", 0x0_0898);
pub(super) mod gpie {
    /// MSI-X messages.
    pub(crate) const MSIX: u32 = 1 << 4;
    /// Reading EICR clears no causes of others.
    pub(crate) const OTHER_CLEAR_DISABLE: u32 = 1 << 5;
    /// EIAM_EX counts.
    pub(crate) const AUTO_MASK: u32 = 1 << 30;
    /// The pending bits of the MSI-X table are kept.
    pub(crate) const PENDING_BITS: u32 = 1 << 31;
}

// ---- Link and MAC (8.2.3.22) ----

/// MAC control: what is added to and taken off a frame.
pub(super) const HLREG0: ReadWrite = ReadWrite::at("HLREG0", 0x0_4240);
pub(super) mod hlreg0 {
    /// The MAC appends the CRC.
    pub(crate) const TX_CRC: u32 = 1 << 0;
    /// The MAC takes the CRC off.
    pub(crate) const RX_CRC_STRIP: u32 = 1 << 1;
    /// Frames up to MAXFRS are received.
    pub(crate) const JUMBO: u32 = 1 << 2;
    /// The MAC pads frames to 64 bytes.
    pub(crate) const TX_PAD: u32 = 1 << 10;
    /// Loopback.
    pub(crate) const LOOPBACK: u32 = 1 << 15;
}
/// The longest frame, with CRC and without VLAN tag.
pub(super) const MAXFRS: ReadWrite = ReadWrite::at("MAXFRS", 0x0_4268);
pub(super) mod maxfrs {
    pub(crate) const fn bytes(len: u32) -> u32 {
        len << 16
    }
}
/// Flow control of the MAC.
pub(super) const MFLCN: ReadWrite = ReadWrite::at("MFLCN", 0x0_4294);
pub(super) mod mflcn {
    /// PAUSE frames are not handed to the host.
    pub(crate) const DISCARD_PAUSE: u32 = 1 << 1;
}
/// Flow control of the packet buffers.
pub(super) const FCCFG: ReadWrite = ReadWrite::at("FCCFG", 0x0_3D00);
/// Auto-negotiation control.
pub(super) const AUTOC: ReadWrite = ReadWrite::at("AUTOC", 0x0_42A0);
pub(super) mod autoc {
    /// Starts the link over; clears itself.
    pub(crate) const RESTART: u32 = 1 << 12;
    /// What the link is.
    pub(crate) const LINK_MODE: u32 = 0b111 << 13;
    /// 10 Gb/s, serial, without negotiation: SFI.
    pub(crate) const LINK_MODE_10G_SERIAL: u32 = 0b011 << 13;
}
/// More of the same.
pub(super) const AUTOC2: ReadWrite = ReadWrite::at("AUTOC2", 0x0_42A8);
pub(super) mod autoc2 {
    pub(crate) const SERIAL_PMD: u32 = 0b11 << 16;
    pub(crate) const SERIAL_PMD_SFI: u32 = 0b10 << 16;
}
/// State of the link.
pub(super) const LINKS: ReadOnly = ReadOnly::at("LINKS", 0x0_42A4);
pub(super) mod links {
    use crate::device::Link;

    const UP: u32 = 1 << 30;
    const SPEED_SHIFT: u32 = 28;
    /// On the X550: 5 or 2.5 Gb/s instead of 10 or 1 (331520 has no such bit).
    const HALFWAY: u32 = 1 << 27;
    /// Megabits a second.
    pub(crate) const fn speed(links: u32) -> u32 {
        match (links >> SPEED_SHIFT & 0b11, links & HALFWAY != 0) {
            (0b11, false) => 10_000,
            (0b11, true) => 2_500,
            (0b10, _) => 1_000,
            (0b01, false) => 100,
            (0b01, true) => 5_000,
            _ => 10,
        }
    }
    /// The link. A card that is gone has none.
    pub(crate) const fn link(links: u32) -> Link {
        if links & UP != 0 && links != u32::MAX { Link::Up } else { Link::Down }
    }
}

// ---- Receiving (8.2.3.7, 8.2.3.8) ----

/// Filters of the MAC.
pub(super) const FCTRL: ReadWrite = ReadWrite::at("FCTRL", 0x0_5080);
pub(super) mod fctrl {
    /// Every multicast frame is received.
    pub(crate) const ALL_MULTICAST: u32 = 1 << 8;
    /// Every unicast frame is received.
    pub(crate) const ALL_UNICAST: u32 = 1 << 9;
    /// Broadcasts are received.
    pub(crate) const BROADCAST: u32 = 1 << 10;
}
/// Filters by VLAN.
pub(super) const VLNCTRL: ReadWrite = ReadWrite::at("VLNCTRL", 0x0_5088);
pub(super) mod vlnctrl {
    /// Frames of VLANs that are not listed are dropped.
    pub(crate) const FILTER: u32 = 1 << 30;
}
/// Station addresses: lower four bytes, upper two.
pub(super) const RAL: Rows<ReadOnly> = Rows::at("RAL", 0x0_A200, 8, 128);
pub(super) const RAH: Rows<ReadOnly> = Rows::at("RAH", 0x0_A204, 8, 128);
pub(super) mod rah {
    /// The entry counts.
    pub(crate) const VALID: u32 = 1 << 31;
}
/// Checksums.
pub(super) const RXCSUM: ReadWrite = ReadWrite::at("RXCSUM", 0x0_5000);
pub(super) mod rxcsum {
    /// The descriptor has the RSS hash, not the packet's checksum.
    pub(crate) const HASH: u32 = 1 << 13;
}
/// How receive queues are chosen.
pub(super) const MRQC: ReadWrite = ReadWrite::at("MRQC", 0x0_5818);
pub(super) mod mrqc {
    /// By RSS alone.
    pub(crate) const RSS: u32 = 0b0001;
    /// Fields that count: addresses and ports of TCP, and of UDP; else addresses.
    const TCP_IPV4: u32 = 1 << 16;
    const IPV4: u32 = 1 << 17;
    const IPV6: u32 = 1 << 20;
    const TCP_IPV6: u32 = 1 << 21;
    const UDP_IPV4: u32 = 1 << 22;
    const UDP_IPV6: u32 = 1 << 23;
    /// All of them.
    pub(crate) const FIELDS: u32 = IPV4 | TCP_IPV4 | UDP_IPV4 | IPV6 | TCP_IPV6 | UDP_IPV6;
}
/// The RSS table: four entries in a register.
pub(super) const RETA: Rows<ReadWrite> = Rows::at("RETA", 0x0_5C00, 4, 32);
/// Its entries from 128 on, which the X550 alone has.
pub(super) const ERETA: Rows<ReadWrite> = Rows::at("ERETA", 0x0_EE80, 4, 96);
/// The RSS key: four bytes in a register.
pub(super) const RSSRK: Rows<ReadWrite> = Rows::at("RSSRK", 0x0_5C80, 4, 10);
/// Packet buffers of the receiving side, by traffic class.
pub(super) const RXPBSIZE: Rows<ReadWrite> = Rows::at("RXPBSIZE", 0x0_3C00, 4, 8);
pub(super) mod rxpbsize {
    pub(crate) const fn kilobytes(count: u32) -> u32 {
        count << 10
    }
}
/// The receiving side as a whole.
pub(super) const RXCTRL: ReadWrite = ReadWrite::at("RXCTRL", 0x0_3000);
pub(super) mod rxctrl {
    pub(crate) const ENABLE: u32 = 1 << 0;
}
/// DMA of the receiving side.
pub(super) const RDRXCTL: ReadWrite = ReadWrite::at("RDRXCTL", 0x0_2F00);
pub(super) mod rdrxctl {
    /// Frames lie in memory without CRC; agrees with HLREG0.
    pub(crate) const CRC_STRIP: u32 = 1 << 1;
    /// DMA is initialised.
    pub(crate) const DMA_INIT_DONE: u32 = 1 << 3;
    /// A field that must be written as 0.
    pub(crate) const RSC_FIRST_SIZE: u32 = 0b1_1111 << 17;
    /// Bits that must be written as 1.
    pub(crate) const RESERVED_ONES: u32 = 1 << 25 | 1 << 26;
}
/// The security engine of the receiving side.
pub(super) const SECRXCTRL: ReadWrite = ReadWrite::at("SECRXCTRL", 0x0_8D00);
pub(super) mod secrxctrl {
    /// Holds frames back.
    pub(crate) const RX_DISABLE: u32 = 1 << 1;
}
pub(super) const SECRXSTAT: ReadOnly = ReadOnly::at("SECRXSTAT", 0x0_8D04);
pub(super) mod secrxstat {
    /// Nothing is in the path any more.
    pub(crate) const READY: u32 = 1 << 0;
}
/// A receive ring: address, length in bytes, head, tail, control. 64 queues; those above are not used.
pub(super) const RDBAL: Rows<ReadWrite> = Rows::at("RDBAL", 0x0_1000, 0x40, 64);
pub(super) const RDBAH: Rows<ReadWrite> = Rows::at("RDBAH", 0x0_1004, 0x40, 64);
pub(super) const RDLEN: Rows<ReadWrite> = Rows::at("RDLEN", 0x0_1008, 0x40, 64);
pub(super) const RDH: Rows<ReadWrite> = Rows::at("RDH", 0x0_1010, 0x40, 64);
pub(super) const RDT: Rows<ReadWrite> = Rows::at("RDT", 0x0_1018, 0x40, 64);
pub(super) const RXDCTL: Rows<ReadWrite> = Rows::at("RXDCTL", 0x0_1028, 0x40, 64);
pub(super) mod rxdctl {
    pub(crate) const ENABLE: u32 = 1 << 25;
    /// VLAN tags are taken off.
    pub(crate) const VLAN_STRIP: u32 = 1 << 30;
}
/// What a queue's buffers are.
pub(super) const SRRCTL: Rows<ReadWrite> = Rows::at("SRRCTL", 0x0_1014, 0x40, 64);
pub(super) mod srrctl {
    /// Bytes of a buffer, in units of 1 KB.
    pub(crate) const fn buffer_kilobytes(count: u32) -> u32 {
        count
    }
    /// Advanced descriptors, one buffer each.
    pub(crate) const ADVANCED_ONE_BUFFER: u32 = 0b001 << 25;
    /// A frame that finds no descriptor is dropped; without this one full ring stops all others.
    pub(crate) const DROP: u32 = 1 << 28;
}
/// Hints to the CPU's caches.
pub(super) const DCA_RXCTRL: Rows<ReadWrite> = Rows::at("DCA_RXCTRL", 0x0_100C, 0x40, 64);
pub(super) mod dca_rxctrl {
    /// A bit that is 1 after reset and must be written as 0 (4.6.7).
    pub(crate) const RESERVED: u32 = 1 << 12;
}

// ---- Transmitting (8.2.3.9) ----

/// DMA of the transmitting side.
pub(super) const DMATXCTL: ReadWrite = ReadWrite::at("DMATXCTL", 0x0_4A80);
pub(super) mod dmatxctl {
    pub(crate) const ENABLE: u32 = 1 << 0;
}
/// The most bytes that are requested and not there yet.
pub(super) const DTXMXSZRQ: ReadWrite = ReadWrite::at("DTXMXSZRQ", 0x0_8100);
pub(super) mod dtxmxszrq {
    /// All that the device can have outstanding.
    pub(crate) const MOST: u32 = 0xfff;
    /// Less, so that no class waits long for another.
    pub(crate) const WITH_CLASSES: u32 = 0x010;
}
/// Gap between frames behind the security engine.
pub(super) const SECTXMINIFG: ReadWrite = ReadWrite::at("SECTXMINIFG", 0x0_8810);
pub(super) mod sectxminifg {
    /// What it has to be, in `SECTXDCB`, where there are several packet buffers.
    pub(crate) const WITH_CLASSES: u32 = 0x1f << 8;
}
/// Arbiter of the transmit queues.
pub(super) const RTTDCS: ReadWrite = ReadWrite::at("RTTDCS", 0x0_4900);
pub(super) mod rttdcs {
    /// Stopped, as it has to be while MTQC changes.
    pub(crate) const ARBITER_DISABLE: u32 = 1 << 6;
}
/// How transmit queues are grouped.
pub(super) const MTQC: ReadWrite = ReadWrite::at("MTQC", 0x0_8120);
pub(super) mod mtqc {
    /// Not at all: 64 queues, one packet buffer.
    pub(crate) const PLAIN: u32 = 0;
    /// By traffic class (`RT_Ena`), four of them: 128 queues, four packet buffers.
    pub(crate) const FOUR_CLASSES: u32 = 0b10 << 2 | 0b01;
}
/// Packet buffers of the transmitting side, by traffic class, and their thresholds in KB.
pub(super) const TXPBSIZE: Rows<ReadWrite> = Rows::at("TXPBSIZE", 0x0_CC00, 4, 8);
pub(super) mod txpbsize {
    pub(crate) const fn kilobytes(count: u32) -> u32 {
        count << 10
    }
}
pub(super) const TXPBTHRESH: Rows<ReadWrite> = Rows::at("TXPBTHRESH", 0x0_4950, 4, 8);
/// The registers of transmit rings, as for the receiving side. A virtual function has them at another place.
pub(super) struct TxRings {
    pub(super) tdbal: Rows<ReadWrite>,
    pub(super) tdbah: Rows<ReadWrite>,
    pub(super) tdlen: Rows<ReadWrite>,
    pub(super) tdh: Rows<ReadWrite>,
    pub(super) tdt: Rows<ReadWrite>,
    pub(super) txdctl: Rows<ReadWrite>,
}
impl TxRings {
    pub(super) const fn at(offset: u32, count: usize) -> TxRings {
        TxRings {
            tdbal: Rows::at("TDBAL", offset, 0x40, count),
            tdbah: Rows::at("TDBAH", offset + 0x04, 0x40, count),
            tdlen: Rows::at("TDLEN", offset + 0x08, 0x40, count),
            tdh: Rows::at("TDH", offset + 0x10, 0x40, count),
            tdt: Rows::at("TDT", offset + 0x18, 0x40, count),
            txdctl: Rows::at("TXDCTL", offset + 0x28, 0x40, count),
        }
    }
}
/// Those of a physical function: 128 queues, see [`TxMode`](super::tx_mode::TxMode).
pub(super) const TX_RINGS: TxRings = TxRings::at(0x0_6000, 128);
pub(super) mod txdctl {
    pub(crate) const ENABLE: u32 = 1 << 25;
    /// Prefetch when fewer descriptors than `prefetch` are on chip and at least `host` wait in memory; write back when
    /// `write_back` have gathered, 0 for at once (7.2.3.4).
    pub(crate) const fn thresholds(prefetch: u32, host: u32, write_back: u32) -> u32 {
        assert!(prefetch + write_back <= ON_CHIP, "more than the descriptors on chip");
        assert!(prefetch == 0 || host > 0, "a prefetch of nothing");
        prefetch | host << 8 | write_back << 16
    }
    /// Descriptors of a queue that the chip holds.
    const ON_CHIP: u32 = 40;
}

// ---- Statistics (8.2.3.23) ----

/// Frames with a bad CRC.
pub(super) const CRCERRS: ClearOnRead = ClearOnRead::at("CRCERRS", 0x0_4000);
/// Frames whose length field is wrong; too short; fragments; too long; jabber.
pub(super) const RLEC: ClearOnRead = ClearOnRead::at("RLEC", 0x0_4040);
pub(super) const RUC: ClearOnRead = ClearOnRead::at("RUC", 0x0_40A4);
pub(super) const RFC: ClearOnRead = ClearOnRead::at("RFC", 0x0_40A8);
pub(super) const ROC: ClearOnRead = ClearOnRead::at("ROC", 0x0_40AC);
pub(super) const RJC: ClearOnRead = ClearOnRead::at("RJC", 0x0_40B0);
/// Frames that found no room in the packet buffer; the first of eight.
pub(super) const RXMPC: ClearOnRead = ClearOnRead::at("RXMPC", 0x0_3FA0);
/// Which of 16 sets of counters a receive queue counts in: a register for four queues.
pub(super) const RQSMR: Rows<ReadWrite> = Rows::at("RQSMR", 0x0_2300, 4, 32);
/// Frames that found no descriptor, by set.
pub(super) const QPRDC: Rows<ClearOnRead> = Rows::at("QPRDC", 0x0_1430, 0x40, COUNTER_SETS);
pub(super) const COUNTER_SETS: usize = 16;

//! Bits of registers, by register. Sections as in the table.

/// CTRL: no new requests of the card on the bus (5.2.5.3.2).
pub const CTRL_PCIE_MASTER_DISABLE: u32 = 1 << 2;
/// CTRL: link reset.
pub const CTRL_LRST: u32 = 1 << 3;
/// CTRL: device reset.
pub const CTRL_RST: u32 = 1 << 26;
/// STATUS: the card may still make requests on the bus.
pub const STATUS_MASTER_ENABLED: u32 = 1 << 19;
/// CTRL_EXT: a driver is loaded, for the firmware to know.
pub const CTRL_EXT_DRV_LOAD: u32 = 1 << 28;
/// CTRL_EXT: virtual functions may go on after a reset of the physical function.
pub const CTRL_EXT_PFRSTD: u32 = 1 << 14;
/// ESDP: pin 2, which says that an SFP module is plugged in.
pub const ESDP_SDP2: u32 = 1 << 2;
/// ESDP: pin 3, which switches the laser off.
pub const ESDP_SDP3: u32 = 1 << 3;

/// I2CCTL: what is on the clock wire.
pub const I2CCTL_CLK_IN: u32 = 1 << 0;
/// I2CCTL: software lets the clock wire up.
pub const I2CCTL_CLK_OUT: u32 = 1 << 1;
/// I2CCTL: what is on the data wire.
pub const I2CCTL_DATA_IN: u32 = 1 << 2;
/// I2CCTL: software lets the data wire up.
pub const I2CCTL_DATA_OUT: u32 = 1 << 3;

/// EEC: bit-bang clock, chip select, data to and from the EEPROM.
pub const EEC_SK: u32 = 1 << 0;
/// EEC: chip select.
pub const EEC_CS: u32 = 1 << 1;
/// EEC: data to the EEPROM.
pub const EEC_DI: u32 = 1 << 2;
/// EEC: data from the EEPROM.
pub const EEC_DO: u32 = 1 << 3;
/// EEC: software asks for bit-bang access.
pub const EEC_EE_REQ: u32 = 1 << 6;
/// EEC: bit-bang access granted.
pub const EEC_EE_GNT: u32 = 1 << 7;
/// EEC: an EEPROM is there.
pub const EEC_EE_PRES: u32 = 1 << 8;
/// EEC: the EEPROM was read after the reset.
pub const EEC_AUTO_RD: u32 = 1 << 9;
/// EERD: start.
pub const EERD_START: u32 = 1 << 0;
/// EERD: done.
pub const EERD_DONE: u32 = 1 << 1;

/// SWSM: taken by reading it.
pub const SWSM_SMBI: u32 = 1 << 0;
/// SWSM: software against firmware.
pub const SWSM_SWESMBI: u32 = 1 << 1;

/// GPIE: MSI-X.
pub const GPIE_MULTIPLE_MSIX: u32 = 1 << 4;
/// GPIE: a read of EICR clears only other causes.
pub const GPIE_OCD: u32 = 1 << 5;
/// GPIE: EIAM is applied.
pub const GPIE_EIAME: u32 = 1 << 30;
/// GPIE: how MSI-X pending bits behave.
pub const GPIE_PBA_SUPPORT: u32 = 1 << 31;
/// EICR: queues, by IVAR.
pub const EICR_RTX_QUEUE: u32 = 0xffff;
/// EICR: a frame was missed.
pub const EICR_RX_MISS: u32 = 1 << 17;
/// EICR: a message of a virtual function.
pub const EICR_MAILBOX: u32 = 1 << 19;
/// EICR: the link came up or went down.
pub const EICR_LSC: u32 = 1 << 20;
/// EICR: an uncorrectable memory error.
pub const EICR_ECC: u32 = 1 << 28;
/// EICR: the timer.
pub const EICR_TCP_TIMER: u32 = 1 << 30;
/// IVAR: this entry holds.
pub const IVAR_INT_ALLOC_VAL: u32 = 1 << 7;
/// EITR: the write leaves the running interval alone.
pub const EITR_CNT_WDIS: u32 = 1 << 31;

/// FCTRL: bad frames are stored.
pub const FCTRL_SBP: u32 = 1 << 1;
/// FCTRL: every multicast passes.
pub const FCTRL_MPE: u32 = 1 << 8;
/// FCTRL: every unicast passes.
pub const FCTRL_UPE: u32 = 1 << 9;
/// FCTRL: broadcast passes.
pub const FCTRL_BAM: u32 = 1 << 10;
/// VLNCTRL: a tag's canonical-form bit must be as CFI says.
pub const VLNCTRL_CFIEN: u32 = 1 << 29;
/// VLNCTRL: the VLAN filter is on.
pub const VLNCTRL_VFE: u32 = 1 << 30;
/// MCSTCTRL: the hash filter is on.
pub const MCSTCTRL_MFE: u32 = 1 << 2;
/// RAH: this address holds.
pub const RAH_AV: u32 = 1 << 31;
/// ETQF: this filter holds.
pub const ETQF_FILTER_EN: u32 = 1 << 31;
/// ETQS: the queue holds.
pub const ETQS_QUEUE_EN: u32 = 1 << 31;

/// Each pool has a hash of its own (X550 datasheet, MRQC).
pub const MRQC_MULTIPLE_RSS: u32 = 1 << 13;
/// MRQC: TCP over IPv4 is hashed with ports.
pub const MRQC_TCP_IPV4: u32 = 1 << 16;
/// MRQC: IPv4 is hashed.
pub const MRQC_IPV4: u32 = 1 << 17;
/// MRQC: IPv6 is hashed.
pub const MRQC_IPV6: u32 = 1 << 20;
/// MRQC: TCP over IPv6 is hashed with ports.
pub const MRQC_TCP_IPV6: u32 = 1 << 21;
/// MRQC: UDP over IPv4 is hashed with ports.
pub const MRQC_UDP_IPV4: u32 = 1 << 22;
/// MRQC: UDP over IPv6 is hashed with ports.
pub const MRQC_UDP_IPV6: u32 = 1 << 23;

/// RXCTRL: the receiver is on.
pub const RXCTRL_RXEN: u32 = 1 << 0;
/// RDRXCTL: the CRC is stripped.
pub const RDRXCTL_CRC_STRIP: u32 = 1 << 1;
/// RDRXCTL: receive DMA is initialised.
pub const RDRXCTL_DMAIDONE: u32 = 1 << 3;
/// RXDCTL and TXDCTL: the ring is on.
pub const DCTL_ENABLE: u32 = 1 << 25;
/// TXDCTL: write everything back now.
pub const TXDCTL_SWFLSH: u32 = 1 << 26;
/// RXDCTL: VLAN tags are stripped.
pub const RXDCTL_VME: u32 = 1 << 30;
/// SRRCTL: a frame without a descriptor is dropped, and does not block the other queues.
pub const SRRCTL_DROP_EN: u32 = 1 << 28;
/// DMATXCTL: the transmitter is on.
pub const DMATXCTL_TE: u32 = 1 << 0;
/// TDWBAL: the head is written to memory.
pub const TDWBAL_HEAD_WB_EN: u32 = 1 << 0;
/// RTTDCS: the transmit arbiter is off, which a change of MTQC demands (8.2.3.10.1).
pub const RTTDCS_ARBDIS: u32 = 1 << 6;
/// SECTXCTRL and SECRXCTRL: the path is stopped.
pub const SEC_PATH_DIS: u32 = 1 << 1;
/// SECTXSTAT and SECRXSTAT: the path is empty.
pub const SEC_RDY: u32 = 1 << 0;

/// HLREG0: a CRC is appended.
pub const HLREG0_TXCRCEN: u32 = 1 << 0;
/// HLREG0: the CRC is stripped.
pub const HLREG0_RXCRCSTRP: u32 = 1 << 1;
/// HLREG0: frames longer than 1518 bytes, to MAXFRS.
pub const HLREG0_JUMBOEN: u32 = 1 << 2;
/// HLREG0: short frames are padded.
pub const HLREG0_TXPADEN: u32 = 1 << 10;
/// HLREG0: what is sent is received.
pub const HLREG0_LPBK: u32 = 1 << 15;
/// MFLCN: control frames that are no PAUSE are passed to the host.
pub const MFLCN_PMCF: u32 = 1 << 0;
/// MFLCN: PAUSE frames that are obeyed are not passed to the host.
pub const MFLCN_DPF: u32 = 1 << 1;
/// MFLCN: PAUSE frames are obeyed.
pub const MFLCN_RFCE: u32 = 1 << 3;
/// MSCA: the command is under way.
pub const MSCA_MDI_COMMAND: u32 = 1 << 30;
/// AUTOC: the link is forced up.
pub const AUTOC_FLU: u32 = 1 << 0;
/// AUTOC: restart auto-negotiation and link.
pub const AUTOC_RESTART_AN: u32 = 1 << 12;
/// LINKS: up.
pub const LINKS_UP: u32 = 1 << 30;
/// LINKS: 10 gigabit.
pub const LINKS_SPEED_10G: u32 = 3 << 28;
/// LINKS: 1 gigabit.
pub const LINKS_SPEED_1G: u32 = 2 << 28;

/// FDIRCTRL: the flow director is initialised.
pub const FDIRCTRL_INIT_DONE: u32 = 1 << 3;

/// VT_CTL: pools are on.
pub const VT_CTL_VT_ENA: u32 = 1 << 0;
/// VT_CTL: a multicast goes to every pool that wants it.
pub const VT_CTL_REPLICATION_EN: u32 = 1 << 30;
/// VT_CTL: there is no default pool.
pub const VT_CTL_DIS_DEF_POOL: u32 = 1 << 29;

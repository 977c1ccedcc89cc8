//! The registers that the model knows: a row each.
//!
//! Columns: name; access; value after a reset; where the register is, as `[count @ offset + stride]`, a further run of
//! the same array after a comma, and after a bar the addresses that are merely other names of the first ones; meaning.
//! Sections are those of Intel's 82599 datasheet (331520).

use super::{Access, Row, Run};

macro_rules! run {
    ($count:literal @ $offset:literal) => {
        Run { count: $count, offset: $offset, stride: 4 }
    };
    ($count:literal @ $offset:literal + $stride:literal) => {
        Run { count: $count, offset: $offset, stride: $stride }
    };
}

macro_rules! registers {
    ($( $section:literal { $(
        $name:ident $access:ident $reset:literal
        [$($count:literal @ $offset:literal $(+ $stride:literal)?),+ $(| $($twins:literal @ $twin:literal $(+ $step:literal)?),+)?]
        $meaning:literal;
    )+ } )+) => {
        /// A register, or an array of registers, by the name that the datasheet gives it.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Register { $($( $name, )+)+ }

        pub(super) const REGISTERS: &[Register] = &[ $($( Register::$name, )+)+ ];

        pub(super) const ROWS: &[Row] = &[ $($( Row {
            name: stringify!($name),
            access: Access::$access,
            reset: $reset,
            runs: &[ $( run!($count @ $offset $(+ $stride)?) ),+ ],
            aliases: &[ $($( run!($twins @ $twin $(+ $step)?) ),+)? ],
            meaning: $meaning,
            section: $section,
        }, )+)+ ];
    };
}

registers! {
    // General control
    "8.2.3.1" {
        CTRL        RW  0x0000_0000 [1 @ 0x00000 | 1 @ 0x00004]  "device control: resets, master disable";
        STATUS      RO  0x0008_0000 [1 @ 0x00008]  "device status: which function, master enabled";
        CTRL_EXT    RW  0x0000_0000 [1 @ 0x00018]  "extended device control: driver loaded, ordering";
        ESDP        RW  0x0000_0000 [1 @ 0x00020]  "software-definable pins";
        I2CCTL      RW  0x0000_000F [1 @ 0x00028]  "the two wires to the SFP module";
        LEDCTL      RW  0x0000_0000 [1 @ 0x00200]  "lights";
        EXVET       RW  0x8100_0000 [1 @ 0x05078]  "outer VLAN ethertype";
    }
    // EEPROM and flash
    "8.2.3.2" {
        EEC         RW  0x0000_2F00 [1 @ 0x10010]  "EEPROM control: presence, size, bit-bang";
        EERD        RW  0x0000_0000 [1 @ 0x10014]  "EEPROM read: address, start, done, data";
        EEWR        RW  0x0000_0000 [1 @ 0x10018]  "EEPROM write";
        FLA         RW  0x0000_0000 [1 @ 0x1001C]  "flash access";
        EEMNGCTL    RW  0x000C_0000 [1 @ 0x10110]  "EEPROM control by firmware: configuration done";
        EEMNGDATA   RO  0x0000_0000 [1 @ 0x10114]  "EEPROM data for firmware";
        FLMNGCTL    RO  0x0000_0000 [1 @ 0x10118]  "flash control by firmware";
        FLMNGDATA   RO  0x0000_0000 [1 @ 0x1011C]  "flash data for firmware";
        FLMNGCNT    RO  0x0000_0000 [1 @ 0x10120]  "flash count for firmware";
        FLOP        RO  0x0000_0000 [1 @ 0x1013C]  "flash opcodes";
        GRC         RW  0x0000_0000 [1 @ 0x10200]  "general receive control: wake-up, management";
        SRAMREL     RW  0x0000_0000 [1 @ 0x10210]  "shadow memory of the X540: release";
    }
    // Flow control
    "8.2.3.3" {
        PFCTOP      RW  0x0100_8808 [1 @ 0x03008]  "priority flow control type and opcode";
        FCTTV       RW  0x0000_0000 [4 @ 0x03200]  "how long a PAUSE lasts";
        FCRTL       RW  0x0000_0000 [8 @ 0x03220]  "below this much in the packet buffer: XON";
        PXON2OFF    RC  0x0000_0000 [8 @ 0x03240]  "XON to XOFF transitions";
        FCRTH       RW  0x0000_0000 [8 @ 0x03260]  "above this much in the packet buffer: XOFF";
        FCRTV       RW  0x0000_0000 [1 @ 0x032A0]  "when a PAUSE is refreshed";
        FCCFG       RW  0x0000_0000 [1 @ 0x03D00]  "transmit flow control";
        TFCS        RO  0x0000_0000 [1 @ 0x0CE00]  "transmit flow control status";
    }
    // PCIe
    "8.2.3.4" {
        GCR         RW  0x0000_0000 [1 @ 0x11000]  "PCIe control: completion timeout";
        GCR_EXT     RW  0x0000_0000 [1 @ 0x11050]  "extended PCIe control: virtualisation mode, buffer flush";
        FACTPS      RO  0x0000_0000 [1 @ 0x10150]  "power state of the functions";
        SWSM        RW  0x0000_0000 [1 @ 0x10140]  "software semaphore: a read takes it";
        FWSM        RO  0x0000_8000 [1 @ 0x10148]  "firmware semaphore: mode, valid";
        SW_FW_SYNC  RW  0x0000_0000 [1 @ 0x10160]  "which of software and firmware owns what";
        MREVID      RO  0x0000_0000 [1 @ 0x11064]  "mirrored revision id";
        PBACL       W1C 0x0000_0000 [1 @ 0x11068]  "MSI-X pending bits to clear, vectors 0 to 31";
        PBACL_EX    W1C 0x0000_0000 [7 @ 0x110C4]  "MSI-X pending bits to clear, vectors from 32 on";
        DCA_ID      RO  0x0000_0000 [1 @ 0x11070]  "requester id for direct cache access";
        DCA_CTRL    RW  0x0000_0001 [1 @ 0x11074]  "direct cache access: disabled";
        CIAA        RW  0x0000_0000 [1 @ 0x11088]  "indirect access to configuration space: address";
        CIAD        RW  0x0000_0000 [1 @ 0x1108C]  "indirect access to configuration space: data";
    }
    // Interrupts
    "8.2.3.5" {
        EICR        W1C 0x0000_0000 [1 @ 0x00800]  "interrupt causes";
        EICS        WO  0x0000_0000 [1 @ 0x00808]  "causes that software sets";
        EIAC        RW  0x0000_0000 [1 @ 0x00810]  "causes cleared when their message is sent";
        EITR        RW  0x0000_0000 [24 @ 0x00820, 105 @ 0x12300]  "least time between two messages of a vector";
        EIMS        RW  0x0000_0000 [1 @ 0x00880]  "mask: reads as the mask, a write enables";
        EIMC        WO  0x0000_0000 [1 @ 0x00888]  "mask: a write disables";
        EIAM        RW  0x0000_0000 [1 @ 0x00890]  "what is masked when its message is sent";
        EITRSEL     RW  0x0000_0000 [1 @ 0x00894]  "which EITR vectors 32 to 63 belong to virtual functions";
        GPIE        RW  0x0000_0000 [1 @ 0x00898]  "interrupt mode";
        IVAR        RW  0x0000_0000 [64 @ 0x00900]  "vectors of two queue pairs";
        IVAR_MISC   RW  0x0000_0000 [1 @ 0x00A00]  "vectors of the timer and of all other causes";
        EICS_EX     WO  0x0000_0000 [2 @ 0x00A90]  "vectors 0 to 63 that software triggers";
        EIMS_EX     RW  0x0000_0000 [2 @ 0x00AA0]  "mask of vectors 0 to 63: a write enables";
        EIMC_EX     WO  0x0000_0000 [2 @ 0x00AB0]  "mask of vectors 0 to 63: a write disables";
        EIAM_EX     RW  0x0000_0000 [2 @ 0x00AD0]  "vectors 0 to 63 that are masked when sent";
        LLITHRESH   RW  0x0000_0000 [1 @ 0x0EC90]  "credits of low-latency interrupts";
    }
    // Receive
    "8.2.3.7" {
        RXCSUM      RW  0x0000_0000 [1 @ 0x05000]  "what the checksum field of a descriptor holds";
        RFCTL       RW  0x0000_0000 [1 @ 0x05008]  "filters for NFS, iSCSI and RSC";
        FCTRL       RW  0x0000_0000 [1 @ 0x05080]  "which frames pass without a filter";
        VLNCTRL     RW  0x0000_8100 [1 @ 0x05088]  "VLAN filter and ethertype";
        MCSTCTRL    RW  0x0000_0000 [1 @ 0x05090]  "which bits of an address are hashed; hash filter on";
        ETQF        RW  0x0000_0000 [8 @ 0x05128]  "ethertype filters";
        PSRTYPE     RW  0x0000_0000 [128 @ 0x0EA00 | 16 @ 0x05480]  "headers to split at; RSS queues of a pool";
        MTA         RW  0x0000_0000 [128 @ 0x05200]  "4096 bits: multicast addresses by hash";
        RAL         RW  0x0000_0000 [128 @ 0x0A200 + 8 | 16 @ 0x05400 + 8]  "an address that is ours: bytes 0 to 3";
        RAH         RW  0x0000_0000 [128 @ 0x0A204 + 8 | 16 @ 0x05404 + 8]  "an address that is ours: bytes 4, 5; valid";
        MPSAR       RW  0x0000_0000 [256 @ 0x0A600]  "pools that an address belongs to";
        MRQC        RW  0x0000_0000 [1 @ 0x05818]  "how frames are spread over queues";
        RQTC        RW  0x0000_0000 [1 @ 0x0EC70]  "RSS bits of each traffic class";
        RETA        RW  0x0000_0000 [32 @ 0x05C00]  "queues by hash, four a register";
        ERETA       RW  0x0000_0000 [96 @ 0x0EE80]  "the rest of the X550's 512 queues by hash";
        RSSRK       RW  0x0000_0000 [10 @ 0x05C80]  "key of the hash";
        VFTA        RW  0x0000_0000 [128 @ 0x0A000]  "4096 bits: VLANs that pass";
        SAQF        RW  0x0000_0000 [128 @ 0x0E000]  "five-tuple filters: source address";
        DAQF        RW  0x0000_0000 [128 @ 0x0E200]  "five-tuple filters: destination address";
        SDPQF       RW  0x0000_0000 [128 @ 0x0E400]  "five-tuple filters: ports";
        FTQF        RW  0x0000_0000 [128 @ 0x0E600]  "five-tuple filters: protocol, mask, enable";
        L34TIMIR    RW  0x0000_0000 [128 @ 0x0E800]  "five-tuple filters: queue";
        ETQS        RW  0x0000_0000 [8 @ 0x0EC00]  "ethertype filters: queue";
        SYNQF       RW  0x0000_0000 [1 @ 0x0EC30]  "queue of TCP SYNs";
    }
    // Receive DMA
    "8.2.3.8" {
        RDBAL       RW  0x0000_0000 [64 @ 0x01000 + 0x40, 64 @ 0x0D000 + 0x40]  "receive ring: address, low";
        RDBAH       RW  0x0000_0000 [64 @ 0x01004 + 0x40, 64 @ 0x0D004 + 0x40]  "receive ring: address, high";
        RDLEN       RW  0x0000_0000 [64 @ 0x01008 + 0x40, 64 @ 0x0D008 + 0x40]  "receive ring: bytes";
        DCA_RXCTRL  RW  0x0000_A200 [64 @ 0x0100C + 0x40, 64 @ 0x0D00C + 0x40 | 16 @ 0x02200]  "receive ring: cache hints";
        RDH         RW  0x0000_0000 [64 @ 0x01010 + 0x40, 64 @ 0x0D010 + 0x40]  "receive ring: head";
        SRRCTL      RW  0x0000_0402 [64 @ 0x01014 + 0x40, 64 @ 0x0D014 + 0x40 | 16 @ 0x02100]  "receive ring: buffer sizes, descriptor type";
        RDT         RW  0x0000_0000 [64 @ 0x01018 + 0x40, 64 @ 0x0D018 + 0x40]  "receive ring: tail";
        RXDCTL      RW  0x0000_0000 [64 @ 0x01028 + 0x40, 64 @ 0x0D028 + 0x40]  "receive ring: enable, strip VLAN tags";
        RSCCTL      RW  0x0000_0000 [64 @ 0x0102C + 0x40, 64 @ 0x0D02C + 0x40]  "receive ring: coalescing";
        RDRXCTL     RW  0x0000_0008 [1 @ 0x02F00]  "receive DMA control: CRC strip, initialised";
        QDE         RW  0x0000_0000 [1 @ 0x02F04]  "drop enable of one queue, indirectly";
        RXCTRL      RW  0x0000_0000 [1 @ 0x03000]  "receiver on";
        RTRUP2TC    RW  0x0000_0000 [1 @ 0x03020]  "user priority to traffic class, receive";
        RSCDBU      RW  0x0000_0000 [1 @ 0x03028]  "data buffer of receive coalescing";
        RXPBSIZE    RW  0x0008_0000 [8 @ 0x03C00]  "bytes of the packet buffers";
    }
    // Transmit
    "8.2.3.9" {
        DMATXCTL    RW  0x8100_0000 [1 @ 0x04A80]  "transmitter on; VLAN ethertype";
        DTXTCPFLGL  RW  0x0FF6_0FF6 [1 @ 0x04A88]  "TCP flags kept in segments: first and middle";
        DTXTCPFLGH  RW  0x0000_0F7F [1 @ 0x04A8C]  "TCP flags kept in segments: last";
        TDBAL       RW  0x0000_0000 [128 @ 0x06000 + 0x40]  "transmit ring: address, low";
        TDBAH       RW  0x0000_0000 [128 @ 0x06004 + 0x40]  "transmit ring: address, high";
        TDLEN       RW  0x0000_0000 [128 @ 0x06008 + 0x40]  "transmit ring: bytes";
        DCA_TXCTRL  RW  0x0000_2A00 [128 @ 0x0600C + 0x40]  "transmit ring: cache hints";
        TDH         RW  0x0000_0000 [128 @ 0x06010 + 0x40]  "transmit ring: head";
        TDT         RW  0x0000_0000 [128 @ 0x06018 + 0x40]  "transmit ring: tail";
        TXDCTL      RW  0x0000_0000 [128 @ 0x06028 + 0x40]  "transmit ring: thresholds, enable";
        TDWBAL      RW  0x0000_0000 [128 @ 0x06038 + 0x40]  "transmit ring: where the head is written, low; enable";
        TDWBAH      RW  0x0000_0000 [128 @ 0x0603C + 0x40]  "transmit ring: where the head is written, high";
        DTXMXSZRQ   RW  0x0000_0010 [1 @ 0x08100]  "bytes that transmit DMA may have outstanding";
        TXPBSIZE    RW  0x0002_8000 [8 @ 0x0CC00]  "bytes of the transmit packet buffers";
        TXPBTHRESH  RW  0x0000_0096 [8 @ 0x04950]  "when a transmit packet buffer counts as full";
        MTQC        RW  0x0000_0000 [1 @ 0x08120]  "how transmit queues are grouped";
        MNGTXMAP    RW  0x0000_0000 [1 @ 0x0CD10]  "traffic class of the management's frames";
        TIPG        RW  0x0000_0000 [1 @ 0x0CB00]  "gap between frames";
    }
    // Data centre bridging
    "8.2.3.10" {
        RTRPCS      RW  0x0000_0000 [1 @ 0x02430]  "receive packet plane";
        RTRPT4C     RW  0x0000_0000 [8 @ 0x02140]  "receive packet plane: credits";
        RTRPT4S     RO  0x0000_0000 [8 @ 0x02160]  "receive packet plane: status";
        RTTDCS      RW  0x0000_0000 [1 @ 0x04900]  "transmit descriptor plane: arbiter";
        RTTDQSEL    RW  0x0000_0000 [1 @ 0x04904]  "the queue that RTTDT1C and RTTBCNRC mean";
        RTTDT1C     RW  0x0000_0000 [1 @ 0x04908]  "credits of the selected queue";
        RTTDT2C     RW  0x0000_0000 [8 @ 0x04910]  "transmit descriptor plane: credits";
        RTTDT2S     RO  0x0000_0000 [8 @ 0x04930]  "transmit descriptor plane: status";
        RTTBCNRM    RW  0x0000_0000 [1 @ 0x04980]  "rate scheduler: memory window";
        RTTBCNRC    RW  0x0000_0000 [1 @ 0x04984]  "rate limit of the selected queue";
        RTTPCS      RW  0x0000_0000 [1 @ 0x0CD00]  "transmit packet plane";
        RTTPT2C     RW  0x0000_0000 [8 @ 0x0CD20]  "transmit packet plane: credits";
        RTTPT2S     RO  0x0000_0000 [8 @ 0x0CD40]  "transmit packet plane: status";
        RTTUP2TC    RW  0x0000_0000 [1 @ 0x0C800]  "user priority to traffic class, transmit";
    }
    // Security
    "8.2.3.12" {
        SECTXCTRL   RW  0x0000_0001 [1 @ 0x08800]  "transmit security block: off, path stopped";
        SECTXSTAT   RO  0x0000_0001 [1 @ 0x08804]  "transmit security block: empty";
        SECTXBUFFAF RW  0x0000_0250 [1 @ 0x08808]  "transmit security buffer: almost full";
        SECTXMINIFG RW  0x0000_1001 [1 @ 0x08810]  "transmit security: gap between frames";
        SECRXCTRL   RW  0x0000_0001 [1 @ 0x08D00]  "receive security block: off, path stopped";
        SECRXSTAT   RO  0x0000_0001 [1 @ 0x08D04]  "receive security block: empty";
    }
    // LinkSec
    "8.2.3.13" {
        LSECTXCAP   RO  0x0000_0000 [1 @ 0x08A00]  "LinkSec transmit capabilities";
        LSECTXCTRL  RW  0x0000_0000 [1 @ 0x08A04]  "LinkSec transmit control";
        LSECRXCAP   RO  0x0000_0000 [1 @ 0x08F00]  "LinkSec receive capabilities";
        LSECRXCTRL  RW  0x0000_0000 [1 @ 0x08F04]  "LinkSec receive control";
        LSECTXUT    RC  0x0000_0000 [1 @ 0x08A3C]  "frames sent without LinkSec";
        LSECTXPKTE  RC  0x0000_0000 [1 @ 0x08A40]  "frames sent, encrypted";
        LSECTXPKTP  RC  0x0000_0000 [1 @ 0x08A44]  "frames sent, protected";
        LSECTXOCTE  RC  0x0000_0000 [1 @ 0x08A48]  "bytes sent, encrypted";
        LSECTXOCTP  RC  0x0000_0000 [1 @ 0x08A4C]  "bytes sent, protected";
        LSECRXUT    RC  0x0000_0000 [1 @ 0x08F40]  "frames received without LinkSec";
        LSECRXOCTE  RC  0x0000_0000 [1 @ 0x08F44]  "bytes received, decrypted";
        LSECRXOCTP  RC  0x0000_0000 [1 @ 0x08F48]  "bytes received, validated";
        LSECRXBAD   RC  0x0000_0000 [1 @ 0x08F4C]  "frames received with a bad tag";
        LSECRXNOSCI RC  0x0000_0000 [1 @ 0x08F50]  "frames received without a channel";
        LSECRXUNSCI RC  0x0000_0000 [1 @ 0x08F54]  "frames received of an unknown channel";
        LSECRXUC    RC  0x0000_0000 [1 @ 0x08F58]  "frames received unchecked";
        LSECRXDELAY RC  0x0000_0000 [1 @ 0x08F5C]  "frames received delayed";
        LSECRXLATE  RC  0x0000_0000 [1 @ 0x08F60]  "frames received late";
        LSECRXOK    RC  0x0000_0000 [2 @ 0x08F64 + 4]  "frames received and found good, by association";
        LSECRXINV   RC  0x0000_0000 [2 @ 0x08F6C + 4]  "frames received and found invalid, by association";
        LSECRXNV    RC  0x0000_0000 [2 @ 0x08F74 + 4]  "frames received and found not valid, by association";
        LSECRXUNSA  RC  0x0000_0000 [1 @ 0x08F7C]  "frames received of an unused association";
        LSECRXNUSA  RC  0x0000_0000 [1 @ 0x08F80]  "frames received of an association not in use";
    }
    // IPsec
    "8.2.3.14" {
        IPSTXIDX    RW  0x0000_0000 [1 @ 0x08900]  "transmit security associations: command";
        IPSTXSALT   RW  0x0000_0000 [1 @ 0x08904]  "transmit security association: salt";
        IPSTXKEY    RW  0x0000_0000 [4 @ 0x08908]  "transmit security association: key";
        IPSRXIDX    RW  0x0000_0000 [1 @ 0x08E00]  "receive security associations: command";
        IPSRXIPADDR RW  0x0000_0000 [4 @ 0x08E04]  "receive security association: address";
        IPSRXSPI    RW  0x0000_0000 [1 @ 0x08E14]  "receive security association: index";
        IPSRXIPIDX  RW  0x0000_0000 [1 @ 0x08E18]  "receive security association: which address";
        IPSRXKEY    RW  0x0000_0000 [4 @ 0x08E1C]  "receive security association: key";
        IPSRXSALT   RW  0x0000_0000 [1 @ 0x08E2C]  "receive security association: salt";
        IPSRXMOD    RW  0x0000_0000 [1 @ 0x08E30]  "receive security association: mode";
    }
    // Timer
    "8.2.3.15" {
        FRTIMER     RO  0x0000_0000 [1 @ 0x00048]  "free-running timer";
        TCPTIMER    RW  0x0000_0000 [1 @ 0x0004C]  "timer of the TCP-timer interrupt";
    }
    // Fibre Channel over Ethernet
    "8.2.3.19" {
        FCRXCTRL    RW  0x0000_0000 [1 @ 0x05100]  "FCoE receive control";
        FCRECTL     RW  0x0000_0000 [1 @ 0x0ED00]  "FCoE redirection";
        FCRETA      RW  0x0000_0000 [8 @ 0x0ED10]  "FCoE queues";
        FCCRC       RC  0x0000_0000 [1 @ 0x05118]  "FCoE CRC errors";
        FCOERPDC    RC  0x0000_0000 [1 @ 0x0241C]  "FCoE frames dropped";
        FCLAST      RC  0x0000_0000 [1 @ 0x02424]  "FCoE last errors";
        FCOEPRC     RC  0x0000_0000 [1 @ 0x02428]  "FCoE frames received";
        FCOEDWRC    RC  0x0000_0000 [1 @ 0x0242C]  "FCoE words received";
        FCOEPTC     RC  0x0000_0000 [1 @ 0x08784]  "FCoE frames sent";
        FCOEDWTC    RC  0x0000_0000 [1 @ 0x08788]  "FCoE words sent";
    }
    // Flow director
    "8.2.3.21" {
        FDIRCTRL    RW  0x0000_0000 [1 @ 0x0EE00]  "flow director: memory, mode, initialised";
        FDIRSIPV6   RW  0x0000_0000 [3 @ 0x0EE0C]  "flow director filter: IPv6 source";
        FDIRIPSA    RW  0x0000_0000 [1 @ 0x0EE18]  "flow director filter: source";
        FDIRIPDA    RW  0x0000_0000 [1 @ 0x0EE1C]  "flow director filter: destination";
        FDIRPORT    RW  0x0000_0000 [1 @ 0x0EE20]  "flow director filter: ports";
        FDIRVLAN    RW  0x0000_0000 [1 @ 0x0EE24]  "flow director filter: VLAN and flexible bytes";
        FDIRHASH    RW  0x0000_0000 [1 @ 0x0EE28]  "flow director filter: hash and signature";
        FDIRCMD     RW  0x0000_0000 [1 @ 0x0EE2C]  "flow director command";
        FDIRFREE    RO  0x0000_8000 [1 @ 0x0EE38]  "flow director filters that are free";
        FDIRDIP4M   RW  0x0000_0000 [1 @ 0x0EE3C]  "flow director mask: destination";
        FDIRSIP4M   RW  0x0000_0000 [1 @ 0x0EE40]  "flow director mask: source";
        FDIRTCPM    RW  0x0000_0000 [1 @ 0x0EE44]  "flow director mask: TCP ports";
        FDIRUDPM    RW  0x0000_0000 [1 @ 0x0EE48]  "flow director mask: UDP ports";
        FDIRLEN     RC  0x0000_0000 [1 @ 0x0EE4C]  "flow director: longest list";
        FDIRUSTAT   RC  0x0000_0000 [1 @ 0x0EE50]  "flow director: filters added and removed";
        FDIRFSTAT   RC  0x0000_0000 [1 @ 0x0EE54]  "flow director: additions and removals that failed";
        FDIRMATCH   RC  0x0000_0000 [1 @ 0x0EE58]  "flow director: frames that matched";
        FDIRMISS    RC  0x0000_0000 [1 @ 0x0EE5C]  "flow director: frames that matched nothing";
        FDIRHKEY    RW  0x8000_0001 [1 @ 0x0EE68]  "flow director: key of the lookup hash";
        FDIRSKEY    RW  0x8080_0101 [1 @ 0x0EE6C]  "flow director: key of the signature hash";
        FDIRM       RW  0x0000_0000 [1 @ 0x0EE70]  "flow director mask: other fields";
        FDIRIP6M    RW  0x0000_0000 [1 @ 0x0EE74]  "flow director mask: IPv6";
        FDIRSCTPM   RW  0x0000_0000 [1 @ 0x0EE78]  "flow director mask: SCTP ports";
    }
    // MAC
    "8.2.3.22" {
        PCS1GCFIG   RW  0x0000_0008 [1 @ 0x04200]  "1-gigabit PCS: configuration";
        PCS1GLCTL   RW  0x0000_0000 [1 @ 0x04208]  "1-gigabit PCS: link control";
        PCS1GLSTA   RO  0x0000_0000 [1 @ 0x0420C]  "1-gigabit PCS: link status";
        PCS1GANA    RW  0x0000_0020 [1 @ 0x04218]  "1-gigabit PCS: what we advertise";
        PCS1GANLP   RO  0x0000_0000 [1 @ 0x0421C]  "1-gigabit PCS: what the partner advertises";
        PCS1GANNP   RW  0x0000_0000 [1 @ 0x04220]  "1-gigabit PCS: next page";
        PCS1GANLPNP RO  0x0000_0000 [1 @ 0x04224]  "1-gigabit PCS: next page of the partner";
        HLREG0      RW  0x0000_0803 [1 @ 0x04240]  "MAC control: CRC, padding, jumbo, loop-back";
        HLREG1      RO  0x0000_0000 [1 @ 0x04244]  "MAC status";
        PAP         RW  0x0000_FFFF [1 @ 0x04248]  "pause time";
        MSCA        RW  0x0000_0000 [1 @ 0x0425C]  "MDIO: command and address";
        MSRWD       RW  0x0000_0000 [1 @ 0x04260]  "MDIO: data";
        MAXFRS      RW  0x05EE_0000 [1 @ 0x04268]  "longest frame";
        PCSS1       RO  0x0000_0000 [1 @ 0x04288]  "XGXS status 1";
        PCSS2       RO  0x0000_0000 [1 @ 0x0428C]  "XGXS status 2";
        XPCSS       RO  0x0000_0000 [1 @ 0x04290]  "10GBASE-X PCS status";
        MFLCN       RW  0x0000_0000 [1 @ 0x04294]  "which flow-control frames are obeyed or passed";
        SERDESC     RW  0x0000_0000 [1 @ 0x04298]  "SerDes interface control";
        MACS        RO  0x0000_0000 [1 @ 0x0429C]  "FIFO status";
        AUTOC       RW  0x0000_6000 [1 @ 0x042A0]  "link mode, auto-negotiation";
        LINKS       RO  0x0000_0000 [1 @ 0x042A4]  "link status";
        AUTOC2      RW  0x0002_0000 [1 @ 0x042A8]  "10-gigabit serial mode";
        AUTOC3      RW  0x0000_0000 [1 @ 0x042AC]  "auto-negotiation, more";
        ANLP1       RO  0x0003_0000 [1 @ 0x042B0]  "auto-negotiation: the partner, 1";
        ANLP2       RO  0x0000_0000 [1 @ 0x042B4]  "auto-negotiation: the partner, 2";
        MMNGC       RO  0x0000_0000 [1 @ 0x042D0]  "whether management forbids a link change";
        ANLPNP1     RO  0x0000_0000 [1 @ 0x042D4]  "auto-negotiation: next page, 1";
        ANLPNP2     RO  0x0000_0000 [1 @ 0x042D8]  "auto-negotiation: next page, 2";
        LINKS2      RO  0x0000_0000 [1 @ 0x04324]  "link status, latched";
        MACC        RW  0x0000_0000 [1 @ 0x04330]  "MAC control of the X540 and X550: force link up";
        CORECTL     RW  0x0000_0000 [1 @ 0x14F00]  "analogue registers of the core: address, data";
        SMADARCTL   RW  0x0000_0000 [1 @ 0x14F10]  "analogue registers of the KR port";
    }
    // Statistics
    "8.2.3.23" {
        CRCERRS     RC  0x0000_0000 [1 @ 0x04000]  "frames with a bad CRC";
        ILLERRC     RC  0x0000_0000 [1 @ 0x04004]  "illegal bytes";
        ERRBC       RC  0x0000_0000 [1 @ 0x04008]  "error bytes";
        MSPDC       RC  0x0000_0000 [1 @ 0x04010]  "frames too short for the MAC";
        MPC         RC  0x0000_0000 [8 @ 0x03FA0]  "frames missed: the packet buffer was full";
        RNBC        RC  0x0000_0000 [8 @ 0x03FC0]  "times that no receive buffer was free";
        RXMPC       RC  0x0000_0000 [8 @ 0x03F80]  "frames missed while the receiver was off";
        MLFC        RC  0x0000_0000 [1 @ 0x04034]  "local faults";
        MRFC        RC  0x0000_0000 [1 @ 0x04038]  "remote faults";
        RLEC        RC  0x0000_0000 [1 @ 0x04040]  "frames whose length field is wrong";
        PXONTXC     RC  0x0000_0000 [8 @ 0x03F00]  "priority XON sent";
        PXOFFTXC    RC  0x0000_0000 [8 @ 0x03F20]  "priority XOFF sent";
        LXONTXC     RC  0x0000_0000 [1 @ 0x03F60]  "XON sent";
        LXOFFTXC    RC  0x0000_0000 [1 @ 0x03F68]  "XOFF sent";
        PRC64       RC  0x0000_0000 [1 @ 0x0405C]  "frames received: 64 bytes";
        PRC127      RC  0x0000_0000 [1 @ 0x04060]  "frames received: 65 to 127 bytes";
        PRC255      RC  0x0000_0000 [1 @ 0x04064]  "frames received: 128 to 255 bytes";
        PRC511      RC  0x0000_0000 [1 @ 0x04068]  "frames received: 256 to 511 bytes";
        PRC1023     RC  0x0000_0000 [1 @ 0x0406C]  "frames received: 512 to 1023 bytes";
        PRC1522     RC  0x0000_0000 [1 @ 0x04070]  "frames received: 1024 bytes and more";
        GPRC        RC  0x0000_0000 [1 @ 0x04074]  "good frames received";
        BPRC        RC  0x0000_0000 [1 @ 0x04078]  "broadcast frames received";
        MPRC        RC  0x0000_0000 [1 @ 0x0407C]  "multicast frames received";
        GPTC        RC  0x0000_0000 [1 @ 0x04080]  "good frames sent";
        GORCL       RC  0x0000_0000 [1 @ 0x04088]  "good bytes received, low";
        GORCH       RC  0x0000_0000 [1 @ 0x0408C]  "good bytes received, high";
        GOTCL       RC  0x0000_0000 [1 @ 0x04090]  "good bytes sent, low";
        GOTCH       RC  0x0000_0000 [1 @ 0x04094]  "good bytes sent, high";
        RUC         RC  0x0000_0000 [1 @ 0x040A4]  "undersize frames";
        RFC         RC  0x0000_0000 [1 @ 0x040A8]  "fragments";
        ROC         RC  0x0000_0000 [1 @ 0x040AC]  "oversize frames";
        RJC         RC  0x0000_0000 [1 @ 0x040B0]  "oversize frames with a bad CRC";
        MNGPRC      RC  0x0000_0000 [1 @ 0x040B4]  "frames to the management";
        MNGPDC      RC  0x0000_0000 [1 @ 0x040B8]  "frames to the management, dropped";
        MNGPTC      RC  0x0000_0000 [1 @ 0x0CF90]  "frames from the management";
        TORL        RC  0x0000_0000 [1 @ 0x040C0]  "all bytes received, low";
        TORH        RC  0x0000_0000 [1 @ 0x040C4]  "all bytes received, high";
        TPR         RC  0x0000_0000 [1 @ 0x040D0]  "all frames received";
        TPT         RC  0x0000_0000 [1 @ 0x040D4]  "all frames sent";
        PTC64       RC  0x0000_0000 [1 @ 0x040D8]  "frames sent: 64 bytes";
        PTC127      RC  0x0000_0000 [1 @ 0x040DC]  "frames sent: 65 to 127 bytes";
        PTC255      RC  0x0000_0000 [1 @ 0x040E0]  "frames sent: 128 to 255 bytes";
        PTC511      RC  0x0000_0000 [1 @ 0x040E4]  "frames sent: 256 to 511 bytes";
        PTC1023     RC  0x0000_0000 [1 @ 0x040E8]  "frames sent: 512 to 1023 bytes";
        PTC1522     RC  0x0000_0000 [1 @ 0x040EC]  "frames sent: 1024 bytes and more";
        MPTC        RC  0x0000_0000 [1 @ 0x040F0]  "multicast frames sent";
        BPTC        RC  0x0000_0000 [1 @ 0x040F4]  "broadcast frames sent";
        XEC         RC  0x0000_0000 [1 @ 0x04120]  "checksum errors";
        PXONRXCNT   RC  0x0000_0000 [8 @ 0x04140]  "priority XON received";
        PXOFFRXCNT  RC  0x0000_0000 [8 @ 0x04160]  "priority XOFF received";
        LXONRXCNT   RC  0x0000_0000 [1 @ 0x041A4]  "XON received";
        LXOFFRXCNT  RC  0x0000_0000 [1 @ 0x041A8]  "XOFF received";
        RXNFGPC     RC  0x0000_0000 [1 @ 0x041B0]  "good frames received, before any filter";
        RXNFGBCL    RC  0x0000_0000 [1 @ 0x041B4]  "bytes of good frames, before any filter, low";
        RXNFGBCH    RC  0x0000_0000 [1 @ 0x041B8]  "bytes of good frames, before any filter, high";
        RXDGPC      RC  0x0000_0000 [1 @ 0x02F50]  "frames to the host";
        RXDGBCL     RC  0x0000_0000 [1 @ 0x02F54]  "bytes to the host, low";
        RXDGBCH     RC  0x0000_0000 [1 @ 0x02F58]  "bytes to the host, high";
        RXDDGPC     RC  0x0000_0000 [1 @ 0x02F5C]  "frames duplicated to pools";
        RXLPBKGPC   RC  0x0000_0000 [1 @ 0x02F68]  "frames looped between pools";
        RXDSTATCTRL RW  0x0000_0000 [1 @ 0x02F40]  "which queues RXDGPC counts";
        TXDGPC      RC  0x0000_0000 [1 @ 0x087A0]  "frames from the host";
        TXDGBCL     RC  0x0000_0000 [1 @ 0x087A4]  "bytes from the host, low";
        TXDGBCH     RC  0x0000_0000 [1 @ 0x087A8]  "bytes from the host, high";
        SSVPC       RC  0x0000_0000 [1 @ 0x08780]  "frames with a spoofed source";
        RQSMR       RW  0x0000_0000 [32 @ 0x02300]  "which counter a receive queue has";
        TQSM        RW  0x0000_0000 [32 @ 0x08600]  "which counter a transmit queue has";
        QPRC        RC  0x0000_0000 [16 @ 0x01030 + 0x40]  "frames received, by counter";
        QBRC_L      RC  0x0000_0000 [16 @ 0x01034 + 0x40]  "bytes received, by counter, low";
        QBRC_H      RC  0x0000_0000 [16 @ 0x01038 + 0x40]  "bytes received, by counter, high";
        QPRDC       RC  0x0000_0000 [16 @ 0x01430 + 0x40]  "frames dropped for want of a descriptor, by counter";
        QPTC        RC  0x0000_0000 [16 @ 0x08680 | 16 @ 0x06030 + 0x40]  "frames sent, by counter";
        QBTC_L      RC  0x0000_0000 [16 @ 0x08700 + 8]  "bytes sent, by counter, low";
        QBTC_H      RC  0x0000_0000 [16 @ 0x08704 + 8]  "bytes sent, by counter, high";
    }
    // Management's own statistics, of the X540 and X550
    "8.2.3.23" {
        B2OSPC      RC  0x0000_0000 [1 @ 0x041C0]  "frames from the management to the host";
        O2BGPTC     RC  0x0000_0000 [1 @ 0x041C4]  "frames from the host to the management";
        B2OGPRC     RC  0x0000_0000 [1 @ 0x02F90]  "frames from the management that the host got";
        O2BSPC      RC  0x0000_0000 [1 @ 0x087B0]  "frames from the host that the management missed";
    }
    // Wake-up
    "8.2.3.24" {
        WUC         RW  0x0000_0000 [1 @ 0x05800]  "wake-up control";
        WUFC        RW  0x0000_0000 [1 @ 0x05808]  "what wakes";
        WUS         W1C 0x0000_0000 [1 @ 0x05810]  "what woke";
        IPAV        RW  0x0000_0000 [1 @ 0x05838]  "wake-up addresses that are valid";
        IP4AT       RW  0x0000_0000 [4 @ 0x05840 + 8]  "wake-up IPv4 addresses";
        IP6AT       RW  0x0000_0000 [4 @ 0x05880]  "wake-up IPv6 address";
        WUPL        RO  0x0000_0000 [1 @ 0x05900]  "length of the frame that woke";
        WUPM        RO  0x0000_0000 [32 @ 0x05A00]  "the frame that woke";
        FHFT        RW  0x0000_0000 [256 @ 0x09000]  "flexible wake-up filters";
    }
    // Management
    "8.2.3.25" {
        MANC        RW  0x0000_0000 [1 @ 0x05820]  "management control";
        HICR        RW  0x0000_0000 [1 @ 0x15F00]  "host interface: command";
        FWSTS       RW  0x0000_0000 [1 @ 0x15F0C]  "firmware status";
        SWSR        RW  0x0000_0000 [1 @ 0x15F10]  "software status";
        FLEX_MNG    RW  0x0000_0000 [448 @ 0x15800]  "host interface: memory";
    }
    // Time synchronisation
    "8.2.3.26" {
        TSYNCRXCTL  RW  0x0000_0000 [1 @ 0x05188]  "receive time stamps: control";
        RXSTMPL     RO  0x0000_0000 [1 @ 0x051E8]  "receive time stamp, low";
        RXSTMPH     RO  0x0000_0000 [1 @ 0x051A4]  "receive time stamp, high";
        RXSATRL     RO  0x0000_0000 [1 @ 0x051A0]  "receive time stamp: attributes, low";
        RXSATRH     RO  0x0000_0000 [1 @ 0x051A8]  "receive time stamp: attributes, high";
        RXMTRL      RW  0x0000_0000 [1 @ 0x05120]  "which message types are stamped";
        TSYNCTXCTL  RW  0x0000_0000 [1 @ 0x08C00]  "transmit time stamps: control";
        TXSTMPL     RO  0x0000_0000 [1 @ 0x08C04]  "transmit time stamp, low";
        TXSTMPH     RO  0x0000_0000 [1 @ 0x08C08]  "transmit time stamp, high";
        SYSTIML     RW  0x0000_0000 [1 @ 0x08C0C]  "time, low";
        SYSTIMH     RW  0x0000_0000 [1 @ 0x08C10]  "time, high";
        TIMINCA     RW  0x0000_0000 [1 @ 0x08C14]  "time: step";
        TIMADJL     RW  0x0000_0000 [1 @ 0x08C18]  "time: offset, low";
        TIMADJH     RW  0x0000_0000 [1 @ 0x08C1C]  "time: offset, high";
        TSAUXC      RW  0x0000_0000 [1 @ 0x08C20]  "time: auxiliary control";
        TRGTTIML    RW  0x0000_0000 [2 @ 0x08C24 + 8]  "time: target, low";
        TRGTTIMH    RW  0x0000_0000 [2 @ 0x08C28 + 8]  "time: target, high";
    }
    // Virtualisation, physical function
    "8.2.3.27" {
        VT_CTL      RW  0x0000_0000 [1 @ 0x051B0]  "pools: on, default pool, replication";
        PFMAILBOX   RW  0x0000_0000 [64 @ 0x04B00]  "mailbox with a virtual function";
        PFMBMEM     RW  0x0000_0000 [1024 @ 0x13000]  "mailbox memory, 16 words a virtual function";
        PFMBICR     W1C 0x0000_0000 [4 @ 0x00710]  "which virtual functions sent or acknowledged";
        PFMBIMR     RW  0x0000_FFFF [2 @ 0x00720]  "which virtual functions may interrupt";
        PFVFLRE     RO  0x0000_0000 [1 @ 0x00600, 1 @ 0x001C0]  "virtual functions that were reset";
        PFVFLREC    W1C 0x0000_0000 [2 @ 0x00700]  "virtual functions that were reset: clear";
        VFRE        RW  0x0000_0000 [2 @ 0x051E0]  "pools that may receive";
        VFTE        RW  0x0000_0000 [2 @ 0x08110]  "pools that may transmit";
        VMECM       RW  0x0000_0000 [2 @ 0x08790]  "pools whose switch errors are counted";
        PFVMTXSW    RW  0x0000_0000 [2 @ 0x05180]  "pools that loop back";
        PFVFSPOOF   RW  0x0000_0000 [8 @ 0x08200]  "anti-spoofing";
        PFDTXGSWC   RW  0x0000_0000 [1 @ 0x08220]  "switching between pools";
        VMVIR       RW  0x0000_0000 [64 @ 0x08000]  "VLAN tag that is inserted for a pool";
        VMOLR       RW  0x0000_0000 [64 @ 0x0F000]  "what a pool accepts";
        VLVF        RW  0x0000_0000 [64 @ 0x0F100]  "VLANs of pools";
        VLVFB       RW  0x0000_0000 [128 @ 0x0F200]  "pools of VLANs";
        UTA         RW  0x0000_0000 [128 @ 0x0F400]  "unicast addresses by hash";
        MRCTL       RW  0x0000_0000 [4 @ 0x0F600]  "mirror rules";
        VMRVLAN     RW  0x0000_0000 [8 @ 0x0F610]  "mirror rules: VLANs";
        VMRVM       RW  0x0000_0000 [8 @ 0x0F630]  "mirror rules: pools";
    }
    // Diagnostics, and what dumps of registers look at because the 82598 had something there
    "8.2.3.28" {
        MSIXPBA     RO  0x0000_0000 [1 @ 0x02000]  "MSI-X pending bits, in this BAR";
        RDSTAT      RO  0x0000_0000 [8 @ 0x02C00]  "receive statistics";
        RDSTATCTL   RO  0x0000_0000 [1 @ 0x02C20]  "receive statistics: control";
        RDHMPN      RW  0x0000_0000 [1 @ 0x02F08]  "receive descriptor handler memory";
        RIC_DW      RO  0x0000_0000 [4 @ 0x02F10]  "receive descriptor cache";
        RDPROBE     RO  0x0000_0000 [1 @ 0x02F20]  "receive probe";
        PBRXECC     RO  0x0000_0000 [1 @ 0x03300]  "receive packet buffer: memory errors";
        RXBUFCTRL   RO  0x0000_0000 [1 @ 0x03600]  "receive packet buffer: access";
        RXBUFDATA   RO  0x0000_0000 [4 @ 0x03610]  "receive packet buffer: data";
        RT2CR       RO  0x0000_0000 [8 @ 0x03C20]  "82598: receive credits";
        RT2SR       RO  0x0000_0000 [8 @ 0x03C40]  "82598: receive credit status";
        DROPEN      RW  0x0000_0000 [1 @ 0x03D04]  "82598: drop enable";
        PCS1GDBG    RO  0x0000_0000 [2 @ 0x04210]  "1-gigabit PCS: debug";
        MACA        RO  0x0000_0000 [1 @ 0x0424C]  "82598: MDI auto-scan command";
        APAE        RO  0x0000_0000 [1 @ 0x04250]  "82598: auto-scan PHY address enable";
        ARD         RO  0x0000_0000 [1 @ 0x04254]  "82598: auto-scan read data";
        AIS         RO  0x0000_0000 [1 @ 0x04258]  "82598: auto-scan interrupt status";
        MLADD       RW  0x0000_0000 [1 @ 0x04264]  "MAC address low";
        TREG        RW  0x0000_0000 [1 @ 0x0426C]  "MAC test";
        MDFT        RO  0x0000_0000 [6 @ 0x042B8]  "MAC diagnostics";
        ATLASCTL    RW  0x0000_0000 [1 @ 0x04800]  "82598: analogue control";
        RTTBCNRD    RO  0x0000_0000 [1 @ 0x0498C]  "rate scheduler: status";
        RTTQCNTG    RW  0x0000_0000 [1 @ 0x04A90]  "congestion notification tag";
        RTTQCNCR    RW  0x0000_0000 [1 @ 0x08B00]  "congestion notification control";
        RUPPBMR     RO  0x0000_0000 [1 @ 0x050A0]  "82598: user priority to packet buffer";
        RFVAL       RO  0x0000_0000 [1 @ 0x050A4]  "receive filter validation";
        VMD_CTL     RO  0x0000_0000 [1 @ 0x0581C]  "82598: virtual machine control";
        IMIR        RO  0x0000_0000 [8 @ 0x05A80]  "82598: immediate interrupts";
        IMIREXT     RO  0x0000_0000 [8 @ 0x05AA0]  "82598: immediate interrupts, more";
        IMIRVP      RO  0x0000_0000 [1 @ 0x05AC0]  "82598: immediate interrupts by VLAN priority";
        TX_HOLES    RO  0x0000_0000 [128 @ 0x06014 + 0x40, 128 @ 0x0601C + 0x40, 128 @ 0x06020 + 0x40, 128 @ 0x06024 + 0x40, 128 @ 0x0602C + 0x40, 112 @ 0x06430 + 0x40, 128 @ 0x06034 + 0x40]  "nothing, between the registers of transmit rings";
        TXLLQ       RW  0x0000_0000 [4 @ 0x082E0]  "strict low-latency transmit queues";
        PBTXECC     RO  0x0000_0000 [1 @ 0x0C300]  "transmit packet buffer: memory errors";
        TXBUFCTRL   RO  0x0000_0000 [1 @ 0x0C600]  "transmit packet buffer: access";
        TXBUFDATA   RO  0x0000_0000 [4 @ 0x0C610]  "transmit packet buffer: data";
        PCIEECCCTL  RO  0x0000_0000 [1 @ 0x1106C]  "PCIe: memory errors";
        PCIE_DIAG   RO  0x0000_0000 [8 @ 0x11090]  "PCIe: diagnostics";
    }
}

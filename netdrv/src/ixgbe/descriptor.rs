//! Advanced descriptors (7.1.6, 7.2.3.2.4): 16 bytes in memory, which the driver writes in one format and the device writes
//! back in another. Rings hold them as two words each, so the structures here are their description and their check.

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_SIZE: usize = 16;

/// A receive descriptor as the driver writes it (7.1.6.1).
#[repr(C)]
struct RxRead {
    /// Where the frame goes.
    packet: u64,
    /// Where a split header would go. Bit 0 is in the place of [`RxStatus::DONE`], so it must be 0.
    header: u64,
}

/// A receive descriptor as the device writes it back (7.1.6.2).
#[repr(C)]
struct RxWriteBack {
    /// RSS type, packet type, header length.
    kind: u32,
    /// The RSS hash.
    hash: u32,
    /// Extended status in bits 19:0, extended error in bits 31:20.
    status: u32,
    /// Bytes in the buffer.
    length: u16,
    /// The VLAN tag, where it was stripped.
    vlan: u16,
}

/// A transmit data descriptor as the driver writes it (7.2.3.2.4).
#[repr(C)]
struct TxRead {
    /// Where the frame is.
    packet: u64,
    /// Bytes in the buffer, bits 15:0; type, bits 23:20; command, bits 31:24.
    command: u32,
    /// Bytes of the frame, bits 31:14.
    payload: u32,
}

/// The same as the device writes it back (7.2.3.2.4).
#[repr(C)]
struct TxWriteBack {
    reserved: u64,
    sequence: u32,
    /// Bit 0: done.
    status: u32,
}

const _: () = assert!(size_of::<RxRead>() == DESCRIPTOR_SIZE && size_of::<RxWriteBack>() == DESCRIPTOR_SIZE);
const _: () = assert!(size_of::<TxRead>() == DESCRIPTOR_SIZE && size_of::<TxWriteBack>() == DESCRIPTOR_SIZE);
const _: () =
    assert!(core::mem::offset_of!(RxRead, header) == 8 && core::mem::offset_of!(RxWriteBack, status) == 8);
const _: () = assert!(core::mem::offset_of!(RxWriteBack, length) == 12);
const _: () =
    assert!(core::mem::offset_of!(TxRead, payload) == 12 && core::mem::offset_of!(TxWriteBack, status) == 12);

/// The second word of a receive descriptor after write-back.
#[derive(Clone, Copy)]
pub(super) struct RxStatus(pub(super) u64);

impl RxStatus {
    /// `DD`: the device is done with the descriptor.
    const DONE: u64 = 1 << 0;
    /// `EOP`: the frame ends here.
    const END_OF_PACKET: u64 = 1 << 1;
    /// `RXE`, an error of the MAC. Frames with one are not stored at all unless FCTRL.SBP is set, and it is not.
    const MAC_ERROR: u64 = 1 << 29;

    #[inline(always)]
    pub(super) fn is_done(self) -> bool {
        self.0 & RxStatus::DONE != 0
    }

    #[inline(always)]
    pub(super) fn ends_frame(self) -> bool {
        self.0 & RxStatus::END_OF_PACKET != 0
    }

    #[inline(always)]
    pub(super) fn is_damaged(self) -> bool {
        self.0 & RxStatus::MAC_ERROR != 0
    }

    /// Whether one descriptor holds one frame, undamaged.
    #[inline(always)]
    pub(super) fn is_whole_frame(self) -> bool {
        const WHOLE: u64 = RxStatus::DONE | RxStatus::END_OF_PACKET;
        self.0 & (WHOLE | RxStatus::MAC_ERROR) == WHOLE
    }

    /// Bytes in the buffer.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        (self.0 >> 32) as u16 as usize
    }
}

/// The second word of a transmit data descriptor.
pub(super) mod tx {
    /// `EOP`: the frame ends here.
    const END_OF_PACKET: u64 = 1 << 24;
    /// `IFCS`: the MAC appends the CRC.
    const INSERT_CRC: u64 = 1 << 25;
    /// `DEXT` and `DTYP`: an advanced data descriptor.
    const ADVANCED_DATA: u64 = 1 << 29 | 0b0011 << 20;
    /// `PAYLEN`: bytes of the frame.
    const PAYLOAD_SHIFT: u32 = 32 + 14;

    /// `RS`: the device writes this descriptor back when the frame has been fetched, and with it says so of all before it.
    pub(crate) const REPORT_STATUS: u64 = 1 << 27;

    /// One frame of `len` bytes in one buffer.
    #[inline(always)]
    pub(crate) const fn frame(len: usize) -> u64 {
        ADVANCED_DATA | INSERT_CRC | END_OF_PACKET | (len as u64) << PAYLOAD_SHIFT | len as u64
    }

    /// `DD` of a descriptor after write-back.
    #[inline(always)]
    pub(crate) const fn is_done(word: u64) -> bool {
        word >> 32 & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_datasheets() {
        // Length 60, EOP, IFCS, DEXT, DTYP 3, PAYLEN 60, no RS.
        assert_eq!(tx::frame(60), 0x000f_0000_2330_003c);
        assert_eq!(tx::frame(60) | tx::REPORT_STATUS, 0x000f_0000_2b30_003c);
        assert!(!tx::is_done(tx::frame(60) | tx::REPORT_STATUS), "what the driver writes is not done");
        let status = RxStatus(0x0000_05ea_0000_0003);
        assert!(status.is_done() && status.ends_frame() && !status.is_damaged());
        assert_eq!(status.len(), 1514);
        assert!(RxStatus(1 << 29 | 1).is_damaged());
    }
}

//! The layouts of descriptors (datasheet 7.1.5, 7.1.6, 7.2.3.2): sixteen bytes, two little-endian words of eight.

/// Bytes of a descriptor.
pub(crate) const LEN: usize = 16;

/// A descriptor as it is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Raw {
    pub(crate) fn from_bytes(bytes: &[u8; LEN]) -> Raw {
        let bits = u128::from_le_bytes(*bytes);
        Raw { low: bits as u64, high: (bits >> 64) as u64 }
    }

    pub(crate) fn to_bytes(self) -> [u8; LEN] {
        (u128::from(self.high) << 64 | u128::from(self.low)).to_le_bytes()
    }

    /// A bit of the upper word.
    fn flag(self, bit: u32) -> bool {
        self.high >> bit & 1 == 1
    }
}

/// A transmit descriptor, as far as legacy and advanced ones are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) address: u64,
    pub(crate) len: usize,
    /// The frame ends here.
    pub(crate) end: bool,
    /// A CRC is to be appended.
    pub(crate) crc: bool,
    /// Its completion is to be reported.
    pub(crate) report: bool,
    /// A VLAN tag is to be inserted: this one, or the context's.
    pub(crate) insert_vlan: bool,
    pub(crate) form: Form,
}

/// Where legacy and advanced descriptors differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Legacy(Legacy),
    Advanced(Advanced),
}

/// What a legacy descriptor asks for (7.2.3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Legacy {
    pub(crate) vlan: u16,
    /// Insert a checksum at `checksum_offset`, over what begins at `checksum_start`.
    pub(crate) insert_checksum: bool,
    pub(crate) checksum_offset: u8,
    pub(crate) checksum_start: u8,
}

/// What an advanced descriptor asks for (7.2.3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advanced {
    /// Split the frame into TCP or UDP segments.
    pub(crate) segment: bool,
    /// Which of the queue's two contexts.
    pub(crate) context: usize,
    /// The context is to be consulted whatever the options say.
    pub(crate) check_context: bool,
    pub(crate) insert_ip_checksum: bool,
    pub(crate) insert_l4_checksum: bool,
    /// Bytes of the frame, or of what is to be segmented.
    pub(crate) payload: usize,
}

/// What a context descriptor says (7.2.3.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) vlan: u16,
    pub(crate) mac_len: usize,
    pub(crate) ip_len: usize,
    pub(crate) l4_len: usize,
    pub(crate) mss: usize,
    pub(crate) ipv4: bool,
    pub(crate) l4: L4,
}

/// The L4T field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum L4 {
    Udp,
    Tcp,
    Sctp,
    #[default]
    Reserved,
}

/// Any transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transmit {
    Data(Data),
    Context { index: usize, context: Context },
    Unknown,
}

impl Transmit {
    pub(crate) fn parse(raw: Raw) -> Transmit {
        const EXTENDED: u32 = 29;
        const CONTEXT: u64 = 2;
        const DATA: u64 = 3;
        if !raw.flag(EXTENDED) {
            return Transmit::Data(Data::parse(raw, Form::Legacy(Legacy::parse(raw))));
        }
        match raw.high >> 20 & 0xf {
            CONTEXT => {
                Transmit::Context { index: (raw.high >> 36 & 1) as usize, context: Context::parse(raw) }
            }
            DATA => Transmit::Data(Data::parse(raw, Form::Advanced(Advanced::parse(raw)))),
            _ => Transmit::Unknown,
        }
    }
}

impl Data {
    fn parse(raw: Raw, form: Form) -> Data {
        Data {
            address: raw.low,
            len: (raw.high & 0xffff) as usize,
            end: raw.flag(24),
            crc: raw.flag(25),
            report: raw.flag(27),
            insert_vlan: raw.flag(30),
            form,
        }
    }
}

impl Legacy {
    fn parse(raw: Raw) -> Legacy {
        Legacy {
            vlan: (raw.high >> 48) as u16,
            insert_checksum: raw.flag(26),
            checksum_offset: (raw.high >> 16) as u8,
            checksum_start: (raw.high >> 40) as u8,
        }
    }
}

impl Advanced {
    fn parse(raw: Raw) -> Advanced {
        Advanced {
            segment: raw.flag(31),
            context: (raw.high >> 36 & 1) as usize,
            check_context: raw.flag(39),
            insert_ip_checksum: raw.flag(40),
            insert_l4_checksum: raw.flag(41),
            payload: (raw.high >> 46) as usize,
        }
    }
}

impl Context {
    fn parse(raw: Raw) -> Context {
        Context {
            vlan: (raw.low >> 16) as u16,
            mac_len: (raw.low >> 9 & 0x7f) as usize,
            ip_len: (raw.low & 0x1ff) as usize,
            l4_len: (raw.high >> 40 & 0xff) as usize,
            mss: (raw.high >> 48) as usize,
            ipv4: raw.flag(10),
            l4: match raw.high >> 11 & 3 {
                0 => L4::Udp,
                1 => L4::Tcp,
                2 => L4::Sctp,
                _ => L4::Reserved,
            },
        }
    }
}

/// A transmit descriptor that is done: reserved fields, and DD (7.2.3.2.5).
pub(crate) const TRANSMITTED: Raw = Raw { low: 0, high: 1 << 32 };

/// What a receive descriptor says when it is written back, as far as the two forms are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) len: u16,
    /// The frame ends here.
    pub(crate) end: bool,
    /// The flow director knew the flow.
    pub(crate) flow_matched: bool,
    /// The frame has or had a VLAN tag.
    pub(crate) tagged: bool,
    /// The tag that was stripped.
    pub(crate) vlan: u16,
    /// The IPv4 header's checksum was looked at, and whether it was right.
    pub(crate) ip_checksum: Option<bool>,
    /// The TCP, UDP or SCTP checksum was looked at, and whether it was right.
    pub(crate) l4_checksum: Option<bool>,
    /// The checksum was UDP's.
    pub(crate) udp: bool,
    /// Bad on the wire.
    pub(crate) error: bool,
    /// RSS type and hash.
    pub(crate) hash_type: u8,
    pub(crate) hash: u32,
    /// The packet type field of the advanced form.
    pub(crate) packet_type: u16,
}

impl Received {
    /// DD, EOP, VP, UDPCS, L4CS, IPCS: alike in both forms.
    fn status(&self) -> u64 {
        let bit = |set: bool, bit: u32| u64::from(set) << bit;
        bit(true, 0)
            | bit(self.end, 1)
            | bit(self.tagged, 3)
            | bit(self.udp && self.l4_checksum.is_some(), 4)
            | bit(self.l4_checksum.is_some(), 5)
            | bit(self.ip_checksum.is_some(), 6)
    }

    /// The advanced form (7.1.6.2).
    pub(crate) fn advanced(&self) -> Raw {
        let bit = |set: bool, bit: u32| u64::from(set) << bit;
        let flow_matched = bit(self.flow_matched, 2);
        let errors = bit(self.error, 29)
            | bit(self.l4_checksum == Some(false), 30)
            | bit(self.ip_checksum == Some(false), 31);
        Raw {
            low: u64::from(self.hash) << 32 | u64::from(self.packet_type) << 4 | u64::from(self.hash_type),
            high: u64::from(self.vlan) << 48
                | u64::from(self.len) << 32
                | errors
                | flow_matched
                | self.status(),
        }
    }

    /// The legacy form (7.1.5); the address stays.
    pub(crate) fn legacy(&self, address: u64) -> Raw {
        let bit = |set: bool, bit: u32| u64::from(set) << bit;
        let errors = bit(self.error, 0)
            | bit(self.l4_checksum == Some(false), 6)
            | bit(self.ip_checksum == Some(false), 7);
        Raw {
            low: address,
            high: u64::from(self.vlan) << 48 | errors << 40 | self.status() << 32 | u64::from(self.len),
        }
    }
}

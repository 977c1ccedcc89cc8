//! MADT: which cores there are, and where NMIs arrive (ACPI 6.5, 5.2.12).
//!
//! Nothing here is told about I/O APICs: devices interrupt by messages. Where the local APIC is, the core itself says.

use alloc::vec::Vec;

use super::table::Table;

/// What the MADT says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Madt {
    /// APIC ids of the cores that may be started, in the order of the table, each once.
    pub(super) apic_ids: Vec<u32>,
    /// Where NMIs arrive.
    pub(super) nmi_pins: Vec<NmiPin>,
    /// The walk ended early, because an entry stated an impossible length.
    pub(super) damaged: bool,
}

/// An LVT pin of local APICs to which NMIs are wired (5.2.12.7, 5.2.12.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NmiPin {
    /// APIC id of the only core concerned; `None` for all.
    pub apic_id: Option<u32>,
    /// 0 for LINT0, 1 for LINT1.
    pub pin: u8,
}

/// Offset of the first interrupt controller structure.
const ENTRIES: usize = 44;

/// Types of interrupt controller structures (table 5.21); the others do not concern x86 cores.
mod kind {
    pub(super) const LOCAL_APIC: u8 = 0;
    pub(super) const LOCAL_APIC_NMI: u8 = 4;
    pub(super) const LOCAL_X2APIC: u8 = 9;
    pub(super) const LOCAL_X2APIC_NMI: u8 = 10;
}

/// Flag of a core that is there and may be used. "Online capable" (bit 1) alone is an empty socket.
const ENABLED: u32 = 1 << 0;
/// The id of no xAPIC: firmware pads the table with it.
const XAPIC_BROADCAST: u32 = 0xff;
/// The id of no x2APIC.
const X2APIC_BROADCAST: u32 = 0xffff_ffff;

impl Madt {
    /// Reads the whole table; unknown entries are skipped, and what comes after a damaged one is left out.
    pub(super) fn parse(table: &Table<'_>) -> Self {
        let mut madt = Self::default();
        let mut uids = Vec::new();
        let mut entries = Entries { rest: table.from(ENTRIES), damaged: false };
        for entry in &mut entries {
            madt.note_core(&entry, &mut uids);
        }
        madt.damaged = entries.damaged;
        // NMI entries name cores by their ACPI uid, and may stand before the cores.
        for entry in (Entries { rest: table.from(ENTRIES), damaged: false }) {
            madt.note_nmi(&entry, &uids);
        }
        madt
    }

    fn note_core(&mut self, entry: &Entry<'_>, uids: &mut Vec<Core>) {
        let fields = &entry.fields;
        let (uid, apic_id, flags, broadcast) = match entry.kind {
            kind::LOCAL_APIC => {
                (fields.u8(2).map(u32::from), fields.u8(3).map(u32::from), fields.u32(4), XAPIC_BROADCAST)
            }
            kind::LOCAL_X2APIC => (fields.u32(12), fields.u32(4), fields.u32(8), X2APIC_BROADCAST),
            _ => return,
        };
        let (Some(uid), Some(apic_id), Some(flags)) = (uid, apic_id, flags) else { return };
        let usable = flags & ENABLED != 0 && apic_id != broadcast;
        if usable && !self.apic_ids.contains(&apic_id) {
            self.apic_ids.push(apic_id);
            uids.push(Core { uid, apic_id });
        }
    }

    fn note_nmi(&mut self, entry: &Entry<'_>, cores: &[Core]) {
        let fields = &entry.fields;
        let (uid, all, pin) = match entry.kind {
            kind::LOCAL_APIC_NMI => (fields.u8(2).map(u32::from), 0xff, fields.u8(5)),
            kind::LOCAL_X2APIC_NMI => (fields.u32(4), u32::MAX, fields.u8(8)),
            _ => return,
        };
        let (Some(uid), Some(pin @ 0..=1)) = (uid, pin) else { return };
        let apic_id = cores.iter().find(|core| core.uid == uid).map(|core| core.apic_id);
        if uid == all || apic_id.is_some() {
            self.nmi_pins.push(NmiPin { apic_id: apic_id.filter(|_| uid != all), pin });
        }
    }
}

/// A core's two names.
struct Core {
    uid: u32,
    apic_id: u32,
}

/// One interrupt controller structure. Offsets count from its type byte.
struct Entry<'m> {
    kind: u8,
    fields: Table<'m>,
}

/// The structures one after the other. Each states its own length, so each is a chance to go astray.
struct Entries<'m> {
    rest: &'m [u8],
    damaged: bool,
}

impl<'m> Iterator for Entries<'m> {
    type Item = Entry<'m>;

    fn next(&mut self) -> Option<Entry<'m>> {
        const SHORTEST: usize = 2;
        let &[kind, length, ..] = self.rest else {
            self.damaged |= !self.rest.is_empty();
            return None;
        };
        let length = usize::from(length);
        if length < SHORTEST || length > self.rest.len() {
            self.damaged = true;
            return None;
        }
        let (entry, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(Entry { kind, fields: Table::of(entry) })
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    const ON: u8 = 1;
    const CAPABLE: u8 = 2;

    fn lapic(uid: u8, id: u8, flags: u8) -> Vec<u8> {
        vec![0, 8, uid, id, flags, 0, 0, 0]
    }

    fn x2apic(uid: u8, id: u32, flags: u8) -> Vec<u8> {
        let mut entry = vec![9, 16, 0, 0];
        entry.extend(id.to_le_bytes());
        entry.extend([flags, 0, 0, 0, uid, 0, 0, 0]);
        entry
    }

    fn parse(entries: &[Vec<u8>]) -> Madt {
        let mut bytes = vec![0; ENTRIES];
        bytes.extend(entries.concat());
        Madt::parse(&Table::of(&bytes))
    }

    #[test]
    fn lists_enabled_cores_in_table_order() {
        let madt = parse(&[
            lapic(0, 0, ON),
            lapic(1, 6, ON),
            lapic(2, 2, 0),
            lapic(3, 4, CAPABLE),
            lapic(4, 0xff, ON),
            x2apic(5, 300, ON),
        ]);
        assert_eq!(madt.apic_ids, [0, 6, 300]);
        assert!(!madt.damaged);
    }

    #[test]
    fn counts_a_core_once_when_both_entry_kinds_list_it() {
        assert_eq!(
            parse(&[lapic(0, 0, ON), lapic(1, 1, ON), x2apic(0, 0, ON), x2apic(1, 1, ON)]).apic_ids,
            [0, 1]
        );
    }

    #[test]
    fn resolves_nmi_pins_even_before_their_cores() {
        let madt = parse(&[
            vec![4, 6, 0xff, 0, 0, 1],
            vec![4, 6, 7, 0, 0, 0],
            vec![4, 6, 9, 0, 0, 1],
            vec![4, 6, 0xff, 0, 0, 2],
            lapic(7, 14, ON),
        ]);
        assert_eq!(madt.nmi_pins, [NmiPin { apic_id: None, pin: 1 }, NmiPin { apic_id: Some(14), pin: 0 }]);
    }

    #[test]
    fn stops_at_impossible_lengths() {
        for broken in [vec![0, 0], vec![0, 1, 0], vec![0, 200, 0, 0], vec![0]] {
            let madt = parse(&[lapic(0, 3, ON), broken]);
            assert_eq!(madt.apic_ids, [3]);
            assert!(madt.damaged);
        }
    }

    #[test]
    fn skips_unknown_and_truncated_entries() {
        let madt = parse(&[vec![0x7f, 3, 1], vec![9, 6, 0, 0, 1, 0], vec![0, 4, 1, 1], lapic(0, 5, ON)]);
        assert_eq!(madt.apic_ids, [5]);
        assert!(!madt.damaged);
    }
}

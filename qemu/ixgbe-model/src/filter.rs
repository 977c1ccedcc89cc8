//! Which frames pass: addresses and VLANs (datasheet 7.1.1).

use crate::core::Core;
use crate::headers::Headers;
use crate::registers::*;

const ADDRESSES: usize = 128;
const BROADCAST: [u8; 6] = [0xff; 6];

/// How a destination address is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    /// Of a frame's destination.
    pub(crate) fn of(frame: &[u8]) -> Cast {
        match frame.first_chunk::<6>() {
            Some(&BROADCAST) => Cast::Broadcast,
            Some([first, ..]) if first & 1 == 1 => Cast::Multicast,
            _ => Cast::Unicast,
        }
    }
}

/// Whether a frame passes the address filter and the VLAN filter.
pub(crate) fn passes(core: &Core, frame: &[u8], headers: &Headers) -> bool {
    passes_address(core, frame) && passes_vlan(core, headers)
}

fn passes_address(core: &Core, frame: &[u8]) -> bool {
    let Some(address) = frame.first_chunk::<6>() else { return false };
    let fctrl = core.values.get(Register::FCTRL);
    match Cast::of(frame) {
        Cast::Broadcast => fctrl & FCTRL_BAM != 0 || is_ours(core, address),
        Cast::Unicast => fctrl & FCTRL_UPE != 0 || is_ours(core, address),
        Cast::Multicast => fctrl & FCTRL_MPE != 0 || is_ours(core, address) || is_hashed(core, address),
    }
}

/// Whether one of the receive address registers holds the address.
fn is_ours(core: &Core, address: &[u8; 6]) -> bool {
    entries(core, *address).next().is_some()
}

/// The receive address registers that hold the destination of a frame.
pub(crate) fn exact_matches(core: &Core, frame: &[u8]) -> impl Iterator<Item = usize> {
    frame.first_chunk::<6>().into_iter().flat_map(|address| entries(core, *address))
}

fn entries(core: &Core, address: [u8; 6]) -> impl Iterator<Item = usize> {
    let low = u32::from_le_bytes([address[0], address[1], address[2], address[3]]);
    let high = RAH_AV | u32::from(u16::from_le_bytes([address[4], address[5]]));
    (0..ADDRESSES).filter(move |index| {
        let valid = core.values.at(Register::RAH, *index) & (RAH_AV | 0xffff);
        valid == high && core.values.at(Register::RAL, *index) == low
    })
}

/// Whether the multicast table has the destination of a frame.
pub(crate) fn is_in_multicast_table(core: &Core, frame: &[u8]) -> bool {
    frame.first_chunk::<6>().is_some_and(|address| is_hashed(core, address))
}

/// Whether the multicast table has the address: twelve of its last bits are the index (7.1.1.2.2).
fn is_hashed(core: &Core, address: &[u8; 6]) -> bool {
    let control = core.values.get(Register::MCSTCTRL);
    if control & MCSTCTRL_MFE == 0 {
        return false;
    }
    let shift = [4, 3, 2, 0][control as usize & 3];
    let index = (u16::from_le_bytes([address[4], address[5]]) >> shift) & 0xfff;
    core.values.at(Register::MTA, usize::from(index >> 5)) >> (index & 31) & 1 == 1
}

fn passes_vlan(core: &Core, headers: &Headers) -> bool {
    let control = core.values.get(Register::VLNCTRL);
    let (true, Some(tag)) = (control & VLNCTRL_VFE != 0, headers.vlan) else { return true };
    if control & VLNCTRL_CFIEN != 0 && u32::from(tag >> 12 & 1) != control >> 28 & 1 {
        return false;
    }
    let id = tag & 0xfff;
    core.values.at(Register::VFTA, usize::from(id >> 5)) >> (id & 31) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::VLAN_ETHERTYPE;
    use crate::options::CardOptions;

    fn card() -> Core {
        Core::new(CardOptions::default())
    }

    fn to(destination: [u8; 6]) -> Vec<u8> {
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.resize(60, 0);
        frame
    }

    fn passes(core: &Core, frame: &[u8]) -> bool {
        super::passes(core, frame, &Headers::parse(frame, VLAN_ETHERTYPE))
    }

    #[test]
    fn nothing_passes_unasked() {
        for destination in [[2, 0, 0, 0, 0, 9], [0x33, 0x33, 0, 0, 0, 1], BROADCAST] {
            assert!(!passes(&card(), &to(destination)), "{destination:x?}");
        }
    }

    #[test]
    fn promiscuity_is_by_kind_of_address() {
        let kinds = [[2, 0, 0, 0, 0, 9], [0x33, 0x33, 0, 0, 0, 1], BROADCAST];
        for (index, fctrl) in [FCTRL_UPE, FCTRL_MPE, FCTRL_BAM].into_iter().enumerate() {
            let mut core = card();
            core.values.set(Register::FCTRL, fctrl);
            let passing: Vec<bool> = kinds.iter().map(|kind| passes(&core, &to(*kind))).collect();
            assert_eq!(passing, (0..3).map(|kind| kind == index).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_address_passes_while_it_is_valid() {
        let mut core = card();
        core.values.set_at(Register::RAL, 127, 0x0000_0002);
        core.values.set_at(Register::RAH, 127, 0x0900);
        assert!(!passes(&core, &to([2, 0, 0, 0, 0, 9])));
        core.values.set_at(Register::RAH, 127, 0x0900 | RAH_AV);
        assert!(passes(&core, &to([2, 0, 0, 0, 0, 9])));
        assert!(!passes(&core, &to([2, 0, 0, 0, 0, 8])));
    }

    #[test]
    fn the_multicast_table_is_indexed_by_the_bits_that_mcstctrl_names() {
        let address = [0x01, 0x00, 0x5e, 0x12, 0x34, 0xab];
        // 0xab34 shifted right by 4, 3, 2, 0; twelve bits of it.
        for (offset, index) in [0xab3u32, 0x566, 0xacd, 0xb34].into_iter().enumerate() {
            let mut core = card();
            core.values.set(Register::MCSTCTRL, MCSTCTRL_MFE | offset as u32);
            (0..128).for_each(|word| core.values.set_at(Register::MTA, word, 0));
            assert!(!passes(&core, &to(address)));
            core.values.set_at(Register::MTA, index as usize >> 5, 1 << (index & 31));
            assert!(passes(&core, &to(address)), "offset {offset}");
        }
    }

    #[test]
    fn the_vlan_filter_concerns_tagged_frames() {
        let mut core = card();
        core.values.set(Register::FCTRL, FCTRL_UPE);
        core.values.insert(Register::VLNCTRL, VLNCTRL_VFE);
        (0..128).for_each(|word| core.values.set_at(Register::VFTA, word, 0));
        let plain = to([2, 0, 0, 0, 0, 9]);
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x64]);
        assert!(passes(&core, &plain));
        assert!(!passes(&core, &tagged));
        core.values.set_at(Register::VFTA, 100 / 32, 1 << (100 % 32));
        assert!(passes(&core, &tagged));
        core.values.insert(Register::VLNCTRL, VLNCTRL_CFIEN);
        assert!(passes(&core, &tagged));
        tagged[14] |= 0x10;
        assert!(!passes(&core, &tagged), "the canonical-form bit");
    }
}

//! Pools: which of the virtual machines behind the card a frame is for (datasheet 7.1.2.1, 7.10.3).

use crate::core::Core;
use crate::filter;
use crate::filter::Cast;
use crate::headers::Headers;
use crate::registers::*;
use crate::virtual_function::queues_per_pool;

/// VMOLR: the pool takes untagged frames.
const ACCEPT_UNTAGGED: u32 = 1 << 24;
/// VMOLR: the pool takes multicasts that the table has.
const MULTICAST_BY_TABLE: u32 = 1 << 25;
/// VMOLR: the pool takes broadcasts.
const BROADCAST: u32 = 1 << 27;
/// VMOLR: the pool takes every unicast, on cards after the 82599 (X540 datasheet, VMOLR.UPE).
const EVERY_UNICAST: u32 = 1 << 22;
/// VMOLR: the pool takes every multicast.
const EVERY_MULTICAST: u32 = 1 << 28;
/// VLVF: the entry holds.
const VLAN_VALID: u32 = 1 << 31;

/// The pools that get a frame that passed the filters, as a set. Without pools there is one, pool 0.
pub(crate) fn of(core: &Core, frame: &[u8], headers: &Headers) -> u64 {
    let control = core.values.get(Register::VT_CTL);
    if control & VT_CTL_VT_ENA == 0 {
        return 1;
    }
    let enabled = core.values.wide_pair(Register::VFRE);
    let addressed = by_address(core, frame) & by_vlan(core, headers);
    let default = match control & VT_CTL_DIS_DEF_POOL {
        0 => 1u64 << (control >> 7 & 0x3f),
        _ => 0,
    };
    let pools = if addressed == 0 { default } else { addressed } & enabled;
    let replicates = control & VT_CTL_REPLICATION_EN != 0;
    // Without replication a frame goes to one pool, the lowest (7.10.3.4).
    if replicates && Cast::of(frame) != Cast::Unicast { pools } else { pools & pools.wrapping_neg() }
}

/// Whether the pool of a queue may transmit (8.2.3.27.9, VFTE).
pub(crate) fn may_transmit(core: &Core, queue: usize) -> bool {
    match queues_per_pool(core) {
        Some(per_pool) if core.values.has(Register::VT_CTL, VT_CTL_VT_ENA) => {
            core.values.wide_pair(Register::VFTE) >> (queue / per_pool) & 1 == 1
        }
        _ => true,
    }
}

/// The other pools that a frame of this queue is for: they get it without a cable (7.10.3.3).
pub(crate) fn local(core: &Core, queue: usize, frame: &[u8], headers: &Headers) -> u64 {
    const SWITCHING: u32 = 1;
    let Some(per_pool) = queues_per_pool(core) else { return 0 };
    let (source, virtualised) = (queue / per_pool, core.values.has(Register::VT_CTL, VT_CTL_VT_ENA));
    if !virtualised || !core.values.has(Register::PFDTXGSWC, SWITCHING) {
        return 0;
    }
    let pools = by_address(core, frame) & by_vlan(core, headers) & core.values.wide_pair(Register::VFRE);
    pools & !(1 << source)
}

fn by_address(core: &Core, frame: &[u8]) -> u64 {
    let exact =
        filter::exact_matches(core, frame).fold(0, |pools, entry| pools | pair(core, Register::MPSAR, entry));
    let accepts = |bits: u32| {
        (0..64)
            .filter(|pool| core.values.at(Register::VMOLR, *pool) & bits != 0)
            .fold(0u64, |pools, pool| pools | 1 << pool)
    };
    exact
        | match Cast::of(frame) {
            Cast::Unicast if core.options.model.is_82599() => 0,
            Cast::Unicast => accepts(EVERY_UNICAST),
            Cast::Broadcast => accepts(BROADCAST),
            Cast::Multicast if filter::is_in_multicast_table(core, frame) => {
                accepts(MULTICAST_BY_TABLE | EVERY_MULTICAST)
            }
            Cast::Multicast => accepts(EVERY_MULTICAST),
        }
}

/// The pools that take the frame's VLAN, or untagged frames.
fn by_vlan(core: &Core, headers: &Headers) -> u64 {
    let Some(tag) = headers.vlan else {
        return (0..64)
            .filter(|pool| core.values.at(Register::VMOLR, *pool) & ACCEPT_UNTAGGED != 0)
            .fold(0, |pools, pool| pools | 1 << pool);
    };
    let wanted = VLAN_VALID | u32::from(tag & 0xfff);
    (0..64)
        .filter(|entry| core.values.at(Register::VLVF, *entry) & (VLAN_VALID | 0xfff) == wanted)
        .fold(0, |pools, entry| pools | pair(core, Register::VLVFB, entry))
}

/// A set of 64 pools, in two registers of an array.
fn pair(core: &Core, register: Register, entry: usize) -> u64 {
    u64::from(core.values.at(register, 2 * entry + 1)) << 32 | u64::from(core.values.at(register, 2 * entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::VLAN_ETHERTYPE;
    use crate::options::CardOptions;

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// Pools 0 to 2 and default pool 63; OURS belongs to pool 2; pools 0 and 1 take broadcasts.
    fn card() -> Core {
        let mut core = Core::new(CardOptions::default());
        for register in [Register::MTA, Register::MPSAR] {
            (0..register.row().count()).for_each(|index| core.values.set_at(register, index, 0));
        }
        core.values.set(Register::VT_CTL, VT_CTL_VT_ENA | VT_CTL_REPLICATION_EN | 63 << 7);
        core.values.set_at(Register::VFRE, 0, 0b111);
        core.values.set_at(Register::VFRE, 1, 1 << 31);
        core.values.set_at(Register::RAL, 5, u32::from_le_bytes([2, 0, 0, 0]));
        core.values.set_at(Register::RAH, 5, RAH_AV | 0x0900);
        core.values.set_at(Register::MPSAR, 10, 1 << 2);
        for pool in 0..3 {
            let broadcast = if pool < 2 { BROADCAST } else { 0 };
            core.values.set_at(Register::VMOLR, pool, ACCEPT_UNTAGGED | broadcast);
        }
        core
    }

    fn pools(core: &Core, destination: [u8; 6], tag: Option<u16>) -> u64 {
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        if let Some(tag) = tag {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend([0x88, 0xb5]);
        frame.resize(64, 0);
        of(core, &frame, &Headers::parse(&frame, VLAN_ETHERTYPE))
    }

    #[test]
    fn an_address_belongs_to_its_pool() {
        assert_eq!(pools(&card(), OURS, None), 1 << 2);
        assert_eq!(pools(&card(), [2, 0, 0, 0, 0, 8], None), 1 << 63, "nobody's goes to the default pool");
    }

    #[test]
    fn a_broadcast_goes_to_all_that_want_it() {
        let mut core = card();
        assert_eq!(pools(&core, [0xff; 6], None), 0b011);
        core.values.remove(Register::VT_CTL, VT_CTL_REPLICATION_EN);
        assert_eq!(pools(&core, [0xff; 6], None), 0b001);
    }

    #[test]
    fn a_pool_gets_its_vlans_only() {
        let mut core = card();
        assert_eq!(pools(&core, OURS, Some(100)), 1 << 63);
        core.values.set_at(Register::VLVF, 7, VLAN_VALID | 100);
        core.values.set_at(Register::VLVFB, 14, 1 << 2);
        assert_eq!(pools(&core, OURS, Some(100)), 1 << 2);
        assert_eq!(pools(&core, OURS, Some(101)), 1 << 63);
    }

    #[test]
    fn a_pool_that_may_not_receive_does_not() {
        let mut core = card();
        core.values.set_at(Register::VFRE, 0, 0b011);
        assert_eq!(pools(&core, OURS, None), 0);
    }
}

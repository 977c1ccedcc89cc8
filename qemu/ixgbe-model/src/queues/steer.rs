//! Which receive queue a frame goes to (datasheet 7.1.2).

use super::flow_director::{FlowDirector, Verdict};
use crate::core::Core;
use crate::headers::{Headers, Ip, SCTP, TCP, UDP, Version};
use crate::registers::*;
use crate::rss::{self, Hash};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// `None`: a filter says that it is to be dropped.
    pub(crate) queue: Option<usize>,
    /// The hash that its descriptors tell.
    pub(crate) hash: Hash,
    /// The flow director knew the flow.
    pub(crate) flow_matched: bool,
}

/// MRQC.MRQE: how queues are made out (8.2.3.7.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Everything to queue 0.
    Single,
    /// By hash.
    Rss,
    /// By user priority, to the first queue of one of 4 or 8 classes; with a hash in the class where `rss` says so.
    Dcb { classes: usize, rss: bool },
    /// By pool: 64 of 2 queues, or 32 of 4.
    Pools { queues_per_pool: usize, rss: bool },
}

impl Mode {
    fn of(core: &Core) -> Mode {
        match core.values.get(Register::MRQC) & 0xf {
            0x1 => Mode::Rss,
            0x2 => Mode::Dcb { classes: 8, rss: false },
            0x3 => Mode::Dcb { classes: 4, rss: false },
            0x4 => Mode::Dcb { classes: 8, rss: true },
            0x5 => Mode::Dcb { classes: 4, rss: true },
            0x8 => Mode::Pools { queues_per_pool: 2, rss: false },
            0xa => Mode::Pools { queues_per_pool: 4, rss: true },
            0xb => Mode::Pools { queues_per_pool: 2, rss: true },
            _ => Mode::Single,
        }
    }

    fn hashes(self) -> bool {
        match self {
            Mode::Single => false,
            Mode::Rss => true,
            Mode::Dcb { rss, .. } | Mode::Pools { rss, .. } => rss,
        }
    }
}

/// Where a frame goes that is for `pool`, which is 0 unless there are pools. Filters come before the hash, the most
/// special first (7.1.2.2).
pub(crate) fn route(
    core: &mut Core,
    flow_director: &FlowDirector,
    frame: &[u8],
    headers: &Headers,
    pool: usize,
) -> Route {
    let mode = Mode::of(core);
    let hash = match mode {
        Mode::Pools { .. } if mode.hashes() => rss::hash_in_pool(core, frame, headers, pool),
        _ if mode.hashes() => rss::hash(core, frame, headers),
        _ => Hash::default(),
    };
    let filtered = by_ethertype(core, headers)
        .or_else(|| by_syn(core, frame, headers))
        .or_else(|| by_five_tuple(core, frame, headers));
    if let Some(queue) = filtered {
        return Route { queue: Some(queue), hash, flow_matched: false };
    }
    let verdict = flow_director.verdict(core, frame, headers);
    let queue = match verdict {
        Some(Verdict::Drop) => None,
        Some(Verdict::Queue(queue)) => Some(queue),
        None => Some(spread(core, mode, hash, headers, pool)),
    };
    Route { queue, hash, flow_matched: verdict.is_some() }
}

fn spread(core: &Core, mode: Mode, hash: Hash, headers: &Headers, pool: usize) -> usize {
    let within = if mode.hashes() { rss::queue(core, hash) } else { 0 };
    let queue = match mode {
        Mode::Single => 0,
        Mode::Rss => within,
        Mode::Dcb { classes, .. } => class_base(classes, class(core, headers)) + within,
        Mode::Pools { queues_per_pool, .. } => {
            let within = if mode.hashes() { rss::queue_in_pool(core, hash, pool) } else { 0 };
            // PSRTYPE.RQPL: how many bits of the table's entry count (8.2.3.7.4).
            let bits = core.values.at(Register::PSRTYPE, pool) >> 29;
            pool * queues_per_pool + (within & ((1 << bits) - 1)) % queues_per_pool
        }
    };
    queue.min(super::QUEUES - 1)
}

/// A filter on the ethertype (7.1.2.3).
fn by_ethertype(core: &Core, headers: &Headers) -> Option<usize> {
    let filter = (0..8).find(|filter| {
        let etqf = core.values.at(Register::ETQF, *filter);
        etqf & ETQF_FILTER_EN != 0 && etqf as u16 == headers.ethertype
    })?;
    let etqs = core.values.at(Register::ETQS, filter);
    (etqs & ETQS_QUEUE_EN != 0).then_some((etqs >> 16 & 0x7f) as usize)
}

/// The queue of TCP packets that open a connection (7.1.2.6).
fn by_syn(core: &Core, frame: &[u8], headers: &Headers) -> Option<usize> {
    const ENABLE: u32 = 1;
    const SYN: u8 = 0x02;
    let synqf = core.values.get(Register::SYNQF);
    let ip = headers.ip.filter(|ip| synqf & ENABLE != 0 && ip.protocol == TCP && !ip.fragment)?;
    let flags = frame[..ip.end].get(ip.payload + 13)?;
    (flags & SYN != 0).then_some((synqf >> 1 & 0x7f) as usize)
}

/// Filters on addresses, ports and protocol; of those that match, the one of the highest priority (7.1.2.5).
fn by_five_tuple(core: &Core, frame: &[u8], headers: &Headers) -> Option<usize> {
    let ip = headers.ip.filter(|ip| ip.version == Version::V4 && !ip.fragment)?;
    let filter = (0..128)
        .filter(|filter| matches_five_tuple(core, *filter, frame, &ip))
        // The first of equals.
        .rev()
        .max_by_key(|filter| core.values.at(Register::FTQF, *filter) >> 2 & 7)?;
    Some((core.values.at(Register::L34TIMIR, filter) >> 21 & 0x7f) as usize)
}

fn matches_five_tuple(core: &Core, filter: usize, frame: &[u8], ip: &Ip) -> bool {
    const ENABLE: u32 = 1 << 31;
    let ftqf = core.values.at(Register::FTQF, filter);
    if ftqf & ENABLE == 0 {
        return false;
    }
    let (addresses, ports) = (ip.addresses(frame), ip.ports(frame));
    // A bit of the mask that is set means that the field does not count.
    let counts = |bit: u32| ftqf >> bit & 1 == 0;
    let sdpqf = core.values.at(Register::SDPQF, filter).to_le_bytes();
    let protocol = match ip.protocol {
        TCP => 0,
        UDP => 1,
        SCTP => 2,
        _ => 3,
    };
    (!counts(25) || addresses[..4] == core.values.at(Register::SAQF, filter).to_le_bytes())
        && (!counts(26) || addresses[4..] == core.values.at(Register::DAQF, filter).to_le_bytes())
        && (!counts(27) || ports.is_some_and(|ports| ports[..2] == sdpqf[..2]))
        && (!counts(28) || ports.is_some_and(|ports| ports[2..] == sdpqf[2..]))
        && (!counts(29) || ftqf & 3 == protocol)
}

/// The traffic class of a frame, by the priority in its tag (8.2.3.10.4: RTRUP2TC, three bits a priority).
fn class(core: &Core, headers: &Headers) -> usize {
    let priority = headers.vlan.unwrap_or(0) >> 13;
    (core.values.get(Register::RTRUP2TC) >> (3 * priority)) as usize & 7
}

/// The first queue of a class: 16 queues each of 8 classes, or 32 each of 4 (7.1.2.1).
fn class_base(classes: usize, class: usize) -> usize {
    class % classes * (super::QUEUES / classes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::VLAN_ETHERTYPE;
    use crate::headers::tests::ipv4;
    use crate::options::CardOptions;

    fn card(mrqc: u32) -> Core {
        let mut core = Core::new(CardOptions::default());
        core.values.set(Register::MRQC, mrqc);
        (0..10).for_each(|word| core.values.set_at(Register::RSSRK, word, 0x6d5a_56da));
        (0..32).for_each(|word| core.values.set_at(Register::RETA, word, 0x0302_0100));
        core
    }

    fn queue_of(core: &mut Core, frame: &[u8], pool: usize) -> usize {
        let headers = Headers::parse(frame, VLAN_ETHERTYPE);
        route(core, &FlowDirector::default(), frame, &headers, pool).queue.expect("a queue")
    }

    /// Frames of many flows.
    fn flows() -> impl Iterator<Item = Vec<u8>> {
        (0..=255)
            .map(|flow| ipv4([10, 0, 0, flow], [10, 0, 1, 1], UDP, &[0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0]))
    }

    #[test]
    fn without_a_mode_there_is_one_queue() {
        let mut core = card(MRQC_IPV4);
        assert!(flows().all(|frame| queue_of(&mut core, &frame, 0) == 0));
    }

    #[test]
    fn a_hash_spreads_over_the_queues_of_the_table() {
        let mut core = card(0x1 | MRQC_IPV4);
        let mut counts = [0; 4];
        flows().for_each(|frame| counts[queue_of(&mut core, &frame, 0)] += 1);
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }

    #[test]
    fn a_pool_spreads_over_its_own_queues() {
        let mut core = card(0xb | MRQC_IPV4);
        assert!(flows().all(|frame| queue_of(&mut core, &frame, 5) == 10), "no bit of the table counts");
        core.values.set_at(Register::PSRTYPE, 5, 1 << 29);
        assert!(flows().all(|frame| matches!(queue_of(&mut core, &frame, 5), 10 | 11)));
        let mut core = card(0xa | MRQC_IPV4);
        core.values.set_at(Register::PSRTYPE, 5, 2 << 29);
        assert!(flows().all(|frame| matches!(queue_of(&mut core, &frame, 5), 20..24)));
    }

    #[test]
    fn a_priority_picks_a_class() {
        let mut core = card(0x2);
        core.values.set(Register::RTRUP2TC, 6 << (3 * 5));
        let mut frame = flows().next().expect("a flow");
        assert_eq!(queue_of(&mut core, &frame, 0), 0);
        frame.splice(12..12, [0x81, 0x00, 5 << 5, 1]);
        assert_eq!(queue_of(&mut core, &frame, 0), 6 * 16);
    }

    #[test]
    fn an_ethertype_filter_overrules_the_hash() {
        let mut core = card(0x1 | MRQC_IPV4);
        core.values.set_at(Register::ETQF, 3, ETQF_FILTER_EN | 0x0800);
        core.values.set_at(Register::ETQS, 3, ETQS_QUEUE_EN | 9 << 16);
        assert!(flows().all(|frame| queue_of(&mut core, &frame, 0) == 9));
    }

    #[test]
    fn the_five_tuple_filter_of_the_highest_priority_counts() {
        const IGNORE_ALL: u32 = 0x1f << 25;
        let mut core = card(0);
        let frame = flows().nth(7).expect("a flow");
        for (filter, mask, priority, queue) in [
            (2, IGNORE_ALL, 1, 20),
            (3, IGNORE_ALL & !(1 << 25), 5, 30),
            (4, IGNORE_ALL & !(1 << 28) & !(1 << 29), 7, 40),
        ] {
            core.values.set_at(Register::FTQF, filter, 1 << 31 | mask | priority << 2 | 1);
            core.values.set_at(Register::L34TIMIR, filter, queue << 21);
            core.values.set_at(Register::SAQF, filter, u32::from_le_bytes([10, 0, 0, 7]));
            core.values.set_at(Register::SDPQF, filter, u32::from_le_bytes([0, 0, 0x56, 0x78]));
        }
        assert_eq!(queue_of(&mut core, &frame, 0), 40);
        core.values.set_at(Register::SDPQF, 4, 0);
        assert_eq!(queue_of(&mut core, &frame, 0), 30);
        core.values.set_at(Register::SAQF, 3, 0);
        assert_eq!(queue_of(&mut core, &frame, 0), 20);
    }

    #[test]
    fn connections_may_begin_in_a_queue_of_their_own() {
        let mut core = card(0);
        core.values.set(Register::SYNQF, 1 | 11 << 1);
        for (flags, queue) in [(0x02, 11), (0x12, 11), (0x10, 0)] {
            let mut header = vec![0; 20];
            header[13] = flags;
            let frame = ipv4([10, 0, 0, 1], [10, 0, 1, 1], TCP, &header);
            assert_eq!(queue_of(&mut core, &frame, 0), queue, "flags {flags:#x}");
        }
    }
}

//! Which receive queue a frame goes to (datasheet 7.1.2).

use crate::core::Core;
use crate::headers::Headers;
use crate::registers::*;
use crate::rss::{self, Hash};

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
}

/// Queue and hash of a frame that goes to `pool`, which is 0 unless there are pools.
pub(crate) fn queue(core: &Core, frame: &[u8], headers: &Headers, pool: usize) -> (usize, Hash) {
    let mode = Mode::of(core);
    let hashes = match mode {
        Mode::Single => false,
        Mode::Rss => true,
        Mode::Dcb { rss, .. } | Mode::Pools { rss, .. } => rss,
    };
    let hash = if hashes { rss::hash(core, frame, headers) } else { Hash::default() };
    if let Some(queue) = by_ethertype(core, headers) {
        return (queue, hash);
    }
    let spread = if hashes { rss::queue(core, hash) } else { 0 };
    let queue = match mode {
        Mode::Single => 0,
        Mode::Rss => spread,
        Mode::Dcb { classes, .. } => class_base(classes, class(core, headers)) + spread,
        Mode::Pools { queues_per_pool, .. } => pool * queues_per_pool + spread % queues_per_pool,
    };
    (queue.min(super::QUEUES - 1), hash)
}

/// A filter on the ethertype overrules everything else (7.1.2.3).
fn by_ethertype(core: &Core, headers: &Headers) -> Option<usize> {
    let filter = (0..8).find(|filter| {
        let etqf = core.values.at(Register::ETQF, *filter);
        etqf & ETQF_FILTER_EN != 0 && etqf as u16 == headers.ethertype
    })?;
    let etqs = core.values.at(Register::ETQS, filter);
    (etqs & ETQS_QUEUE_EN != 0).then_some((etqs >> 16 & 0x7f) as usize)
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

    fn queue_of(core: &Core, frame: &[u8], pool: usize) -> usize {
        queue(core, frame, &Headers::parse(frame, VLAN_ETHERTYPE), pool).0
    }

    /// Frames of many flows.
    fn flows() -> impl Iterator<Item = Vec<u8>> {
        (0..=255).map(|flow| ipv4([10, 0, 0, flow], [10, 0, 1, 1], 17, &[0; 8]))
    }

    #[test]
    fn without_a_mode_there_is_one_queue() {
        assert!(flows().all(|frame| queue_of(&card(MRQC_IPV4), &frame, 0) == 0));
    }

    #[test]
    fn a_hash_spreads_over_the_queues_of_the_table() {
        let core = card(0x1 | MRQC_IPV4);
        let mut counts = [0; 4];
        flows().for_each(|frame| counts[queue_of(&core, &frame, 0)] += 1);
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }

    #[test]
    fn a_pool_spreads_over_its_own_queues() {
        let core = card(0xb | MRQC_IPV4);
        assert!(flows().all(|frame| matches!(queue_of(&core, &frame, 5), 10 | 11)));
        let core = card(0xa | MRQC_IPV4);
        assert!(flows().all(|frame| matches!(queue_of(&core, &frame, 5), 20..24)));
    }

    #[test]
    fn a_priority_picks_a_class() {
        let mut core = card(0x2);
        core.values.set(Register::RTRUP2TC, 6 << (3 * 5));
        let mut frame = flows().next().expect("a flow");
        assert_eq!(queue_of(&core, &frame, 0), 0);
        frame.splice(12..12, [0x81, 0x00, 5 << 5, 1]);
        assert_eq!(queue_of(&core, &frame, 0), 6 * 16);
    }

    #[test]
    fn an_ethertype_filter_overrules_the_hash() {
        let mut core = card(0x1 | MRQC_IPV4);
        core.values.set_at(Register::ETQF, 3, ETQF_FILTER_EN | 0x0800);
        core.values.set_at(Register::ETQS, 3, ETQS_QUEUE_EN | 9 << 16);
        assert!(flows().all(|frame| queue_of(&core, &frame, 0) == 9));
    }
}

//! The image on virtual functions, lent by a host that the test plays: the machine never sees the card itself.

use std::time::Duration;

use anyhow::Result;
use libtest_mimic::Trial;
use qemu::vfio::{Card, CardPort, Fault, HostDriver, LentLink, Model, Notice};

use super::{Kind, Misfortune, Setup, any_below, exchange, faults, inject};
use crate::harness::{Need, test_with};

pub(super) fn trials() -> Vec<Trial> {
    let trial = |name, body: fn() -> Result<()>| test_with(&[Need::CardsFromOutside], name, body);
    vec![
        trial("card::virtual_function::of_an_82599_reflects", || {
            let ports = &[Kind::Lent(Model::Sfp82599)];
            exchange(&Setup {
                ports,
                cores: 1,
                words: "program=reflect",
                queues: 1,
                line: "ixgbevf 0000:01:00.0 mac=02:00:00:00:00:01",
            })
        }),
        trial("card::virtual_function::of_an_x540_and_an_x550_forward", || {
            let ports = &[Kind::Lent(Model::X540), Kind::Lent(Model::X550)];
            exchange(&Setup { ports, cores: 2, words: "program=forward", queues: 2, line: "rx-queues=2" })
        }),
        trial("card::virtual_function::to_virtio_and_back", || {
            let ports = &[Kind::Lent(Model::X540), Kind::Virtio];
            exchange(&Setup { ports, cores: 2, words: "program=forward", queues: 2, line: "ixgbevf" })
        }),
        trial("card::virtual_function::more_cores_than_queues", || {
            let ports = &[Kind::Lent(Model::X540)];
            let words = "program=reflect rx=software";
            exchange(&Setup { ports, cores: 8, words, queues: 2, line: "tx=shared(4 cores/queue)" })
        }),
        trial("card::virtual_function::whose_host_is_reset", || {
            faults(Kind::Lent(Model::X540), &HOST_RESETS)
        }),
        trial("card::virtual_function::whose_link_comes_and_goes", || {
            faults(Kind::Lent(Model::X540), &LINK_CHANGES)
        }),
    ]
}

/// The host resets its card, four times, with notice and without.
const HOST_RESETS: Misfortune = Misfortune {
    strike: |cards, turn| match turn % 2 {
        0 => hosts(cards, |host, card| host.reset(card, Notice::Given)),
        _ => hosts(cards, |host, card| host.reset(card, Notice::None)),
    },
    pause: Duration::from_millis(1_500),
    lasts: Duration::from_secs(6),
    // Nobody hears of such a reset before it.
    verdict: super::nothing_is_unknown,
};

/// The cable is pulled and plugged in, and the host takes the link and gives it back, four times.
const LINK_CHANGES: Misfortune = Misfortune {
    strike: |cards, turn| match turn % 4 {
        0 => inject(cards, Fault::LinkDown),
        1 => inject(cards, Fault::LinkUp),
        2 => hosts(cards, |host, card| host.set_link(card, 0, LentLink::Taken)),
        _ => hosts(cards, |host, card| host.set_link(card, 0, LentLink::Given)),
    },
    pause: Duration::from_millis(400),
    lasts: Duration::from_secs(6),
    verdict: super::nothing_is_wrong,
};

/// Everything that can befall a function, in any order, for so many minutes.
pub(super) fn soak(minutes: u64) -> Misfortune {
    Misfortune {
        strike: |cards, _| {
            let fates: [fn(&[CardPort]); 7] = [
                |cards| inject(cards, Fault::LinkDown),
                |cards| inject(cards, Fault::LinkUp),
                |cards| inject(cards, Fault::LostCompletions { queue: 0, count: 3 }),
                |cards| hosts(cards, |host, card| host.reset(card, Notice::Given)),
                |cards| hosts(cards, |host, card| host.reset(card, Notice::None)),
                |cards| hosts(cards, |host, card| host.set_link(card, 0, LentLink::Taken)),
                |cards| hosts(cards, |host, card| host.set_link(card, 0, LentLink::Given)),
            ];
            let fate = any_below(fates.len());
            eprintln!("soak of virtual functions: {fate}");
            fates[fate](cards);
        },
        pause: Duration::from_secs(1),
        lasts: Duration::from_secs(60 * minutes),
        verdict: super::nothing_is_unknown,
    }
}

/// Has the host of each function do something.
fn hosts(cards: &[CardPort], act: fn(&mut HostDriver, &mut Card)) {
    cards.iter().for_each(|card| card.with_host(act).expect("a host"));
}

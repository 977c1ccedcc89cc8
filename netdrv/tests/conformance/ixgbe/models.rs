//! Every kind of card: what it gives, and how it spreads flows.

use std::collections::BTreeSet;

use ixgbe_model::{CardOptions, Model, Module as Plugged};
use netdrv::device::{Link, Mac, NetDevice, QueueWish};
use netdrv::ixgbe::{IxgbeError, Module, model};
use netdrv::rss;

use super::{IxgbeBench, lock};
use crate::bench::{Bench, Rig};

const MODELS: [Model; 5] = [Model::Sfp82599, Model::Kx4_82599, Model::Kr82599, Model::X540, Model::X550];

fn bench(options: CardOptions, pairs: usize) -> IxgbeBench {
    let wish = QueueWish { pairs, ring: 128, interrupts: 0, tx_needed: 0 };
    let mut bench = IxgbeBench::new(options, wish).expect("a sane card");
    bench.live(50);
    bench
}

#[test]
fn every_card_gives_what_it_has() {
    for model in MODELS {
        let rx = if model == Model::X550 { 63 } else { 16 };
        for (wish, rx, tx) in [(1, 1, 1), (4, 4, 4), (20, 20.min(rx), 20), (73, rx, 64)] {
            let mut bench = bench(CardOptions { model, ..CardOptions::default() }, wish);
            let shape = bench.device().shape();
            assert_eq!((shape.rx, shape.tx, shape.rx_ring, shape.tx_ring), (rx, tx, 128, 128), "{model:?}");
            assert_eq!(bench.device().mac(), Mac(CardOptions::default().mac));
            assert_eq!(bench.device().link(), Link::Up, "{model:?}");
            Rig::new(bench).finish();
        }
    }
}

/// 10GBASE-T negotiates for seconds; a link that has to come up at once and does not is started over.
#[test]
fn a_slow_link_is_waited_for_on_copper_alone() {
    for (model, resets) in [(Model::X540, 0), (Model::Sfp82599, 3)] {
        let link_time = std::time::Duration::from_secs(8);
        let wish = QueueWish { pairs: 1, ring: 64, interrupts: 0, tx_needed: 0 };
        let options = CardOptions { model, link_time, ..CardOptions::default() };
        let mut bench = IxgbeBench::new(options, wish).expect("a sane card");
        bench.live(7_500);
        assert_eq!(bench.device().counters().resets, resets);
        bench.live(1_500);
        let link = if resets == 0 { Link::Up } else { Link::Down };
        assert_eq!(bench.device().link(), link, "{model:?}");
    }
}

/// A UDP packet of flow `flow`, and the hash that the card makes of it.
pub(super) fn packet(flow: u16) -> (Vec<u8>, u32) {
    let (source, destination) = ([10, 0, 1, (flow % 7) as u8], [10, 0, 2, 1]);
    let ports = [flow.to_be_bytes(), 4789u16.to_be_bytes()].concat();
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(source.iter().chain(&destination).chain(&ports));
    frame.extend(26u16.to_be_bytes());
    frame.resize(60, 0);
    frame[42..44].copy_from_slice(&flow.to_be_bytes());
    let input: Vec<u8> = source.into_iter().chain(destination).chain(ports).collect();
    (frame, rss::toeplitz(&rss::KEY, &input))
}

/// A flow comes to the queue that our own hash and table name, on cards with a short table and with a long one.
#[test]
fn flows_are_spread_by_hash_over_all_queues() {
    for (model, pairs, table) in [
        (Model::Sfp82599, 16, 128),
        (Model::Sfp82599, 3, 128),
        (Model::X540, 16, 128),
        (Model::X550, 40, 512),
    ] {
        let mut rig = Rig::new(bench(CardOptions { model, ..CardOptions::default() }, pairs));
        let queues: Vec<u16> = rss::indirection(table, pairs as u16).collect();
        let mut expected = vec![Vec::new(); pairs];
        for flow in 0..1_000 {
            let (frame, hash) = packet(flow);
            expected[usize::from(queues[hash as usize % usize::from(table)])].push(frame.clone());
            rig.bench.feed(0, frame);
        }
        let mut received = vec![Vec::new(); pairs];
        for _ in 0..100 {
            rig.bench.run();
            (0..pairs).for_each(|queue| received[queue].extend(rig.receive(queue, 64)));
        }
        assert!(received == expected, "{model:?} with {pairs} queues");
        assert!(expected.iter().all(|flows| !flows.is_empty()), "no queue is left out");
        rig.finish();
    }
}

/// Those who need more than 64 transmit queues get them, and all of them send.
#[test]
fn more_transmit_queues_are_there_on_demand() {
    for (needed, queues) in [(65, 65), (72, 72), (128, 128), (200, 128)] {
        let wish = QueueWish { pairs: 4, ring: 64, interrupts: 0, tx_needed: needed };
        let mut bench = IxgbeBench::new(CardOptions::default(), wish).expect("a sane card");
        bench.live(50);
        assert_eq!(bench.device().shape().tx, queues);
        let mut rig = Rig::new(bench);
        (0..queues).for_each(|queue| assert!(rig.send(queue, &IxgbeBench::frame(queue as u32, 64))));
        (0..queues).for_each(|queue| rig.drain(queue));
        let sent: Vec<(u16, Vec<u8>)> = lock(&rig.bench.card.cable).outbound.drain(..).collect();
        let (from, frames): (BTreeSet<u16>, BTreeSet<Vec<u8>>) = sent.into_iter().unzip();
        assert_eq!(from.len(), queues, "each sends by a queue of its own");
        assert_eq!(frames, (0..queues).map(|queue| IxgbeBench::frame(queue as u32, 64)).collect());
        rig.finish();
    }
}

/// Each of 64 transmit queues sends, and each frame leaves by the queue that it was given to.
#[test]
fn every_transmit_queue_sends() {
    let mut rig = Rig::new(bench(CardOptions::default(), 72));
    for queue in 0..64 {
        (0..5).for_each(|number| assert!(rig.send(queue, &IxgbeBench::frame(number, 64))));
    }
    (0..64).for_each(|queue| rig.drain(queue));
    for queue in 0..64 {
        let sent: Vec<_> = (0..5).map(|number| IxgbeBench::frame(number, 64)).collect();
        assert_eq!(rig.bench.collect(queue), sent);
    }
    assert!(lock(&rig.bench.card.cable).outbound.is_empty());
    rig.finish();
}

#[test]
fn modules_say_what_they_are() {
    let kind = |module| {
        let bench = bench(CardOptions { module, ..CardOptions::default() }, 1);
        match bench.driver.module().expect("a cage").expect("an answer") {
            Module::Sfp(identity) => Some(identity.kind()),
            Module::None => None,
        }
    };
    assert_eq!(kind(Plugged::Sr), Some(Some("10GBASE-SR")));
    assert_eq!(kind(Plugged::Lr), Some(Some("10GBASE-LR")));
    assert_eq!(kind(Plugged::Twinax), Some(Some("passive copper cable")));
    assert_eq!(kind(Plugged::Unknown), Some(None));
    assert_eq!(kind(Plugged::Empty), None);
    let copper = bench(CardOptions { model: Model::X540, ..CardOptions::default() }, 1);
    assert!(copper.driver.module().is_none(), "a copper port has no cage");
}

#[test]
fn a_card_that_never_resets_is_refused_with_the_register_that_hangs() {
    let never = CardOptions { reset_time: std::time::Duration::from_secs(3600), ..CardOptions::default() };
    let refused = IxgbeBench::new(never, QueueWish { pairs: 1, ring: 64, interrupts: 0, tx_needed: 0 }).err();
    let error = IxgbeError::Timeout { register: "CTRL", awaited: "the reset to end" };
    assert_eq!(refused, Some(error));
    assert_eq!(error.to_string(), "CTRL: waited in vain for the reset to end");
    assert!(model(0x1572).is_none(), "an X710 is another driver's");
}

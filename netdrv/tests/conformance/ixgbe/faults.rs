//! Everything that the model can break: forwarding goes on, every frame is accounted for, no buffer is lost.

use std::time::Duration;

use ixgbe_model::{CardOptions, Corruption, Fault};
use netdrv::device::{DeviceFault, Link, NetDevice, QueueWish};

use super::bar::CardBar;
use super::loaded::Loaded;
use super::{IxgbeBench, lock};
use crate::bench::{Bench, Rig};

fn loaded() -> Loaded<CardBar> {
    Loaded::new(IxgbeBench::with_ring(64))
}

#[test]
fn a_transmit_queue_that_hangs_is_noticed() {
    let mut loaded = loaded();
    loaded.run(100);
    loaded.inject(Fault::TransmitHang { queue: 0 });
    loaded.run(8_000);
    assert_eq!(loaded.resets(), 1);
    assert!(loaded.rig.bench.device().counters().lost > 0, "what hung is counted");
    loaded.finish();
}

#[test]
fn a_receive_queue_that_stalls_is_noticed() {
    let mut loaded = loaded();
    loaded.run(100);
    loaded.inject(Fault::ReceiveStall { queue: 0 });
    loaded.run(8_000);
    assert_eq!(loaded.resets(), 1);
    assert!(loaded.rig.bench.device().counters().missed > 0, "what did not come in is counted");
    loaded.finish();
}

/// The frames were sent, but nobody knows: they count as lost, and only they do.
#[test]
fn completions_that_never_come_are_noticed() {
    for count in [1, 5] {
        let mut loaded = loaded();
        loaded.run(100);
        loaded.inject(Fault::LostCompletions { queue: 0, count });
        loaded.run(8_000);
        assert_eq!(loaded.resets(), 1);
        let ring = loaded.rig.bench.device().shape().tx_ring as u64;
        let lost = loaded.rig.bench.device().counters().lost;
        assert!((1..ring).contains(&lost), "{lost} frames are in doubt");
        loaded.back -= lost;
        loaded.finish();
    }
}

/// Reports that nobody has looked at are no reason to reset a card: its owner may be asleep, or off its CPU.
#[test]
fn a_card_is_not_blamed_for_a_worker_that_is_late() {
    let mut loaded = loaded();
    loaded.run(100);
    (0..5).for_each(|number| assert!(loaded.rig.send(0, &IxgbeBench::frame(number, 64))));
    loaded.rig.bench.live(30_000);
    assert_eq!(loaded.resets(), 0);
    assert_eq!(loaded.rig.bench.collect(0).len(), 5);
    loaded.finish();
}

#[test]
fn a_card_that_forgets_everything_is_told_again() {
    let mut loaded = loaded();
    for round in 1..=20 {
        loaded.run(5 * round);
        loaded.inject(Fault::SpontaneousReset);
        loaded.run(500);
        assert_eq!(loaded.resets(), round);
    }
    // What the card had in its own memory when it was reset is in no counter of its own.
    loaded.finish();
}

#[test]
fn write_backs_that_make_no_sense_are_counted() {
    let mut loaded = loaded();
    for corruption in
        [Corruption::LengthTooLong, Corruption::LengthZero, Corruption::ErrorBits, Corruption::NoEnd]
    {
        loaded.inject(Fault::CorruptWriteBack { queue: 0, count: 3, corruption });
        loaded.run(100);
    }
    let drops = loaded.rig.drops(0);
    // Three frames without end and the one that ends them are one that is too long.
    assert_eq!((drops.oversize, drops.truncated, drops.damaged), (3 + 1, 3, 3));
    loaded.back += 3;
    assert_eq!(loaded.resets(), 0);
    loaded.finish();
}

#[test]
fn a_link_that_comes_up_at_the_second_reset_is_given_it() {
    let mut loaded = loaded();
    loaded.inject(Fault::NeedsSecondReset);
    loaded.inject(Fault::TransmitHang { queue: 0 });
    for (resets, link) in [(1, Link::Down), (2, Link::Up)] {
        let is_there = |loaded: &mut Loaded<CardBar>| {
            loaded.run(100);
            loaded.resets() == resets && loaded.rig.bench.device().link() == link
        };
        assert!((0..80).any(|_| is_there(&mut loaded)), "reset {resets}");
    }
    loaded.finish();
}

#[test]
fn a_cable_that_is_pulled_a_thousand_times_costs_nothing_but_time() {
    let mut loaded = loaded();
    loaded.pass(200, 0);
    for _ in 0..1_000 {
        loaded.inject(Fault::LinkDown);
        loaded.pass(105, 0);
        assert_eq!(loaded.rig.bench.device().link(), Link::Down);
        loaded.inject(Fault::LinkUp);
        loaded.pass(110, 0);
        assert_eq!(loaded.rig.bench.device().link(), Link::Up);
    }
    assert_eq!(loaded.rig.bench.device().counters().link_changes, 2_001);
    assert_eq!(loaded.resets(), 0);
    let interrupts = loaded.rig.bench.card.bar.model.with_card(|card| card.take_interrupts());
    assert_eq!(interrupts, 0, "a loose plug interrupts nobody");
    loaded.finish();
}

#[test]
fn a_link_that_goes_amid_traffic_loses_nothing_that_is_in_a_ring() {
    let mut loaded = loaded();
    for _ in 0..20 {
        loaded.run(50);
        loaded.inject(Fault::LinkDown);
        loaded.run(150);
        loaded.inject(Fault::LinkUp);
        loaded.run(150);
    }
    assert_eq!((loaded.resets(), loaded.accounted()), (0, 0));
    loaded.finish();
}

/// Faults at random moments, with frames everywhere. A card that resets itself has forgotten what it counted, so it is not
/// one that misses frames as well.
#[test]
fn faults_at_any_moment_leave_nothing_uncounted() {
    for worst in [Fault::SpontaneousReset, Fault::ReceiveStall { queue: 0 }] {
        let mut loaded = loaded();
        for _ in 0..40 {
            loaded.run(fastrand::u64(0..20) * 5);
            loaded.inject(match fastrand::u8(0..3) {
                0 => Fault::TransmitHang { queue: 0 },
                1 => Fault::LinkDown,
                _ => worst,
            });
            loaded.run(fastrand::u64(0..1_500) * 5);
            loaded.inject(Fault::LinkUp);
        }
        loaded.run(8_000);
        loaded.finish();
    }
}

/// A reset is not disturbed by a stop, at whatever step it is.
#[test]
fn a_card_can_be_stopped_amid_a_reset() {
    for millis in (1_950..2_060).step_by(5) {
        let wish = QueueWish { pairs: 2, ring: 64, interrupts: 2, tx_needed: 0 };
        let settle_time = Duration::from_millis(8);
        let options = CardOptions { cable: false, settle_time, ..CardOptions::default() };
        let mut rig = Rig::new(IxgbeBench::new(options, wish).expect("a sane card"));
        rig.bench.live(millis);
        let has_begun = rig.bench.device().counters().resets == 1;
        assert!(has_begun || millis < 2_050, "without link a card is reset");
        rig.finish();
    }
}

#[test]
fn a_card_that_does_not_come_back_is_reported_and_tried_again() {
    let mut loaded = loaded();
    loaded.inject(Fault::SpontaneousReset);
    loaded.rig.bench.card.bar.never_reset();
    loaded.pass(4_000, 0);
    assert_eq!(loaded.rig.bench.device().fault(), Some(DeviceFault::NeedsReset));
    assert_eq!(loaded.rig.bench.device().link(), Link::Down);
    loaded.rig.bench.card.bar.reset_again();
    loaded.pass(6_000, 0);
    lock(&loaded.rig.bench.card.cable).outbound.clear();
    loaded.finish();
}

//! Interrupts: one for each wish, none without.

use ixgbe_model::{CardOptions, Fault};
use netdrv::device::{NetDevice, QueueWish, RxQueue};

use super::IxgbeBench;
use crate::bench::{Bench, Rig};

fn rig() -> Rig<IxgbeBench> {
    let wish = QueueWish { pairs: 1, ring: 64, interrupts: 8, tx_needed: 0 };
    let mut bench = IxgbeBench::new(CardOptions::default(), wish).expect("a sane card");
    bench.live(20);
    assert_eq!(bench.device().rx_interrupts(), 1);
    let rig = Rig::new(bench);
    interrupts(&rig);
    rig
}

fn interrupts(rig: &Rig<IxgbeBench>) -> u64 {
    rig.bench.card.bar.model.with_card(|card| card.take_interrupts())
}

fn feed(rig: &mut Rig<IxgbeBench>, count: u32) {
    (0..count).for_each(|number| rig.bench.feed(0, IxgbeBench::frame(number, 64)));
    rig.bench.run();
}

#[test]
fn a_queue_that_polls_is_never_interrupted() {
    let mut rig = rig();
    for _ in 0..100 {
        feed(&mut rig, 3);
        assert_eq!(interrupts(&rig), 0);
        assert_eq!(rig.receive(0, 64).len(), 3);
    }
    rig.finish();
}

#[test]
fn an_armed_queue_is_interrupted_once() {
    let mut rig = rig();
    for _ in 0..100 {
        while !rig.queues.rx[0].arm() {
            rig.receive(0, 64);
        }
        // One for frames that were taken before, at most.
        interrupts(&rig);
        assert!(rig.queues.rx[0].arm());
        assert_eq!(interrupts(&rig), 0);
        feed(&mut rig, 1);
        assert_eq!(interrupts(&rig), 1);
        feed(&mut rig, 5);
        assert_eq!(interrupts(&rig), 0, "the interrupt has masked itself");
        assert_eq!(rig.receive(0, 64).len(), 6);
    }
    rig.finish();
}

#[test]
fn a_queue_with_frames_is_not_armed_in_vain() {
    let mut rig = rig();
    feed(&mut rig, 2);
    assert!(!rig.queues.rx[0].arm());
    assert_eq!(rig.receive(0, 1).len(), 1);
    assert!(!rig.queues.rx[0].arm());
    assert_eq!(rig.receive(0, 1).len(), 1);
    assert!(rig.queues.rx[0].arm());
    rig.finish();
}

#[test]
fn whoever_sleeps_is_woken_by_a_reset_and_starts_over() {
    let mut rig = rig();
    assert!(rig.queues.rx[0].arm());
    rig.bench.card.inject(Fault::SpontaneousReset);
    rig.bench.live(500);
    assert_eq!(rig.bench.device().counters().resets, 1);
    assert_eq!(interrupts(&rig), 1, "the ring is empty until its owner has seen to it");
    assert!(!rig.queues.rx[0].arm(), "there is something to do");
    assert!(rig.receive(0, 64).is_empty());
    feed(&mut rig, 10);
    assert_eq!(rig.receive(0, 64).len(), 10);
    rig.finish();
}

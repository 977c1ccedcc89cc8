//! What befalls a function: forwarding goes on, every frame is accounted for, no buffer is lost.

use ixgbe_model::{Fault, LentLink, Model, Notice, Policy, Presence};
use netdrv::device::{DeviceFault, Link, NetDevice, QueueWish};

use super::{VfBar, VfBench};
use crate::bench::{Bench, Rig};
use crate::ixgbe::loaded::Loaded;
use crate::ixgbe::lock;

fn loaded() -> Loaded<VfBar> {
    Loaded::new(VfBench::with_ring(64))
}

fn link(loaded: &mut Loaded<VfBar>) -> Link {
    loaded.rig.bench.device().link()
}

/// The host is reset, which takes the rings from under the function.
fn reset_host(loaded: &Loaded<VfBar>, notice: Notice) {
    loaded.rig.bench.card.expect_accesses_in_reset();
    loaded.rig.bench.with_host(|host, card| host.reset(card, notice));
}

#[test]
fn a_reset_of_the_host_is_lived_through() {
    let mut loaded = loaded();
    for round in 1..=20 {
        loaded.run(5 * round);
        reset_host(&loaded, if round % 2 == 0 { Notice::Given } else { Notice::None });
        loaded.run(1_000);
        assert_eq!(loaded.resets(), round);
        assert_eq!(link(&mut loaded), Link::Up);
    }
    loaded.finish();
}

/// A host that stays away is reported, once it has been waited for, and found again when it is back.
#[test]
fn a_host_that_stays_away_is_waited_for() {
    let mut loaded = loaded();
    loaded.run(100);
    loaded.rig.bench.with_host(|host, _| host.policy.presence = Presence::Absent);
    reset_host(&loaded, Notice::None);
    loaded.pass(20_000, 0);
    assert_eq!(loaded.rig.bench.device().fault(), Some(DeviceFault::NeedsReset));
    assert_eq!(link(&mut loaded), Link::Down);
    loaded.rig.bench.with_host(|host, _| host.policy.presence = Presence::Present);
    loaded.pass(10_000, 0);
    assert_eq!(link(&mut loaded), Link::Up);
    loaded.finish();
}

/// Another one resets the function behind the driver's back, as a monitor does that hands it to somebody else.
#[test]
fn a_function_that_forgets_everything_is_told_again() {
    let mut loaded = loaded();
    loaded.run(100);
    loaded.rig.bench.card.expect_accesses_in_reset();
    loaded.rig.bench.bar.function.write(0, 1 << 26);
    // The card throws away what comes in meanwhile, and tells the host only.
    loaded.pass(1_000, 0);
    assert_eq!(loaded.resets(), 1);
    loaded.finish();
}

#[test]
fn a_transmit_queue_that_hangs_is_noticed() {
    let mut loaded = loaded();
    loaded.run(100);
    loaded.inject(Fault::TransmitHang { queue: 0 });
    // A reset of one function does not heal a card, its host's does.
    loaded.run(5_500);
    assert_eq!(loaded.resets(), 1);
    assert!(loaded.rig.bench.device().counters().lost > 0, "what hung is counted");
    reset_host(&loaded, Notice::None);
    loaded.run(1_000);
    loaded.finish();
}

#[test]
fn a_cable_that_is_pulled_is_noticed() {
    let mut loaded = loaded();
    loaded.run(50);
    for _ in 0..20 {
        loaded.inject(Fault::LinkDown);
        loaded.run(150);
        assert_eq!(link(&mut loaded), Link::Down);
        loaded.inject(Fault::LinkUp);
        loaded.rig.bench.with_host(|host, card| host.announce(card));
        loaded.run(150);
        assert_eq!(link(&mut loaded), Link::Up);
    }
    assert_eq!((loaded.resets(), loaded.accounted()), (0, 0));
    loaded.finish();
}

/// An operator of the host takes the function's link and gives it back; the cable stays in.
#[test]
fn a_link_that_the_host_takes_away_is_down() {
    let mut loaded = loaded();
    for (round, (lent, expected)) in
        [(LentLink::Taken, Link::Down), (LentLink::Given, Link::Up)].into_iter().cycle().take(10).enumerate()
    {
        loaded.pass(500, 0);
        loaded.rig.bench.with_host(|host, card| host.set_link(card, 0, lent));
        loaded.pass(500, 0);
        assert_eq!((link(&mut loaded), loaded.resets()), (expected, round as u64 + 1));
    }
    loaded.finish();
}

#[test]
fn a_host_that_gives_fewer_queues_than_before_is_refused() {
    let wish = QueueWish { pairs: 2, ring: 64, interrupts: 0, tx_needed: 0 };
    let bench = VfBench::new(Model::X540, Policy::default(), wish).expect("a sane function");
    let mut loaded = Loaded::new(bench);
    for (version, fault) in [(0, Some(DeviceFault::NeedsReset)), (3, None)] {
        loaded.rig.bench.with_host(|host, _| host.policy.version = version);
        reset_host(&loaded, Notice::None);
        loaded.pass(5_000, 0);
        assert_eq!(loaded.rig.bench.device().fault(), fault);
    }
    loaded.rig.finish();
}

/// A reset is not disturbed by a stop, at whatever step it is.
#[test]
fn a_function_can_be_stopped_amid_a_reset() {
    for millis in (0..400).step_by(5) {
        let rig = Rig::new(VfBench::with_ring(64));
        let mut loaded = Loaded { rig, fed: 0, back: 0 };
        loaded.run(50);
        reset_host(&loaded, Notice::None);
        loaded.run(millis);
        loaded.rig.finish();
    }
}

#[test]
fn a_card_that_is_pulled_out_is_gone() {
    let mut loaded = loaded();
    loaded.run(50);
    loaded.inject(Fault::Unplugged);
    loaded.pass(3_000, 0);
    assert_eq!(loaded.rig.bench.device().fault(), Some(DeviceFault::NeedsReset));
    assert_eq!(link(&mut loaded), Link::Down);
    lock(&loaded.rig.bench.card.cable).inbound.clear();
}

//! Devices that break the rules: nothing panics, no buffer is lost, and control hears of it.

use netdrv::device::{DeviceFault, Link, NetDevice, RxDrops, TxQueue};
use netdrv::packet::FRAME_CAPACITY;

use crate::bench::{Bench, Misdeed, Rig};
use crate::traffic::echo;

/// A frame that is shorter than the device's own header, or longer than its buffer: counted, and the next one
/// arrives.
pub(crate) fn bad_lengths<B: Bench>(mut rig: Rig<B>) {
    echo(&mut rig, 100, 32, FRAME_CAPACITY);
    for round in 1..=200 {
        assert!(rig.bench.misbehave(Misdeed::Truncated));
        assert!(rig.bench.misbehave(Misdeed::Oversize));
        rig.bench.feed(0, B::frame(round, 1514));
        rig.bench.run();
        assert_eq!(rig.receive(0, 64), [B::frame(round, 1514)]);
        let (truncated, oversize) = (u64::from(round), u64::from(round));
        assert_eq!(rig.drops(0), RxDrops { truncated, oversize, ..RxDrops::default() });
    }
    assert_eq!(rig.bench.device().fault(), None);
    rig.finish();
}

/// A descriptor that the device does not have. Either it is counted and traffic goes on, or the ring is given
/// up; no frame is made of it.
pub(crate) fn bad_descriptors<B: Bench>(mut rig: Rig<B>, misdeed: Misdeed) {
    echo(&mut rig, 100, 32, FRAME_CAPACITY);
    for round in 1..=3 {
        assert!(rig.bench.misbehave(misdeed));
        assert!(rig.receive(0, 64).is_empty(), "{misdeed:?} is no frame");
        if rig.bench.device().fault().is_some() {
            return is_quiet(rig, 0);
        }
        assert_eq!(rig.drops(0).unknown_descriptor, round, "{misdeed:?} is counted");
        rig.bench.feed(0, B::frame(0, FRAME_CAPACITY));
        rig.bench.run();
        assert_eq!(rig.receive(0, 64), [B::frame(0, FRAME_CAPACITY)]);
    }
    rig.finish();
}

/// An index that runs away, or a completion of a frame that was never sent: the ring is given up.
pub(crate) fn broken_rings<B: Bench>(mut rig: Rig<B>, misdeed: Misdeed, queue: usize) {
    echo(&mut rig, 100, 32, FRAME_CAPACITY);
    (0..5).for_each(|number| assert!(rig.send(0, &B::frame(number, 64))));
    // At rest, so that the device knows of them for sure.
    assert_eq!(rig.reclaim(0), 0);
    assert!(rig.bench.misbehave(misdeed));
    rig.receive(0, 64);
    rig.reclaim(0);
    is_quiet(rig, queue);
}

/// After the ring of `queue` was given up: nothing moves through it, control knows, and after a stop all
/// buffers are home.
fn is_quiet<B: Bench>(mut rig: Rig<B>, queue: usize) {
    assert_eq!(rig.bench.device().fault(), Some(DeviceFault::BrokenRing { queue }));
    for _ in 0..10 {
        match queue {
            0 => assert!(rig.receive(0, 64).is_empty()),
            _ => {
                let waiting = rig.queues.tx[0].waiting();
                assert!(!rig.send(0, &B::frame(0, 64)), "a broken ring takes nothing");
                assert_eq!(rig.queues.tx[0].reclaim(&mut rig.cache), 0);
                assert_eq!(rig.queues.tx[0].waiting(), waiting);
            }
        }
    }
    rig.finish();
}

/// A device that gives up by itself.
pub(crate) fn needs_reset<B: Bench>(mut rig: Rig<B>) {
    assert_eq!(rig.bench.device().fault(), None);
    assert!(rig.bench.misbehave(Misdeed::NeedsReset));
    assert_eq!(rig.bench.device().fault(), Some(DeviceFault::NeedsReset));
    rig.finish();
}

/// A device that never confirms its reset keeps what it has, and the wait for it ends.
pub(crate) fn never_stops<B: Bench>(mut rig: Rig<B>) {
    let lent = rig.bench.device().shape().rx_ring - B::SPARE;
    assert!(rig.bench.misbehave(Misdeed::NeverStops));
    rig.bench.device().stop();
    let pool = rig.pool;
    drop(rig);
    assert_eq!(pool.in_depot(), pool.count() - lent);
}

/// A stopped device has no link and hands nothing out.
pub(crate) fn stopped<B: Bench>(mut rig: Rig<B>) {
    assert_eq!(rig.bench.device().link(), Link::Up);
    rig.bench.device().stop();
    assert_eq!(rig.bench.device().link(), Link::Down);
    assert!(rig.bench.device().take_queues(rig.pool).is_none());
    rig.finish();
}

//! The suite, run on virtio-net in every flavour of device.

use netdrv::device::QueueWish;
use netdrv::packet::FRAME_CAPACITY;
use netdrv::pool::Pool;
use netdrv::virtio::Features;
use proptest::prelude::*;

use super::{Attention, Completion, Profile, VirtioBench, flavours};
use crate::bench::{Bench, Misdeed, PATIENCE, Rig};
use crate::hal::TestHal;
use crate::sequences::Step;
use crate::traffic::echo;
use crate::{hostile, sequences, traffic};

fn bench(profile: &Profile, pairs: usize, ring: usize) -> VirtioBench {
    let bench = VirtioBench::new(profile.clone(), QueueWish { pairs, ring, interrupts: 0, tx_needed: 0 })
        .expect("a sane device");
    let layout = Features::RING_PACKED | Features::IN_ORDER | Features::EVENT_IDX;
    assert_eq!(bench.driver().features() & layout, profile.features & layout);
    bench
}

/// Runs `check` on a fresh device with one pair and rings of 64, in every flavour.
fn in_every_flavour(check: impl Fn(Rig<VirtioBench>)) {
    for profile in flavours() {
        check(Rig::new(bench(&profile, 1, 64)));
    }
}

#[test]
fn frames_come_back_for_every_ring_and_batch() {
    let pool = Pool::new::<TestHal>(2 * 1024 + 256).expect("memory");
    for ring in [64, 128, 256, 512, 1024] {
        for profile in flavours() {
            let batch = fastrand::usize(1..=64);
            let mut rig = Rig::with_pool(bench(&profile, 1, ring), pool);
            echo(&mut rig, 2 * ring as u32 + 500, batch, FRAME_CAPACITY);
            rig.finish();
        }
    }
}

#[test]
fn nothing_is_lost_past_three_wraps() {
    for (profile, batch) in flavours().iter().zip([1, 32, 64, 7].into_iter().cycle()) {
        let mut rig = Rig::new(bench(profile, 1, 256));
        echo(&mut rig, 200_000, batch, 20);
        rig.finish();
    }
}

#[test]
fn no_notification_is_lost_at_the_wrap_for_any_batch() {
    let profile = Profile { attention: Attention::Sleeps, ..Profile::default() };
    for batch in 1..=64 {
        let mut rig = Rig::new(bench(&profile, 1, 128));
        echo(&mut rig, 66_000, batch, 14);
        rig.finish();
    }
}

#[test]
fn several_queues_keep_their_flows_apart() {
    for profile in flavours() {
        for (wish, has, gets) in [(4, 4, 4), (3, 8, 3), (8, 5, 5), (2, 1, 1)] {
            let profile = Profile { pairs: has, claimed_pairs: has, ..profile.clone() };
            let mut rig = Rig::new(bench(&profile, wish, 64));
            assert_eq!((rig.queues.rx.len(), rig.queues.tx.len()), (gets, gets));
            assert_eq!(rig.bench.net.lock().pairs_in_use(), gets as u16);
            echo(&mut rig, 2_000, 32, FRAME_CAPACITY);
            rig.finish();
        }
    }
}

#[test]
fn a_batch_that_fills_its_buffers_counts_as_completely_used() {
    let profile = Profile {
        features: Features::all(),
        completion: Completion::InBatches,
        attention: Attention::Polls,
        ..Profile::default()
    };
    let mut rig = Rig::new(bench(&profile, 1, 64));
    let whole = |number: u32| {
        let mut bytes = vec![number as u8; FRAME_CAPACITY];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let mut next = 0;
    for round in 0.. {
        assert!(round < PATIENCE as u32, "frame {next} never comes");
        if round < 200 {
            (0..50).for_each(|index| rig.bench.feed(0, whole(50 * round + index)));
        } else if next == 10_000 {
            break;
        }
        rig.bench.run();
        // Odd limits leave batches half taken.
        for limit in [7, 1, 64] {
            for bytes in rig.receive(0, limit) {
                assert!(bytes == whole(next), "frame {next}");
                next += 1;
            }
        }
    }
    rig.finish();
}

#[test]
fn buffers_keep_their_descriptors() {
    for features in [Features::all(), Features::all() - Features::IN_ORDER] {
        for ring in [64, 256, 1024] {
            let profile = Profile { features, ..Profile::default() };
            traffic::buffers_keep_their_descriptors(Rig::new(bench(&profile, 1, ring)));
        }
    }
}

#[test]
fn receiving_alone_works() {
    in_every_flavour(traffic::receive_only);
}

#[test]
fn a_ring_whose_buffers_go_elsewhere_is_kept_full() {
    in_every_flavour(traffic::kept_full);
}

#[test]
fn sending_alone_works() {
    in_every_flavour(traffic::send_only);
}

#[test]
fn a_burst_is_never_overfilled() {
    in_every_flavour(traffic::limits_hold);
}

#[test]
fn a_dry_ring_recovers() {
    flavours().iter().for_each(|profile| traffic::starvation(bench(profile, 1, 64)));
}

#[test]
fn packets_at_the_edges_of_their_buffers_leave_unchanged() {
    let flavours = flavours().into_iter();
    flavours.for_each(|mut profile| {
        profile.features -= Features::MTU;
        traffic::odd_packets(Rig::new(bench(&profile, 1, 64)));
    });
}

#[test]
fn a_stop_under_load_brings_every_buffer_home() {
    in_every_flavour(traffic::stop_under_load);
}

#[test]
fn queues_dropped_before_the_stop_leak_what_the_device_has() {
    let polls = |profile: &Profile| profile.attention == Attention::Polls;
    for profile in flavours().iter().filter(|profile| polls(profile)) {
        traffic::queues_dropped_early_leak(Rig::new(bench(profile, 1, 64)));
    }
}

#[test]
fn bad_lengths_are_counted() {
    in_every_flavour(hostile::bad_lengths);
}

#[test]
fn bad_descriptors_are_counted_or_end_the_ring() {
    in_every_flavour(|rig| hostile::bad_descriptors(rig, Misdeed::UnknownDescriptor));
    in_every_flavour(|rig| hostile::bad_descriptors(rig, Misdeed::DuplicateDescriptor));
}

#[test]
fn a_ring_that_makes_no_sense_is_given_up() {
    in_every_flavour(|rig| hostile::broken_rings(rig, Misdeed::ReceiveIndexJump, 0));
    in_every_flavour(|rig| hostile::broken_rings(rig, Misdeed::TransmitIndexJump, 1));
    // With VIRTIO_F_IN_ORDER the ids of sent frames are not read at all.
    for profile in flavours().iter().filter(|profile| !profile.features.contains(Features::IN_ORDER)) {
        hostile::broken_rings(Rig::new(bench(profile, 1, 64)), Misdeed::TransmitUnknown, 1);
    }
}

#[test]
fn a_failed_device_is_reported() {
    in_every_flavour(hostile::needs_reset);
}

#[test]
fn a_device_that_never_stops_keeps_its_buffers() {
    in_every_flavour(hostile::never_stops);
}

#[test]
fn a_stopped_device_is_down() {
    in_every_flavour(hostile::stopped);
}

/// A device that has used every buffer but one, which it has lost, has nothing to go around the ring with.
#[test]
fn a_lost_buffer_is_no_way_around_the_ring() {
    let steps = [
        Step::Misbehave(Misdeed::UnknownDescriptor),
        Step::Feed(63),
        Step::Run,
        Step::Misbehave(Misdeed::ReceiveIndexJump),
        Step::Receive(1),
    ];
    for flavour in flavours() {
        let pool = Pool::new::<TestHal>(70).expect("memory");
        sequences::run(Rig::with_pool(bench(&flavour, 1, 64), pool), steps.to_vec());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_keeps_order_and_buffers(
        flavour in 0..flavours().len(),
        buffers in prop_oneof![Just(5usize), Just(70), Just(400)],
        steps in prop::collection::vec(sequences::step(), 1..400),
    ) {
        let bench = bench(&flavours().swap_remove(flavour), 1, 64);
        sequences::run(Rig::with_pool(bench, Pool::new::<TestHal>(buffers).expect("memory")), steps);
    }
}

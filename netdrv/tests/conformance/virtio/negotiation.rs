//! What driver and device agree on, and what becomes of devices that agree to nothing.

use netdrv::device::{Link, Mac, NetDevice, QueueShape, QueueWish};
use netdrv::packet::FRAME_CAPACITY;
use netdrv::pool::Pool;
use netdrv::rss;
use netdrv::virtio::{Features, VirtioError, VirtioNet};
use virtio_drivers::transport::{DeviceStatus, DeviceType};

use super::VirtioBench;
use super::control::Manner;
use super::device::FakeNet;
use super::profile::{Oddity, Profile};
use crate::bench::{Bench, Rig};
use crate::hal::{TestHal, allocations};
use crate::traffic::echo;

const WISH: QueueWish = QueueWish { pairs: 4, ring: 256, interrupts: 0, tx_needed: 0 };

/// A device with four pairs.
fn four_pairs() -> Profile {
    Profile { pairs: 4, claimed_pairs: 4, ..Profile::default() }
}

fn set_up(profile: Profile) -> VirtioBench {
    VirtioBench::new(profile, WISH).expect("a usable device")
}

/// Why the device can't be used; it is left reset, and its memory is free again.
fn refusal(profile: Profile) -> VirtioError {
    let before = allocations().len();
    let net = FakeNet::new(profile);
    let error = VirtioNet::new::<TestHal>(net.clone(), WISH).err().expect("a refusal");
    assert!(net.lock().status.is_empty() || error == VirtioError::ResetTimeout, "reset after {error}");
    assert_eq!(allocations().len(), before, "no memory is kept after {error}");
    assert!(!error.to_string().is_empty());
    error
}

/// Traffic passes on all pairs that the driver uses.
fn works(bench: VirtioBench) {
    let mut rig = Rig::new(bench);
    echo(&mut rig, 1_000, 32, 1500);
    rig.finish();
}

#[test]
fn all_that_the_driver_knows_is_accepted_and_nothing_else() {
    let bench = set_up(Profile { features: Features::all(), ..four_pairs() });
    assert_eq!(bench.driver().features(), Features::all());
    works(bench);
}

#[test]
fn a_device_that_offers_nothing_but_version_1_works() {
    let bench = set_up(Profile { features: Features::VERSION_1, ..four_pairs() });
    assert_eq!(bench.driver().features(), Features::VERSION_1);
    assert_eq!(bench.driver().shape(), QueueShape { rx: 1, tx: 1, rx_ring: 256, tx_ring: 256 });
    assert_eq!((bench.driver().mtu(), bench.driver().link()), (1500, Link::Up));
    works(bench);
}

#[test]
fn unusable_devices_are_refused() {
    let legacy = Features::all() - Features::VERSION_1;
    assert_eq!(refusal(Profile { features: legacy, ..four_pairs() }), VirtioError::Legacy);
    let block = Profile { device_type: DeviceType::Block, ..four_pairs() };
    assert_eq!(refusal(block), VirtioError::NotNetwork);
    let refuses = refusal(Profile { oddity: Oddity::RefusesFeatures, ..four_pairs() });
    assert!(matches!(refuses, VirtioError::FeaturesRefused(_)), "{refuses}");
    let restless = Profile { oddity: Oddity::RestlessConfig, ..four_pairs() };
    assert_eq!(refusal(restless), VirtioError::ConfigUnstable);
    assert_eq!(refusal(Profile { config_len: 9, ..four_pairs() }), VirtioError::ConfigTooShort);
    assert_eq!(refusal(Profile { oddity: Oddity::NeverResets, ..four_pairs() }), VirtioError::ResetTimeout);
    for queue in [0, 1, 2, 7, 8] {
        let dead = Profile { oddity: Oddity::DeadQueue(queue), ..four_pairs() };
        assert_eq!(refusal(dead), VirtioError::QueueRefused { queue });
        let deaf = Profile { oddity: Oddity::NoDoorbell(queue), ..four_pairs() };
        assert_eq!(refusal(deaf), VirtioError::NoDoorbell { queue });
    }
}

#[test]
fn rings_are_the_largest_power_of_two_that_both_sides_allow() {
    for (queue_max, ring) in [(8, 8), (100, 64), (256, 256), (257, 256), (1 << 15, 256), (u32::MAX, 256)] {
        let bench = set_up(Profile { queue_max, ..Profile::default() });
        assert_eq!(bench.driver().shape(), QueueShape { rx: 1, tx: 1, rx_ring: ring, tx_ring: ring });
        works(bench);
    }
    for size in [0, 1, 7] {
        let error = refusal(Profile { queue_max: size, ..Profile::default() });
        assert_eq!(error, VirtioError::QueueTooSmall { queue: 0, size });
    }
}

#[test]
fn a_nonsensical_number_of_pairs_means_one() {
    for claimed_pairs in [0, 0x8001, u16::MAX] {
        let bench = set_up(Profile { claimed_pairs, pairs: 1, ..Profile::default() });
        assert!(!bench.driver().features().intersects(Features::MQ | Features::RSS), "{claimed_pairs}");
        assert_eq!(bench.driver().shape().rx, 1);
        works(bench);
    }
}

#[test]
fn a_device_with_fewer_queues_than_it_says_is_used_with_those() {
    let bench = set_up(Profile { claimed_pairs: 4, pairs: 3, ..Profile::default() });
    assert_eq!((bench.driver().shape().rx, bench.net.lock().pairs_in_use()), (3, 3));
    works(bench);
}

#[test]
fn every_frame_is_let_in_and_flows_are_spread_by_our_hash() {
    let bench = set_up(four_pairs());
    {
        let device = bench.net.lock();
        let controller = device.controller().expect("a control queue");
        assert!(controller.promiscuous);
        assert_eq!((controller.pairs, controller.commands), (4, 2));
        assert!(rss::indirection(128, 4).eq(controller.table.iter().copied()));
    }
    works(bench);
}

#[test]
fn the_table_is_as_long_as_the_device_can_hold() {
    for (max_table, entries) in [(1, 1), (2, 2), (100, 64), (128, 128), (512, 128)] {
        let bench = set_up(Profile { rss: (40, max_table, 0b11), ..four_pairs() });
        assert_eq!(bench.net.lock().controller().expect("a control queue").table.len(), entries);
    }
}

#[test]
fn rss_is_left_alone_where_our_key_or_hashes_do_not_fit() {
    for rss in [(39, 128, 0x3f), (40, 0, 0x3f), (40, 128, 0x1c0)] {
        let bench = set_up(Profile { rss, ..four_pairs() });
        assert!(!bench.driver().features().contains(Features::RSS), "{rss:?}");
        assert_eq!(bench.net.lock().pairs_in_use(), 4);
        works(bench);
    }
}

#[test]
fn refused_commands_leave_what_the_device_does_anyway() {
    for (control, pairs) in [
        (Manner::Obeys, 4),
        (Manner::RefusesRss, 4),
        (Manner::RefusesAll, 1),
        (Manner::Silent, 1),
        (Manner::Mute, 1),
        (Manner::Confused, 1),
    ] {
        let bench = set_up(Profile { control, ..four_pairs() });
        let shape = bench.driver().shape();
        assert_eq!((shape.rx, shape.tx), (pairs, pairs), "{control:?}");
        assert_eq!(shape.buffers(), 2 * 256 * pairs);
        works(bench);
    }
}

#[test]
fn one_pair_needs_no_command_about_pairs() {
    let bench = VirtioBench::new(four_pairs(), QueueWish { pairs: 1, ring: 64, interrupts: 0, tx_needed: 0 })
        .expect("a usable device");
    assert!(!bench.driver().features().intersects(Features::MQ | Features::RSS));
    assert_eq!(bench.net.lock().controller().expect("a control queue").commands, 1);
    works(bench);
}

#[test]
fn commands_need_a_control_queue() {
    let bench = set_up(Profile { features: Features::all() - Features::CTRL_VQ, ..four_pairs() });
    let dependent = Features::CTRL_RX | Features::MQ | Features::RSS;
    assert!(!bench.driver().features().intersects(dependent));
    works(bench);
}

#[test]
fn the_address_is_the_devices_or_one_of_our_own() {
    assert_eq!(set_up(Profile::default()).driver().mac(), Mac([0x52, 0x54, 0, 1, 2, 3]));
    let own = Mac([0x02, 0x53, 1, 2, 3, 4]);
    let without = Profile { features: Features::all() - Features::MAC, ..Profile::default() };
    assert_eq!(set_up(without).driver().mac(), own);
    for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        assert_eq!(set_up(Profile { mac, ..Profile::default() }).driver().mac(), own, "{mac:x?}");
    }
}

#[test]
fn the_mtu_is_what_device_and_buffers_hold() {
    let most = FRAME_CAPACITY as u16 - 18;
    for (device, ours, accepted) in [
        (0, 1500, false),
        (67, 1500, false),
        (68, 68, true),
        (most, most, true),
        (most + 1, most, false),
        (9000, most, false),
    ] {
        let mut bench = set_up(Profile { mtu: device, ..Profile::default() });
        assert_eq!(bench.device().mtu(), ours, "{device}");
        assert_eq!(bench.driver().features().contains(Features::MTU), accepted, "{device}");
    }
}

#[test]
fn frames_beyond_a_negotiated_mtu_are_refused_and_counted() {
    use netdrv::device::TxQueue;
    let mut rig = Rig::new(set_up(Profile { mtu: 1000, ..Profile::default() }));
    assert!(rig.send(0, &[1; 1018]) && rig.send(0, &[2; 1019]) && rig.send(0, &[3; 60]));
    rig.drain(0);
    assert_eq!(rig.bench.collect(0), [vec![1; 1018], vec![3; 60]]);
    assert_eq!(rig.queues.tx[0].refused(), 1);
    rig.finish();
}

#[test]
fn the_link_is_read_whenever_it_is_asked_for() {
    let bench = set_up(Profile { link_up: false, ..Profile::default() });
    assert_eq!(bench.driver().link(), Link::Down);
    bench.net.lock().profile.link_up = true;
    assert_eq!(bench.driver().link(), Link::Up);
    bench.net.lock().profile.oddity = Oddity::RestlessConfig;
    assert_eq!(bench.driver().link(), Link::Down, "a status that can't be read is no link");
}

#[test]
fn a_device_that_is_stopped_before_its_queues_are_taken_hands_out_none() {
    let mut bench = set_up(four_pairs());
    bench.device().stop();
    assert!(bench.device().take_queues(Pool::new::<TestHal>(64).expect("memory")).is_none());
}

#[test]
fn a_dropped_device_is_reset() {
    let bench = set_up(four_pairs());
    let net = bench.net.clone();
    assert!(net.lock().status.contains(DeviceStatus::DRIVER_OK));
    drop(bench);
    assert!(net.lock().status.is_empty());
    assert!(allocations().is_empty(), "rings that were never taken are freed");
}

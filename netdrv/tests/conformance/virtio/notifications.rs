//! Who tells whom, and when: doorbells for devices that doze off, interrupts for drivers that sleep. And what the driver believes
//! of a device that says more than it should.

use netdrv::device::{DeviceFault, NetDevice, QueueWish, RxQueue, TxQueue};
use netdrv::packet::{Burst, FRAME_CAPACITY};
use netdrv::virtio::Features;

use super::{Attention, Completion, Profile, VirtioBench, flavours};
use crate::bench::{Bench, Rig};
use crate::traffic::echo;

fn rig(profile: &Profile, ring: usize) -> Rig<VirtioBench> {
    let wish = QueueWish { pairs: 1, ring, interrupts: 0, tx_needed: 0 };
    Rig::new(VirtioBench::new(profile.clone(), wish).expect("a sane device"))
}

fn frame(number: u32) -> Vec<u8> {
    VirtioBench::frame(number, FRAME_CAPACITY)
}

fn is_packed(profile: &Profile) -> bool {
    profile.features.contains(Features::RING_PACKED)
}

#[test]
fn an_armed_queue_interrupts_for_the_next_frame_and_not_again_once_it_was_looked_at() {
    for profile in flavours() {
        let mut rig = rig(&profile, 64);
        rig.bench.net.lock().expect_interrupts();
        let mut expected = 0;
        for round in 0..300u32 {
            assert!(rig.queues.rx[0].arm(), "{profile:?}: nothing has come in");
            let before = rig.bench.net.lock().interrupts();
            let count = 1 + round % 7;
            for number in expected..expected + count {
                rig.bench.feed(0, frame(number));
                rig.bench.run();
            }
            let interrupts = rig.bench.net.lock().interrupts() - before;
            let is_one = profile.features.contains(Features::EVENT_IDX);
            assert!(interrupts == 1 || !is_one && interrupts == count as usize, "{profile:?}: {interrupts}");
            assert!(!rig.queues.rx[0].arm(), "{profile:?}: frames are there");
            let mut frames = rig.receive(0, 64);
            // The second arming may have asked for one more; the look at the ring has taken that back.
            let before = rig.bench.net.lock().interrupts();
            rig.bench.feed(0, frame(expected + count));
            rig.bench.run();
            assert_eq!(rig.bench.net.lock().interrupts(), before, "{profile:?}: the driver polls again");
            frames.extend(rig.receive(0, 64));
            assert!(frames.into_iter().eq((expected..=expected + count).map(frame)), "{profile:?}");
            expected += count + 1;
        }
        rig.finish();
    }
}

#[test]
fn frames_that_were_left_in_the_ring_are_not_slept_over() {
    for profile in flavours() {
        let mut rig = rig(&profile, 64);
        rig.bench.net.lock().expect_interrupts();
        // Frames that fill their buffers come in one batch, if the device makes any.
        let whole = vec![1; FRAME_CAPACITY];
        (0..20).for_each(|_| rig.bench.feed(0, whole.clone()));
        rig.bench.run();
        let mut burst = Burst::new();
        rig.queues.rx[0].receive(&mut rig.cache, &mut burst, 3);
        while !burst.is_full() && burst.len() < 20 {
            assert!(!rig.queues.rx[0].arm(), "{profile:?}: {} of 20 frames were taken", burst.len());
            rig.queues.rx[0].receive(&mut rig.cache, &mut burst, 1);
        }
        assert!(rig.queues.rx[0].arm(), "{profile:?}: all were taken");
        drop(burst);
        rig.finish();
    }
}

/// A device polls while 2^16 frames go out without a pause, and dozes off at the worst moment: the driver knew for sure that it
/// knew of a frame 2^16 positions ago, and as many frames as it has not seen are nothing beside that.
#[test]
fn a_device_that_dozes_off_after_a_long_spell_is_woken() {
    const BURST: u32 = 64;
    for profile in flavours() {
        if profile.attention != Attention::Polls || profile.completion == Completion::Shuffled {
            continue;
        }
        let mut rig = rig(&profile, 1024);
        let mut sent = 0;
        let mut send = |rig: &mut Rig<VirtioBench>, count: u32| {
            let mut burst = Burst::new();
            for number in sent..sent + count {
                let mut packet = rig.cache.take().expect("a buffer");
                assert!(packet.copy_from(&VirtioBench::frame(number, 60)));
                burst.push(packet);
            }
            sent += count;
            assert_eq!(rig.queues.tx[0].enqueue(&mut burst), count as usize);
            rig.queues.tx[0].flush();
        };
        let mut out = 0;
        let mut came_out = |rig: &mut Rig<VirtioBench>| {
            // Often enough that nearly all buffers are back.
            (0..20).for_each(|_| rig.bench.run());
            for bytes in rig.bench.collect(0) {
                assert_eq!(bytes, VirtioBench::frame(out, 60));
                out += 1;
            }
            out
        };
        send(&mut rig, 1);
        for _ in 0..1023 {
            send(&mut rig, BURST);
            came_out(&mut rig);
            // A ring that has something to give is not at rest.
            assert!(rig.queues.tx[0].reclaim(&mut rig.cache) > 0);
        }
        send(&mut rig, BURST / 2);
        rig.bench.net.lock().doze();
        let before = came_out(&mut rig);
        send(&mut rig, BURST);
        assert_eq!(came_out(&mut rig), before + BURST, "{profile:?}: the device was not told");
        rig.drain(0);
        rig.finish();
    }
}

#[test]
fn a_completion_more_than_was_given_ends_the_ring() {
    for profile in flavours() {
        let mut sender = rig(&profile, 64);
        echo(&mut sender, 100, 32, FRAME_CAPACITY);
        (0..5).for_each(|number| assert!(sender.send(0, &frame(number))));
        sender.drain(0);
        sender.bench.net.lock().complete_what_it_has_not(1);
        sender.reclaim(0);
        let fault = sender.bench.device().fault();
        assert_eq!(fault, Some(DeviceFault::BrokenRing { queue: 1 }), "{profile:?}");
        sender.finish();

        let mut receiver = rig(&profile, 64);
        (0..64).for_each(|number| receiver.bench.feed(0, frame(number)));
        receiver.bench.run();
        assert_eq!(receiver.bench.pending(0), 0, "every buffer is used");
        receiver.bench.net.lock().complete_what_it_has_not(0);
        receiver.receive(0, 64);
        let fault = receiver.bench.device().fault();
        assert_eq!(fault, Some(DeviceFault::BrokenRing { queue: 0 }), "{profile:?}");
        receiver.finish();
    }
}

/// A device may write its descriptors in any order within a burst (2.8.12): nothing counts before all in front of it do.
#[test]
fn a_descriptor_that_is_not_used_yet_hides_those_behind_it() {
    for profile in flavours().iter().filter(|profile| is_packed(profile)) {
        let mut rig = rig(profile, 64);
        let mut next = 0;
        for count in (1..=16).cycle().take(200) {
            (next..next + count).for_each(|number| rig.bench.feed(0, frame(number)));
            rig.bench.net.lock().receive_all_but_the_first_descriptor();
            assert!(rig.receive(0, 64).is_empty(), "{profile:?}: the first descriptor is not used");
            rig.bench.run();
            assert!(rig.receive(0, 64).into_iter().eq((next..next + count).map(frame)), "{profile:?}");
            next += count;
        }
        rig.finish();
    }
}

#[test]
fn the_largest_ring_turns() {
    for profile in flavours() {
        if profile.attention == Attention::Polls || profile.completion == Completion::OneByOne {
            continue;
        }
        let mut rig = rig(&Profile { queue_max: 4096, ..profile }, 4096);
        assert_eq!(rig.bench.device().shape().buffers(), 2 * 4096);
        echo(&mut rig, 3 * 4096, 64, 60);
        rig.finish();
    }
}

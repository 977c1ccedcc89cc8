//! Which frames come in, how long they may be, and which queue they come to.

use ixgbe_model::{Model, Policy, Trust};
use netdrv::device::{NetDevice, QueueWish, RxDrops, RxQueue};
use netdrv::packet::BUFFER_SIZE;
use netdrv::rss;

use super::{ADDRESS, VfBench};
use crate::bench::{Bench, Rig};
use crate::ixgbe::frames::frame;
use crate::ixgbe::lock;
use crate::ixgbe::models::packet;

const MAXFRS: u32 = 0x0_4268;

fn rig(model: Model, policy: Policy, pairs: usize) -> Rig<VfBench> {
    let wish = QueueWish { pairs, ring: 64, interrupts: 8, tx_needed: 0 };
    let mut bench = VfBench::new(model, policy, wish).expect("a sane function");
    bench.live(20);
    Rig::new(bench)
}

/// Whether a frame comes in, and does so unchanged.
fn comes_in(rig: &mut Rig<VfBench>, bytes: &[u8]) -> bool {
    rig.bench.feed(0, bytes.to_vec());
    rig.bench.run();
    let received = rig.receive(0, 64);
    assert!(received.is_empty() || received == [bytes], "another frame");
    !received.is_empty()
}

#[test]
fn a_function_gets_what_its_host_lets_in() {
    const STRANGER: [u8; 6] = [0x02, 0, 0, 0, 9, 9];
    const MULTICAST: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 1];
    let host = |version, trust| Policy { version, trust, ..Policy::default() };
    for (model, policy, multicasts, strangers) in [
        (Model::X540, host(3, Trust::Full), true, true),
        (Model::X540, host(2, Trust::Full), true, false),
        (Model::X540, host(1, Trust::Full), false, false),
        (Model::X540, host(0, Trust::Full), false, false),
        (Model::X540, host(3, Trust::None), false, false),
        (Model::Sfp82599, host(3, Trust::Full), true, false),
    ] {
        let mut rig = rig(model, policy, 1);
        assert!(comes_in(&mut rig, &frame(ADDRESS, None, 100)), "{policy:?}");
        assert!(comes_in(&mut rig, &frame([0xff; 6], None, 100)), "{policy:?}");
        assert_eq!(comes_in(&mut rig, &frame(MULTICAST, None, 100)), multicasts, "{model:?} {policy:?}");
        assert_eq!(comes_in(&mut rig, &frame(STRANGER, None, 100)), strangers, "{model:?} {policy:?}");
        assert!(!comes_in(&mut rig, &frame(ADDRESS, Some(5), 100)), "a tag");
        rig.finish();
    }
}

/// How long frames may be is the host's to say. Whatever it says, no frame goes beyond the end of its buffer.
#[test]
fn frames_that_are_longer_than_a_buffer_are_dropped_whole() {
    let mut rig = rig(Model::Sfp82599, Policy::default(), 1);
    rig.bench.card.bar.model.write(MAXFRS, 9_728 << 16);
    let mut dropped = 0;
    for len in [1_518, 1_792, 1_793, BUFFER_SIZE, BUFFER_SIZE + 1, 4_096, 9_000] {
        let fits = len <= BUFFER_SIZE;
        assert_eq!(comes_in(&mut rig, &frame(ADDRESS, None, len)), fits, "{len} bytes");
        dropped += u64::from(!fits);
        assert_eq!(rig.drops(0), RxDrops { oversize: dropped, ..RxDrops::default() });
    }
    rig.finish();
}

/// The host's table spreads flows over the queues of an 82599's function, a table of its own over those of an X550's.
#[test]
fn flows_are_spread_over_all_queues() {
    for (model, pairs, queues) in
        [(Model::Sfp82599, 2, 2), (Model::X540, 4, 4), (Model::X550, 4, 4), (Model::X550, 3, 2)]
    {
        let mut rig = rig(model, Policy { queues: 4, ..Policy::default() }, pairs);
        let shape = rig.bench.device().shape();
        assert_eq!((shape.rx, shape.tx), (queues, pairs), "{model:?}");
        let table: Vec<u16> = rss::indirection(64, queues as u16).collect();
        let mut counts = vec![0; queues];
        for flow in 0..400 {
            let (mut bytes, hash) = packet(flow);
            bytes[..6].copy_from_slice(&ADDRESS);
            rig.bench.feed(0, bytes.clone());
            rig.bench.run();
            let mut arrived = (0..queues).filter(|queue| rig.receive(*queue, 64) == [bytes.clone()]);
            let queue = arrived.next().expect("a queue");
            counts[queue] += 1;
            if model == Model::X550 {
                assert_eq!(queue, usize::from(table[hash as usize % 64]), "our key, our table");
            }
        }
        assert!(counts.iter().all(|count| *count > 400 / queues / 2), "{model:?}: {counts:?}");
        rig.finish();
    }
}

#[test]
fn every_transmit_queue_sends() {
    let mut rig = rig(Model::X540, Policy { queues: 4, ..Policy::default() }, 4);
    for queue in 0..4 {
        (0..5).for_each(|number| assert!(rig.send(queue, &VfBench::frame(number, 64))));
        rig.drain(queue);
        let sent: Vec<_> = (0..5).map(|number| VfBench::frame(number, 64)).collect();
        assert_eq!(rig.bench.collect(queue), sent);
    }
    assert!(lock(&rig.bench.card.cable).outbound.is_empty());
    rig.finish();
}

#[test]
fn a_queue_is_interrupted_once_for_each_wish() {
    let mut rig = rig(Model::X540, Policy { queues: 4, ..Policy::default() }, 4);
    assert_eq!(rig.bench.device().rx_interrupts(), 3, "a function has three vectors");
    let interrupts = |rig: &Rig<VfBench>| rig.bench.bar.function.take_interrupts();
    for queue in [0, 1, 2, 0, 1, 2] {
        assert!(rig.queues.rx[queue].arm());
        // One for frames that were taken before, at most.
        interrupts(&rig);
        assert!(rig.queues.rx[queue].arm());
        assert_eq!(interrupts(&rig), 0);
        for flow in 0.. {
            let mut bytes = packet(flow).0;
            bytes[..6].copy_from_slice(&ADDRESS);
            rig.bench.feed(0, bytes);
            rig.bench.run();
            let sent = interrupts(&rig);
            let arrived: Vec<usize> = (0..4).filter(|of| !rig.receive(*of, 64).is_empty()).collect();
            let expected = if arrived == [queue] { 1 << queue } else { 0 };
            assert_eq!(sent, expected, "a frame for queue {arrived:?}");
            if arrived == [queue] {
                break;
            }
            assert!(rig.queues.rx[queue].arm());
        }
    }
    rig.finish();
}

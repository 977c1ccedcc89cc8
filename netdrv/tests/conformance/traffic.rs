//! Ordinary traffic: what goes in comes out, in order and unchanged, however the rings turn.

use netdrv::device::{NetDevice, RxDrops, RxQueue, TxQueue};
use netdrv::packet::{BUFFER_SIZE, Burst, FRAME_CAPACITY, HEADROOM, Packet};
use netdrv::pool::Pool;

use crate::bench::{Bench, LOOKS, PATIENCE, Rig};
use crate::hal::TestHal;

/// Sends `frames` frames of at most `max_len` bytes into every receive queue and back out, in batches of at
/// most `batch`.
pub(crate) fn echo<B: Bench>(rig: &mut Rig<B>, frames: u32, batch: usize, max_len: usize) {
    let queues = rig.queues.rx.len();
    let mut fed = vec![0; queues];
    let mut back = vec![0; queues];
    let mut idle = 0;
    while back.iter().any(|back| *back < frames) {
        idle += 1;
        assert!(idle < PATIENCE, "traffic has stopped: {back:?} of {fed:?} frames are back");
        for (queue, fed) in fed.iter_mut().enumerate() {
            let burst = fastrand::u32(0..=batch as u32 + 1).min(frames - *fed);
            (*fed..*fed + burst).for_each(|number| rig.bench.feed(queue, B::frame(number, max_len)));
            *fed += burst;
        }
        rig.bench.run();
        for queue in 0..queues {
            rig.echo(queue, batch);
        }
        rig.bench.run();
        for (queue, back) in back.iter_mut().enumerate() {
            for bytes in rig.bench.collect(queue) {
                assert!(
                    bytes == B::frame(*back, max_len),
                    "frame {back} of queue {queue} is another: {bytes:x?}"
                );
                *back += 1;
                idle = 0;
            }
        }
    }
    for queue in 0..queues {
        rig.drain(queue);
        rig.rest(queue);
        assert_eq!(rig.drops(queue), RxDrops::default());
        assert_eq!(rig.queues.tx[queue].refused(), 0);
    }
}

/// With a device that keeps order, each buffer comes to the receive descriptor that it had before, again and again: also after
/// a jam, in which nothing came back from the transmit ring and the receive ring got other buffers.
pub(crate) fn buffers_keep_their_descriptors<B: Bench>(mut rig: Rig<B>) {
    const BATCH: usize = 8;
    let ring = rig.bench.device().shape().rx_ring;
    let mut next = 0;
    let mut round = |is_jammed: bool| -> Vec<u64> {
        (next..next + BATCH as u32).for_each(|number| rig.bench.feed(0, B::frame(number, 64)));
        next += BATCH as u32;
        rig.bench.run();
        if !is_jammed {
            rig.queues.tx[0].reclaim(&mut rig.cache);
        }
        let mut burst = Burst::new();
        rig.queues.rx[0].receive(&mut rig.cache, &mut burst, BATCH);
        let addresses = burst.iter().map(Packet::address).collect();
        rig.queues.tx[0].enqueue(&mut burst);
        rig.queues.tx[0].flush();
        rig.cache.put_many(burst.drain(..));
        addresses
    };
    for _ in 0..2 * ring / BATCH {
        round(true);
    }
    // The device dawdles at times, which is a little jam of its own.
    let is_at_home = |_| {
        let addresses: Vec<u64> = (0..4 * ring / BATCH).flat_map(|_| round(false)).collect();
        addresses.len() >= 3 * ring
            && addresses.iter().zip(&addresses[ring..]).all(|(before, after)| before == after)
    };
    assert!((0..PATIENCE).any(is_at_home), "buffers go from descriptor to descriptor");
    rig.drain(0);
    rig.finish();
}

/// Receives and drops: the transmit side stays untouched.
pub(crate) fn receive_only<B: Bench>(mut rig: Rig<B>) {
    let mut expected = 0;
    for round in 0..300u32 {
        if round == 150 {
            // Nothing but a hint.
            rig.queues.rx[0].leave_unread();
        }
        let count = round % 71;
        (0..count).for_each(|index| rig.bench.feed(0, B::frame(expected + index, FRAME_CAPACITY)));
        let end = expected + count;
        for _ in 0..PATIENCE {
            rig.bench.run();
            for bytes in rig.receive(0, 64) {
                assert!(bytes == B::frame(expected, FRAME_CAPACITY), "frame {expected}");
                expected += 1;
            }
            if expected == end {
                break;
            }
        }
        assert_eq!(expected, end, "all of round {round}");
    }
    rig.finish();
}

/// Receives what never comes back: all the same the device has as many buffers each time as at first.
pub(crate) fn kept_full<B: Bench>(mut rig: Rig<B>) {
    rig.queues.rx[0].keep_full();
    let rounds = 4;
    let ring = rig.bench.device().shape().rx_ring;
    (0..(rounds * ring) as u32).for_each(|number| rig.bench.feed(0, B::frame(number, 64)));
    let mut elsewhere = Vec::new();
    for round in 1..rounds {
        rig.bench.run();
        loop {
            let mut burst = Burst::new();
            for _ in 0..LOOKS {
                rig.queues.rx[0].receive(&mut rig.cache, &mut burst, 16);
            }
            if burst.is_empty() {
                break;
            }
            elsewhere.extend(burst);
        }
        assert_eq!(elsewhere.len(), round * (ring - B::SPARE), "round {round}");
    }
    drop(elsewhere);
    rig.finish();
}

/// Sends more than the ring holds, again and again: what is refused stays with the caller, what is taken
/// leaves.
pub(crate) fn send_only<B: Bench>(mut rig: Rig<B>) {
    let ring = rig.bench.device().shape().tx_ring - B::SPARE;
    let (mut sent, mut left) = (0, 0);
    for _ in 0..40 {
        while rig.send(0, &B::frame(sent, FRAME_CAPACITY)) {
            sent += 1;
        }
        assert_eq!(rig.queues.tx[0].waiting(), ring, "a full ring");
        let mut completed = 0;
        for _ in 0..PATIENCE {
            rig.bench.run();
            completed += rig.queues.tx[0].reclaim(&mut rig.cache);
            assert_eq!(rig.queues.tx[0].waiting(), ring - completed);
            if completed >= ring / 2 {
                break;
            }
        }
        assert!(completed >= ring / 2, "{completed} of {ring} frames are completed");
        for bytes in rig.bench.collect(0) {
            assert!(bytes == B::frame(left, FRAME_CAPACITY), "frame {left}");
            left += 1;
        }
    }
    rig.drain(0);
    assert_eq!(left, sent);
    rig.finish();
}

/// Takes frames no faster than the burst has room, and none where it has none.
pub(crate) fn limits_hold<B: Bench>(mut rig: Rig<B>) {
    (0..40).for_each(|number| rig.bench.feed(0, B::frame(number, 64)));
    rig.bench.run();
    let mut burst = Burst::new();
    let rx = &mut rig.queues.rx[0];
    assert_eq!(rx.receive(&mut rig.cache, &mut burst, 0), 0);
    assert_eq!(rx.receive(&mut rig.cache, &mut burst, 7), 7);
    assert_eq!((burst.len(), burst.first().map(Packet::len)), (7, Some(14.max(B::SHORTEST))));
    while !burst.is_full() {
        burst.push(rig.cache.take().expect("a buffer"));
    }
    assert_eq!(rx.receive(&mut rig.cache, &mut burst, 64), 0);
    burst.truncate(60);
    assert_eq!(rx.receive(&mut rig.cache, &mut burst, 64), 4);
    assert_eq!(burst[60].bytes(), B::frame(7, 64));
    drop(burst);
    rig.finish();
}

/// A pool with fewer buffers than the ring has descriptors, which others empty altogether: the ring goes dry
/// and recovers.
pub(crate) fn starvation<B: Bench>(bench: B) {
    let pool = Pool::new::<TestHal>(24).expect("memory");
    let mut rig = Rig::with_pool(bench, pool);
    echo(&mut rig, 100, 32, FRAME_CAPACITY);
    for round in 0..20 {
        // All buffers end up in our hands; frames wait outside.
        (0..40).for_each(|number| rig.bench.feed(0, B::frame(number, 1514)));
        let mut held: Vec<Packet> = Vec::new();
        for _ in 0..PATIENCE {
            rig.bench.run();
            let mut burst = Burst::new();
            rig.queues.rx[0].receive(&mut rig.cache, &mut burst, 5);
            held.extend(burst.drain(..));
            held.extend(rig.cache.take().filter(|_| round % 2 == 0));
            if held.len() == pool.count() {
                break;
            }
        }
        assert_eq!((held.len(), pool.in_depot()), (pool.count(), 0), "the pool is empty");
        let received: Vec<u32> = held
            .iter()
            .filter(|packet| !packet.is_empty())
            .map(|packet| u32::from_le_bytes(packet.bytes()[..4].try_into().expect("four bytes")))
            .collect();
        assert!(received.iter().copied().eq(0..received.len() as u32), "in order: {received:?}");
        assert!(rig.receive(0, 64).is_empty());
        assert_eq!(rig.bench.pending(0), 40 - received.len());
        // They go home, some to the cache and some to the depot, and the rest arrives.
        for (index, packet) in held.into_iter().enumerate() {
            if index % 3 == 0 { drop(packet) } else { rig.cache.put(packet) }
        }
        let mut next = received.len() as u32;
        for _ in 0..PATIENCE {
            rig.bench.run();
            for bytes in rig.receive(0, 64) {
                assert!(bytes == B::frame(next, 1514), "frame {next} after a drought");
                next += 1;
            }
            rig.bench.run();
        }
        assert_eq!((next, rig.bench.pending(0)), (40, 0), "the ring has recovered");
    }
    echo(&mut rig, 100, 32, FRAME_CAPACITY);
    rig.finish();
}

/// Frames at the edges of a buffer leave as they are, and those that no device could send are counted.
pub(crate) fn odd_packets<B: Bench>(mut rig: Rig<B>) {
    let packet = |rig: &mut Rig<B>, prepend: usize, fill: u8| {
        let mut packet = rig.cache.take().expect("a buffer");
        assert!(packet.copy_from(&[fill; 100]) && packet.prepend(prepend));
        packet.bytes_mut()[..prepend].fill(!fill);
        packet
    };
    let mut expected = Vec::new();
    for (fill, prepend) in
        [0, 1, HEADROOM - 13, HEADROOM - 12, HEADROOM - 11, HEADROOM - 1, HEADROOM].into_iter().enumerate()
    {
        let packet = packet(&mut rig, prepend, fill as u8);
        expected.push(packet.bytes().to_vec());
        assert!(rig.send_packet(0, packet));
    }
    let empty = rig.cache.take().expect("a buffer");
    let mut whole = packet(&mut rig, HEADROOM, 0);
    assert!(whole.set_len(BUFFER_SIZE));
    for (packet, is_sendable) in [(empty, B::SENDS_EMPTY), (whole, B::SENDS_WHOLE_BUFFERS)] {
        let bytes = packet.bytes().to_vec();
        let (waiting, refused) = (rig.queues.tx[0].waiting(), rig.queues.tx[0].refused());
        assert!(rig.send_packet(0, packet));
        let (sent, dropped) = if is_sendable { (1, 0) } else { (0, 1) };
        assert_eq!(rig.queues.tx[0].waiting(), waiting + sent);
        assert_eq!(rig.queues.tx[0].refused(), refused + dropped);
        expected.extend(is_sendable.then_some(bytes));
    }
    rig.drain(0);
    assert_eq!(rig.bench.collect(0), expected);
    rig.finish();
}

/// Stops with frames everywhere: in both rings, on the wire, in our hands. What we hold stays ours.
pub(crate) fn stop_under_load<B: Bench>(mut rig: Rig<B>) {
    (0..100).for_each(|number| rig.bench.feed(0, B::frame(number, FRAME_CAPACITY)));
    rig.bench.run();
    rig.echo(0, 30);
    let mut held = Burst::new();
    rig.queues.rx[0].receive(&mut rig.cache, &mut held, 10);
    assert_eq!(held.len(), 10);
    rig.bench.device().stop();
    rig.bench.device().stop();
    let pool = rig.pool;
    drop(rig);
    assert_eq!(pool.in_depot(), pool.count() - held.len());
    for (number, packet) in held.iter().enumerate() {
        assert!(packet.bytes() == B::frame(30 + number as u32, FRAME_CAPACITY));
    }
    drop(held);
    assert_eq!(pool.in_depot(), pool.count());
}

/// A queue that is dropped while the device runs keeps its buffers for ever, since the device may still write
/// to them.
pub(crate) fn queues_dropped_early_leak<B: Bench>(mut rig: Rig<B>) {
    let lent = {
        (0..10).for_each(|number| rig.bench.feed(0, B::frame(number, FRAME_CAPACITY)));
        rig.bench.run();
        rig.echo(0, 10);
        rig.bench.device().shape().rx_ring - B::SPARE + rig.queues.tx[0].waiting()
    };
    let Rig { mut bench, pool, cache, queues, bursts } = rig;
    drop((queues, cache, bursts));
    assert_eq!(pool.in_depot(), pool.count() - lent);
    // The device goes on with what it has, which is nobody else's.
    (0..20).for_each(|number| bench.feed(0, B::frame(number, FRAME_CAPACITY)));
    bench.run();
    bench.run();
    assert_eq!(bench.pending(0), 0);
    bench.device().stop();
    drop(bench);
    assert_eq!(pool.in_depot(), pool.count() - lent, "leaked is leaked");
}

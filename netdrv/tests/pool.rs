//! Buffers: where they go, and that each has one handle.

use netdrv::packet::{BUFFER_SIZE, FRAME_CAPACITY, HEADROOM, Packet};
use netdrv::pool::{BULK, CACHE_CAPACITY, Pool};
use netdrv::process::ProcessHal;

fn pool(count: usize) -> &'static Pool {
    Pool::new::<ProcessHal>(count).expect("memory")
}

#[test]
fn every_buffer_is_handed_out_once() {
    let pool = pool(300);
    let mut cache = pool.cache();
    let packets: Vec<Packet> = std::iter::from_fn(|| cache.take()).collect();
    assert_eq!(packets.len(), 300);
    let mut addresses: Vec<u64> = packets.iter().map(Packet::address).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] == 33 * 64), "a stride of 33 lines");
    assert!(addresses.iter().all(|address| address % 64 == 0));
    assert!(cache.take().is_none());
    assert_eq!(pool.in_depot(), 0);
}

#[test]
fn many_buffers_are_handed_out_once_and_come_home() {
    let pool = pool(300);
    let mut cache = pool.cache();
    let mut packets = Vec::new();
    for (wanted, had) in [(0, 0), (1, 1), (BULK, BULK), (200, 200), (100, 35), (1, 0)] {
        assert_eq!(cache.take_many(wanted, |packet| packets.push(packet)), had);
    }
    assert!(packets.iter().all(|packet| packet.is_empty() && packet.headroom() == HEADROOM));
    let mut addresses: Vec<u64> = packets.iter().map(Packet::address).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] == 33 * 64), "a stride of 33 lines");
    while !packets.is_empty() {
        cache.put_many(packets.drain(..packets.len().min(BULK)));
        assert!(cache.len() <= CACHE_CAPACITY);
    }
    drop(cache);
    assert_eq!(pool.in_depot(), 300);
}

#[test]
fn a_dropped_packet_goes_to_the_depot() {
    let pool = pool(BULK);
    let mut cache = pool.cache();
    let packet = cache.take().expect("a buffer");
    assert_eq!((pool.in_depot(), cache.len()), (0, BULK - 1));
    drop(packet);
    assert_eq!((pool.in_depot(), cache.len()), (1, BULK - 1));
    drop(cache);
    assert_eq!(pool.in_depot(), BULK);
}

#[test]
fn a_full_cache_returns_buffers_in_bulk() {
    let pool = pool(3 * CACHE_CAPACITY);
    let (mut receiver, mut sender) = (pool.cache(), pool.cache());
    for _ in 0..3 * CACHE_CAPACITY {
        sender.put(receiver.take().expect("a buffer"));
    }
    assert!(sender.len() <= CACHE_CAPACITY);
    assert_eq!(sender.len() + receiver.len() + pool.in_depot(), pool.count());
    assert_eq!(pool.in_depot() % BULK, 0);
}

#[test]
fn buffers_cross_between_threads_and_come_home() {
    let pool = pool(1024);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut cache = pool.cache();
                for round in 0..2_000 {
                    let held: Vec<Packet> = (0..round % 200).filter_map(|_| cache.take()).collect();
                    for (index, packet) in held.into_iter().enumerate() {
                        if index % 3 == 0 { drop(packet) } else { cache.put(packet) }
                    }
                }
            });
        }
    });
    assert_eq!(pool.in_depot(), 1024);
}

#[test]
fn lengths_never_leave_the_buffer() {
    let mut packet = pool(1).cache().take().expect("a buffer");
    assert_eq!((packet.len(), packet.headroom()), (0, HEADROOM));
    assert!(packet.set_len(FRAME_CAPACITY) && !packet.set_len(FRAME_CAPACITY + 1));
    assert_eq!(packet.len(), FRAME_CAPACITY);
    assert!(packet.prepend(HEADROOM) && !packet.prepend(1));
    assert_eq!(packet.len(), BUFFER_SIZE);
    packet.bytes_mut().fill(0xa5);
    assert!(packet.trim_front(BUFFER_SIZE) && !packet.trim_front(1));
    assert!(packet.is_empty() && packet.bytes().is_empty());
    assert!(!packet.set_len(1), "nothing is left behind the last byte");
    assert!(packet.prepend(4) && packet.bytes() == [0xa5; 4]);
}

#[test]
fn a_copied_frame_leaves_headroom() {
    let mut packet = pool(1).cache().take().expect("a buffer");
    assert!(packet.copy_from(b"frame"));
    assert_eq!((packet.bytes(), packet.headroom()), (&b"frame"[..], HEADROOM));
    *packet.front_mut::<12>().expect("headroom") = [7; 12];
    assert_eq!(packet.bytes(), b"frame");
    assert!(!packet.copy_from(&[0; FRAME_CAPACITY + 1]));
    assert_eq!(packet.bytes(), b"frame");
}

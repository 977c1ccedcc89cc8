//! Senders, reclaimers and a device that meet at one TX queue.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use loom::thread;
use netdrv::packet::Packet;
use netdrv::pool::{BULK, CACHE_CAPACITY, Pool};
use netdrv::process::ReusedMemory;
use netdrv::sync::{AtomicU64, Ordering, check, spin_loop};

use super::*;
use crate::testing::fill;

/// The words that driver and device share.
#[derive(Default)]
struct Device {
    /// Packets that the device was told of, so far.
    tail: AtomicU64,
    /// Packets that it is done with.
    done: AtomicU64,
}

impl Device {
    /// Sends all that it was told of.
    fn work(&self) {
        self.done.store(self.tail.load(Ordering::Acquire), Ordering::Release);
    }
}

/// A ring as small as a model needs it.
struct Ring {
    device: Arc<Device>,
    capacity: usize,
    slots: VecDeque<Packet>,
    /// The first byte of each packet that was enqueued, in order.
    enqueued: Vec<u8>,
    reclaimed: u64,
}

impl TxQueue for Ring {
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        let completed = self.device.done.load(Ordering::Acquire) - self.reclaimed;
        self.reclaimed += completed;
        self.slots.drain(..completed as usize).for_each(|packet| cache.put(packet));
        completed as usize
    }

    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len().min(self.room());
        self.enqueued.extend(burst[..count].iter().map(|packet| packet.bytes()[0]));
        self.slots.extend(burst.drain(..count));
        count
    }

    fn flush(&mut self) {
        let tail = self.enqueued.len() as u64;
        assert!(self.device.tail.load(Ordering::Relaxed) < tail, "a doorbell overtook another");
        self.device.tail.store(tail, Ordering::Release);
    }

    fn waiting(&self) -> usize {
        self.slots.len()
    }

    fn room(&self) -> usize {
        self.capacity - self.slots.len()
    }
}

/// A shared queue, and all that looks at it from outside.
struct Scene {
    pool: &'static Pool,
    device: Arc<Device>,
    shared: Arc<SharedTx<Ring>>,
    stats: Arc<LockStats>,
}

impl Scene {
    fn new(capacity: usize, when_taken: WhenTaken) -> Scene {
        let device = Arc::<Device>::default();
        let stats = Arc::<LockStats>::default();
        let ring = Ring {
            device: device.clone(),
            capacity,
            slots: VecDeque::new(),
            enqueued: Vec::new(),
            reclaimed: 0,
        };
        let shared = SharedTx::new(ring, when_taken, stats.clone());
        Scene { pool: Pool::new::<ReusedMemory>(4 * BULK).unwrap(), device, shared, stats }
    }

    /// One core's way to the queue, and a burst of packets that hold these numbers.
    fn core(&self, numbers: &[u8]) -> Core {
        let mut cache = self.pool.cache();
        let burst = numbers.iter().map(|&number| fill(&mut cache, &[number])).collect();
        Core { sender: self.shared.sender(), cache, burst }
    }

    /// When all cores are done: the device sends the rest, and everything is where it belongs.
    fn end(self, mut last: Core) -> Vec<u8> {
        self.device.work();
        last.sender.reclaim(&mut last.cache);
        assert_eq!(last.sender.waiting(), 0);
        drop(last);
        assert_eq!(self.pool.in_depot(), self.pool.count());
        self.shared.lent.lock().queue.enqueued.clone()
    }
}

struct Core {
    sender: Sender<Ring>,
    cache: PoolCache,
    burst: Burst,
}

impl Core {
    fn send(&mut self) -> usize {
        self.sender.send(&mut self.burst, &mut self.cache).taken
    }

    fn send_sparing(&mut self) -> usize {
        self.sender.send_sparing(&mut self.burst, &mut self.cache).taken
    }

    /// Sends until nothing is left.
    fn send_all(&mut self) {
        while !self.burst.is_empty() {
            if self.send() == 0 {
                spin_loop();
            }
        }
    }
}

/// Whether `numbers` are in `all`, in this order.
fn in_order(all: &[u8], numbers: &[u8]) -> bool {
    all.iter().filter(|number| numbers.contains(number)).eq(numbers)
}

#[test]
fn two_senders_and_one_that_only_reclaims_lose_nothing() {
    check(3, || {
        let scene = Scene::new(8, WhenTaken::Wait);
        let senders = [[1, 2], [11, 12]].map(|numbers| {
            let mut core = scene.core(&numbers);
            thread::spawn(move || assert_eq!(core.send(), 2))
        });
        let mut here = scene.core(&[]);
        scene.device.work();
        here.sender.reclaim(&mut here.cache);
        senders.into_iter().for_each(|sender| sender.join().unwrap());

        assert_eq!(scene.stats.acquired.get(), 2, "reclaiming is no burst");
        assert!(scene.stats.contended.get() <= 2);
        let sent = scene.end(here);
        assert!(sent == [1, 2, 11, 12] || sent == [11, 12, 1, 2], "bursts stay whole: {sent:?}");
    });
}

#[test]
fn three_senders_take_turns() {
    check(2, || {
        let scene = Scene::new(8, WhenTaken::Wait);
        let senders = [[1, 2], [11, 12]].map(|numbers| {
            let mut core = scene.core(&numbers);
            thread::spawn(move || assert_eq!(core.send(), 2))
        });
        let mut here = scene.core(&[21, 22]);
        assert_eq!(here.send(), 2);
        senders.into_iter().for_each(|sender| sender.join().unwrap());

        assert_eq!(scene.stats.acquired.get(), 3);
        assert!(scene.stats.contended.get() <= 2, "the first finds the lock free");
        assert_eq!(here.sender.waiting(), 6);
        let sent = scene.end(here);
        assert!(sent.chunks(2).all(|burst| burst[0] + 1 == burst[1]), "bursts stay whole: {sent:?}");
    });
}

#[test]
fn what_is_kept_where_the_lock_is_taken_goes_with_the_next_burst_in_order() {
    check(3, || {
        let scene = Scene::new(8, WhenTaken::Keep { most: 2 });
        let other = {
            let mut core = scene.core(&[11, 12]);
            thread::spawn(move || {
                let kept = core.send() == 0;
                core.send_all();
                u64::from(kept)
            })
        };
        let mut here = scene.core(&[1, 2, 3]);
        let late = here.burst.pop().unwrap();
        let kept = here.send() == 0;
        here.burst.push(late);
        if kept {
            assert_eq!(here.send(), 3, "three are too many to keep");
        }
        here.send_all();
        let missed = other.join().unwrap() + u64::from(kept);

        let (acquired, contended) = (scene.stats.acquired.get(), scene.stats.contended.get());
        assert_eq!(acquired, if kept { 2 } else { 3 });
        assert!((missed..=acquired).contains(&contended), "{contended} of {acquired}, {missed} were kept");
        let sent = scene.end(here);
        assert!(in_order(&sent, &[1, 2, 3]) && in_order(&sent, &[11, 12]) && sent.len() == 5, "{sent:?}");
    });
}

#[test]
fn a_borrower_is_stopped_and_restarted_and_never_takes_the_reserve() {
    check(3, || {
        let scene = Scene::new(4, WhenTaken::Wait);
        let owner = {
            let mut core = scene.core(&[11]);
            thread::spawn(move || assert_eq!(core.send(), 1, "a place was kept for it"))
        };
        let mut borrower = scene.core(&[1, 2, 3, 4, 5, 6]);
        for _ in 0..3 {
            borrower.send_sparing();
            scene.device.work();
        }
        owner.join().unwrap();
        while !borrower.burst.is_empty() {
            scene.device.work();
            assert!(borrower.send_sparing() > 0, "nothing is in its way, but it does not go on");
        }
        let sent = scene.end(borrower);
        assert!(in_order(&sent, &[1, 2, 3, 4, 5, 6]) && sent.len() == 7, "{sent:?}");
    });
}

#[test]
fn a_cache_that_spills_under_the_lock_meets_one_that_refills() {
    check(3, || {
        let scene = Scene::new(8, WhenTaken::Wait);
        let mut here = scene.core(&[]);
        here.burst = scene.core(&[1]).burst;
        let packets: Vec<Packet> = (0..CACHE_CAPACITY).map_while(|_| here.cache.take()).collect();
        packets.into_iter().for_each(|packet| here.cache.put(packet));
        assert_eq!(here.cache.len(), CACHE_CAPACITY);
        let sender = {
            let mut core = scene.core(&[]);
            thread::spawn(move || {
                core.burst.push(fill(&mut core.cache, &[11]));
                assert_eq!(core.send(), 1);
            })
        };
        assert_eq!(here.send(), 1);
        scene.device.work();
        here.sender.reclaim(&mut here.cache);
        sender.join().unwrap();
        assert_eq!(scene.end(here).len(), 2);
    });
}

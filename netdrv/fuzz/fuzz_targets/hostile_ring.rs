//! Random calls of the virtio rings, split and packed, while the device writes whatever it likes, wherever it may: used rings,
//! indices, descriptors, flags, events, and the bytes of buffers that it has. The driver must neither panic nor touch
//! memory that is not its own (the sanitizer watches), never hold a buffer twice, and have all of them back
//! after the stop.
#![no_main]
#![allow(unsafe_code)] // Plays the device: writes to the memory that the driver shares with it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use netdrv::device::{NetDevice, QueueWish, RxQueue, TxQueue};
use netdrv::hal::{Hal, PAGE_SIZE};
use netdrv::mmio::Window;
use netdrv::packet::{Burst, MAX_BURST, Packet};
use netdrv::pool::Pool;
use netdrv::virtio::{Doorbell, Features, NetTransport, VirtioError, VirtioNet};
use virtio_drivers::PhysAddr;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Descriptors in each ring, and buffers in the pool: fewer than both rings and our hands could hold.
const RING: u16 = 16;
const BUFFERS: usize = 40;

/// What happens next.
#[derive(Arbitrary, Debug)]
enum Step {
    Receive {
        limit: u8,
    },
    /// Asks for an interrupt.
    Arm,
    Reclaim,
    Enqueue {
        count: u8,
    },
    Flush,
    /// Changes the frame that we have held longest.
    Reshape {
        prepend: u8,
        trim: u8,
        len: u16,
    },
    Release {
        count: u8,
    },
    /// The device writes a completion and moves on.
    Use {
        queue: Side,
        id: u32,
        len: u32,
        count: u16,
    },
    /// The device completes the descriptors that it was offered last, as an honest one would.
    Complete {
        queue: Side,
        count: u8,
        len: u16,
    },
    /// The device asks for notifications by flag and by index.
    Ask {
        queue: Side,
        flags: u16,
        event: u16,
    },
    /// The device writes to the descriptor table.
    Scribble {
        queue: Side,
        word: u16,
        value: u64,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Side {
    Receive,
    Transmit,
}

#[derive(Arbitrary, Debug)]
struct Run {
    features: u64,
    steps: Vec<Step>,
}

/// The platform: the process's allocator, and registers that are memory.
struct FuzzHal;

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).expect("a sane number of pages")
}

// SAFETY: the allocator's memory is zeroed, exclusive and aligned; the device lives in the process.
unsafe impl Hal for FuzzHal {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        // SAFETY: the driver allocates at least one page.
        NonNull::new(unsafe { alloc_zeroed(layout(pages)) })
    }

    unsafe fn dma_free(base: NonNull<u8>, pages: usize) {
        // SAFETY: the caller passes what `dma_allocate` returned.
        unsafe { dealloc(base.as_ptr(), layout(pages)) };
    }

    unsafe fn map_mmio(base: u64, _len: usize) -> NonNull<u8> {
        NonNull::new(base as *mut u8).expect("an address")
    }

    fn now_ns() -> u64 {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        CLOCK.fetch_add(1_000_000, Ordering::Relaxed)
    }
}

/// Where the driver has put one ring, and how far the device is in it.
#[derive(Clone, Copy, Default)]
struct Areas {
    packed: bool,
    descriptors: u64,
    driver: u64,
    device: u64,
    position: u16,
}

/// The bits of a descriptor's second word that say whose it is (virtio 1.2, 2.8.1).
const AVAILABLE: u64 = 1 << 55;
const USED: u64 = 1 << 63;

impl Areas {
    fn u16(address: u64) -> &'static AtomicU16 {
        // SAFETY: a word of a ring that is freed only after the last step.
        unsafe { &*(address as *const AtomicU16) }
    }

    fn u64(address: u64) -> &'static AtomicU64 {
        // SAFETY: as above.
        unsafe { &*(address as *const AtomicU64) }
    }

    /// Writes `id` and `len` where the next completion goes, and moves on by `count`.
    fn complete(&mut self, id: u32, len: u32, count: u16) {
        if self.packed {
            let owner = if self.position & RING == 0 { AVAILABLE | USED } else { 0 };
            let word = u64::from(len) | u64::from(id as u16) << 32 | owner;
            self.next_word().store(word, Ordering::Release);
            self.position = self.position.wrapping_add(count);
        } else {
            let index = Areas::u16(self.device + 2);
            let at = self.device + 4 + 8 * u64::from(index.load(Ordering::Relaxed) % RING);
            for (offset, word) in [(0, id), (4, len)] {
                // SAFETY: as above.
                unsafe { &*((at + offset) as *const AtomicU32) }.store(word, Ordering::Relaxed);
            }
            index.fetch_add(count, Ordering::Release);
        }
    }

    /// Asks for notifications by flags and by an event.
    fn ask(&self, flags: u16, event: u16) {
        let (flags_at, event_at) = if self.packed { (2, 0) } else { (0, 4 + 8 * u64::from(RING)) };
        Areas::u16(self.device + flags_at).store(flags, Ordering::Relaxed);
        Areas::u16(self.device + event_at).store(event, Ordering::Relaxed);
    }

    /// Writes to the descriptors, whoever has them.
    fn scribble(&self, word: u16, value: u64) {
        Areas::u64(self.descriptors + 8 * u64::from(word % (2 * RING))).store(value, Ordering::Relaxed);
    }

    /// The descriptor that an honest device would complete next, if it has one.
    fn next(&self) -> Option<u16> {
        if self.packed {
            let word = self.next_word().load(Ordering::Acquire);
            let owner = if self.position & RING == 0 { AVAILABLE } else { USED };
            (word & (AVAILABLE | USED) == owner).then_some((word >> 32) as u16)
        } else {
            let used = Areas::u16(self.device + 2).load(Ordering::Relaxed);
            let waiting = Areas::u16(self.driver + 2).load(Ordering::Acquire).wrapping_sub(used);
            let entry = self.driver + 4 + 2 * u64::from(used % RING);
            ((1..=RING).contains(&waiting)).then(|| Areas::u16(entry).load(Ordering::Relaxed))
        }
    }

    fn next_word(&self) -> &'static AtomicU64 {
        Areas::u64(self.descriptors + 16 * u64::from(self.position % RING) + 8)
    }
}

/// A device that agrees to everything.
struct Agreeable {
    features: u64,
    status: DeviceStatus,
    areas: Arc<Mutex<[Areas; 2]>>,
    doorbell: &'static AtomicU16,
}

impl NetTransport for Agreeable {
    type Base = Agreeable;

    fn base(&self) -> &Agreeable {
        self
    }

    fn base_mut(&mut self) -> &mut Agreeable {
        self
    }

    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError> {
        // SAFETY: the doorbell is memory that is never freed.
        let window = unsafe { Window::map::<FuzzHal>(self.doorbell.as_ptr() as u64, 2) };
        Ok(Doorbell::new(window.register(0).expect("the whole window"), queue))
    }

    fn identity(&self) -> u32 {
        0
    }
}

impl Transport for Agreeable {
    fn device_type(&self) -> DeviceType {
        DeviceType::Network
    }

    fn read_device_features(&mut self) -> u64 {
        self.features
    }

    fn write_driver_features(&mut self, _features: u64) {}

    fn max_queue_size(&mut self, _queue: u16) -> u32 {
        u32::from(RING)
    }

    fn notify(&mut self, _queue: u16) {}

    fn get_status(&self) -> DeviceStatus {
        self.status
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.status = status;
    }

    fn set_guest_page_size(&mut self, _size: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        false
    }

    fn queue_set(
        &mut self,
        queue: u16,
        _size: u32,
        descriptors: PhysAddr,
        driver: PhysAddr,
        device: PhysAddr,
    ) {
        let packed = self.features & Features::RING_PACKED.bits() != 0;
        self.areas.lock().expect("no panic yet")[usize::from(queue)] =
            Areas { packed, descriptors, driver, device, position: 0 };
    }

    fn queue_unset(&mut self, _queue: u16) {}

    fn queue_used(&mut self, _queue: u16) -> bool {
        true
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }

    fn read_config_generation(&self) -> u32 {
        0
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, _offset: usize) -> virtio_drivers::Result<T> {
        Ok(T::new_zeroed())
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, _: usize, _: T) -> virtio_drivers::Result<()> {
        Ok(())
    }
}

/// Buffers that are on no ring, oldest first; none of them twice.
#[derive(Default)]
struct Hands(Vec<Packet>);

impl Hands {
    fn take(&mut self, burst: Burst) {
        self.0.extend(burst);
        let buffers: HashSet<u64> =
            self.0.iter().map(|packet| packet.address() - packet.headroom() as u64).collect();
        assert_eq!(buffers.len(), self.0.len(), "a buffer has one handle");
    }

    fn give(&mut self, count: usize) -> std::vec::Drain<'_, Packet> {
        let count = count.min(self.0.len());
        self.0.drain(..count)
    }
}

fuzz_target!(|run: Run| {
    // Pools and registers are made once and never freed.
    static POOL: LazyLock<&'static Pool> = LazyLock::new(|| Pool::new::<FuzzHal>(BUFFERS).expect("memory"));
    static DOORBELL: AtomicU16 = AtomicU16::new(0);

    // Those that decide about rings; the rest is negotiation.
    let optional = Features::RING_PACKED | Features::EVENT_IDX | Features::IN_ORDER;
    let features = run.features & optional.bits() | Features::VERSION_1.bits();
    let areas = Arc::new(Mutex::new([Areas::default(); 2]));
    let transport =
        Agreeable { features, status: DeviceStatus::empty(), areas: areas.clone(), doorbell: &DOORBELL };
    let wish = QueueWish { pairs: 1, ring: usize::from(RING), interrupts: 0, tx_needed: 0 };
    let mut device = VirtioNet::new::<FuzzHal>(transport, wish).expect("a device that agrees to everything");
    let mut queues = device.take_queues(*POOL).expect("queues");
    let (rx, tx) = (&mut queues.rx[0], &mut queues.tx[0]);
    let mut areas = *areas.lock().expect("no panic yet");
    let mut cache = POOL.cache();
    let mut hands = Hands::default();

    for step in run.steps {
        match step {
            Step::Receive { limit } => {
                let mut burst = Burst::new();
                let count = rx.receive(&mut cache, &mut burst, limit.into());
                assert_eq!(count, burst.len());
                hands.take(burst);
            }
            Step::Arm => {
                rx.arm();
            }
            Step::Reclaim => {
                let before = tx.waiting();
                let completed = tx.reclaim(&mut cache);
                assert!(completed <= before && tx.waiting() <= before - completed);
            }
            Step::Enqueue { count } => {
                let mut burst: Burst = hands.give(usize::from(count).min(MAX_BURST)).collect();
                tx.enqueue(&mut burst);
                hands.take(burst);
            }
            Step::Flush => tx.flush(),
            Step::Reshape { prepend, trim, len } => {
                if let Some(packet) = hands.0.first_mut() {
                    let _ = packet.set_len(len.into());
                    let _ = packet.prepend(prepend.into());
                    let _ = packet.trim_front(trim.into());
                    packet.bytes_mut().fill(trim);
                }
            }
            Step::Release { count } => hands.give(count.into()).for_each(|packet| cache.put(packet)),
            Step::Use { queue, id, len, count } => areas[queue as usize].complete(id, len, count),
            Step::Complete { queue, count, len } => {
                for _ in 0..count.min(RING as u8) {
                    let Some(id) = areas[queue as usize].next() else { break };
                    areas[queue as usize].complete(id.into(), len.into(), 1);
                }
            }
            Step::Ask { queue, flags, event } => areas[queue as usize].ask(flags, event),
            Step::Scribble { queue, word, value } => areas[queue as usize].scribble(word, value),
        }
    }

    device.stop();
    drop((queues, cache, hands));
    assert_eq!(POOL.in_depot(), BUFFERS, "every buffer comes home");
});

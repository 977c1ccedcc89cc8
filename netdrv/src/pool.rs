//! Where buffers live: one depot for all cores, and a cache for each.
//!
//! A worker takes and returns buffers through its own [`PoolCache`], last in first out, with no lock and no atomic; only
//! every [`BULK`] buffers does it visit the depot. Buffers that one core received and another sent therefore travel
//! home in bulk.

#![allow(unsafe_code)] // Lays out the buffers and makes the one handle of each.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;

use arrayvec::ArrayVec;

use crate::dma::{DmaError, DmaMemory};
use crate::fifo::Fifo;
use crate::hal::Hal;
use crate::packet::{BYTES, Buffer, Packet, STRIDE};
use crate::prefetch;
use crate::sync::SpinMutex;

/// Buffers exchanged with the depot at a time.
pub const BULK: usize = 64;
/// The most buffers that a cache keeps.
pub const CACHE_CAPACITY: usize = 2 * BULK;

/// A buffer without a handle: in a free list, or lent to a device. Half as large as a packet, and it goes nowhere by itself.
pub(crate) struct FreeBuffer(NonNull<Buffer>);

// SAFETY: a free buffer is owned by the list that it is on, and the list is locked or owned by one core.
unsafe impl Send for FreeBuffer {}

impl FreeBuffer {
    /// Of a packet whose bytes are of no more interest, or known to a device.
    #[inline(always)]
    pub(crate) fn of(packet: Packet) -> FreeBuffer {
        FreeBuffer(packet.into_buffer())
    }

    /// An empty packet.
    #[inline(always)]
    pub(crate) fn into_packet(self) -> Packet {
        // SAFETY: a free buffer has no handle, and it ends here, which makes this the only one.
        unsafe { Packet::from_buffer(self.0) }
    }

    /// A frame of `len` bytes behind `headroom` free ones, or what of it the buffer has.
    #[inline(always)]
    pub(crate) fn into_frame(self, headroom: usize, len: usize) -> Packet {
        let mut packet = self.into_packet();
        packet.place(headroom, len);
        packet
    }

    /// The address of what is behind `headroom` free bytes, as CPU and device use it.
    #[inline(always)]
    pub(crate) fn address(&self, headroom: usize) -> u64 {
        self.0.as_ptr() as u64 + (BYTES + headroom) as u64
    }

    /// Asks the CPU to fetch the first line behind `headroom` free bytes, for reading and writing.
    #[inline(always)]
    pub(crate) fn prefetch(&self, headroom: usize) {
        prefetch::for_writing(self.address(headroom) as *const u8);
    }
}

/// All buffers of the machine, and those that no core holds. Pools are made once and never freed, so a packet may
/// outlive everything else.
pub struct Pool {
    depot: SpinMutex<Depot>,
    count: usize,
    memory: DmaMemory,
}

/// The buffers that no core holds.
struct Depot {
    /// Those that came home. Made with room for every buffer: it never grows.
    free: Vec<FreeBuffer>,
    /// How many buffers, from the start of the memory, were ever taken. The others are not even touched: a machine
    /// pays for a page when it is first written, and most buffers of a large pool wait for a load that may never come.
    opened: usize,
}

impl Pool {
    /// Makes a pool of `count` buffers in DMA memory.
    pub fn new<H: Hal>(count: usize) -> Result<&'static Pool, DmaError> {
        let memory = DmaMemory::allocate_untouched::<H>(count * STRIDE)?;
        let depot = Depot { free: Vec::with_capacity(count), opened: 0 };
        Ok(Box::leak(Box::new(Pool { depot: SpinMutex::new(depot), count, memory })))
    }

    /// Bytes that a pool of `count` buffers takes: the buffers themselves, which are one piece, and the depot's list.
    pub const fn bytes(count: usize) -> u64 {
        (count * (STRIDE + size_of::<FreeBuffer>())) as u64
    }

    /// How many buffers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many buffers lie in the depot: all of them when every cache and every packet is gone.
    pub fn in_depot(&self) -> usize {
        let depot = self.depot.lock();
        depot.free.len() + self.count - depot.opened
    }

    /// A cache over this pool, for one core.
    pub fn cache(&'static self) -> PoolCache {
        PoolCache { pool: self, free: ArrayVec::new(), drawn: 0 }
    }

    /// Takes home one buffer whose handle ended outside any cache.
    ///
    /// # Safety
    /// `buffer` is of this pool and has no handle any more.
    pub(crate) unsafe fn give_back(&self, buffer: NonNull<Buffer>) {
        self.depot.lock().free.push(FreeBuffer(buffer));
    }

    /// Moves up to [`BULK`] buffers out of the depot, those that came home first.
    fn withdraw(&'static self, to: &mut ArrayVec<FreeBuffer, CACHE_CAPACITY>) {
        let mut depot = self.depot.lock();
        let keep = depot.free.len().saturating_sub(BULK);
        to.extend(depot.free.drain(keep..));
        while to.len() < BULK && depot.opened < self.count {
            to.push(self.open(depot.opened));
            depot.opened += 1;
        }
    }

    /// Makes a buffer of the memory at `index`, which was none before.
    fn open(&'static self, index: usize) -> FreeBuffer {
        // SAFETY: the block holds `count` buffers, page-aligned at the start and a whole stride each, and index < count.
        let buffer = unsafe { self.memory.base().cast::<Buffer>().add(index) };
        // SAFETY: the place is inside the block, aligned, and nobody else's yet. The bytes behind it have some value, as
        // the platform promises.
        unsafe { (&raw mut (*buffer.as_ptr()).pool).write(self) };
        FreeBuffer(buffer)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} buffers in the depot)", self.in_depot(), self.count)
    }
}

/// One core's free buffers.
pub struct PoolCache {
    pool: &'static Pool,
    free: ArrayVec<FreeBuffer, CACHE_CAPACITY>,
    /// How many more buffers came from the depot than went there. As many as that are extra: with all others in rings and
    /// on their way, the rings have what they were filled with. While transmit rings are jammed, as many are drawn as they hold.
    /// Buffers that change cores count where they end: where many do, rings have to be kept full
    /// ([`RxQueue::keep_full`](crate::device::RxQueue::keep_full)).
    drawn: isize,
}

impl PoolCache {
    /// The pool that the buffers come from.
    pub fn pool(&self) -> &'static Pool {
        self.pool
    }

    /// How many buffers lie in this cache.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether the next [`take`](Self::take) visits the depot.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// An empty packet, or `None` where cache and depot are both empty.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Packet> {
        if self.free.is_empty() {
            self.refill();
        }
        self.free.pop().map(FreeBuffer::into_packet)
    }

    /// Takes buffers for a receive ring that lacks `room`: those that came back, in the order in which they came. What came
    /// out of a ring in a row thus goes into the next in a row; and as there are as many of them as the ring has
    /// descriptors, each comes to the descriptor that it had before, which need not be written again. So others are
    /// taken, from the depot as well, only where the ring would lack more than `bearable`.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, room: usize, bearable: usize) -> impl Iterator<Item = FreeBuffer> {
        let returned = (self.free.len() as isize - self.drawn).max(0) as usize;
        let wanted = returned.min(room).max(room.saturating_sub(bearable));
        if self.free.len() < wanted.min(BULK) {
            self.refill();
        }
        let keep = self.free.len().saturating_sub(wanted);
        self.free.drain(keep..)
    }

    /// Hands out `most` empty packets, fewer where cache and depot have no more. Returns how many.
    #[inline(always)]
    pub fn take_many(&mut self, most: usize, mut take: impl FnMut(Packet)) -> usize {
        let mut count = 0;
        while count < most {
            let wanted = (most - count).min(BULK);
            if self.free.len() < wanted.min(BULK) {
                self.refill();
            }
            let rest = self.free.len().saturating_sub(wanted);
            if rest == self.free.len() {
                break;
            }
            for buffer in self.free.drain(rest..) {
                take(buffer.into_packet());
                count += 1;
            }
        }
        count
    }

    /// Sends the buffers of at most [`BULK`] packets home.
    ///
    /// # Panics
    /// Where there are more.
    #[inline(always)]
    pub fn put_many(&mut self, packets: impl ExactSizeIterator<Item = Packet>) {
        if self.free.remaining_capacity() < packets.len() {
            self.spill();
        }
        self.free.extend(packets.map(FreeBuffer::of));
    }

    /// Sends a packet's buffer home.
    #[inline(always)]
    pub fn put(&mut self, packet: Packet) {
        self.put_free(FreeBuffer::of(packet));
    }

    /// Takes a buffer that a device is done with.
    #[inline(always)]
    pub(crate) fn put_free(&mut self, buffer: FreeBuffer) {
        if self.free.is_full() {
            self.spill();
        }
        self.free.push(buffer);
    }

    /// Takes the `count` oldest buffers of a ring, at most [`BULK`], that a device is done with. Returns how many there were.
    #[inline(always)]
    pub(crate) fn take_from(&mut self, ring: &mut Fifo, count: usize) -> usize {
        if self.free.remaining_capacity() < count {
            self.spill();
        }
        ring.move_to(&mut self.free, count)
    }

    #[cold]
    fn refill(&mut self) {
        let before = self.free.len();
        self.pool.withdraw(&mut self.free);
        self.draw((self.free.len() - before) as isize);
    }

    /// Returns the buffers that were not used for longest.
    #[cold]
    fn spill(&mut self) {
        self.pool.depot.lock().free.extend(self.free.drain(..BULK));
        self.draw(-(BULK as isize));
    }

    fn draw(&mut self, count: isize) {
        let (least, most) = (-(CACHE_CAPACITY as isize), self.pool.count as isize);
        self.drawn = (self.drawn + count).clamp(least, most);
    }
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        self.pool.depot.lock().free.extend(self.free.drain(..));
    }
}

#[cfg(all(test, loom))]
mod models;

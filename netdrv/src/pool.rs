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
use hermit_sync::SpinMutex;

use crate::dma::{DmaError, DmaMemory};
use crate::hal::Hal;
use crate::packet::{Buffer, Packet, STRIDE};

/// Buffers exchanged with the depot at a time.
pub const BULK: usize = 64;
/// The most buffers that a cache keeps.
pub const CACHE_CAPACITY: usize = 2 * BULK;

/// A buffer without a handle.
struct FreeBuffer(NonNull<Buffer>);

// SAFETY: a free buffer is owned by the list that it is on, and the list is locked or owned by one core.
unsafe impl Send for FreeBuffer {}

/// All buffers of the machine, and those that no core holds. Pools are made once and never freed, so a packet may
/// outlive everything else.
pub struct Pool {
    depot: SpinMutex<Vec<FreeBuffer>>,
    count: usize,
    _memory: DmaMemory,
}

impl Pool {
    /// Makes a pool of `count` buffers in DMA memory.
    pub fn new<H: Hal>(count: usize) -> Result<&'static Pool, DmaError> {
        let memory = DmaMemory::allocate::<H>(count * STRIDE)?;
        let first = memory.base().cast::<Buffer>();
        let pool: &'static Pool = Box::leak(Box::new(Pool {
            depot: SpinMutex::new(Vec::with_capacity(count)),
            count,
            _memory: memory,
        }));
        let mut depot = pool.depot.lock();
        for index in 0..count {
            // SAFETY: the block holds `count` buffers, page-aligned at the start and a whole stride each.
            let buffer = unsafe { first.add(index) };
            // SAFETY: the place is inside the block, aligned, and nobody else's; the bytes behind it are zeroed.
            unsafe { (&raw mut (*buffer.as_ptr()).pool).write(pool) };
            depot.push(FreeBuffer(buffer));
        }
        drop(depot);
        Ok(pool)
    }

    /// How many buffers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many buffers lie in the depot: all of them when every cache and every packet is gone.
    pub fn in_depot(&self) -> usize {
        self.depot.lock().len()
    }

    /// A cache over this pool, for one core.
    pub fn cache(&'static self) -> PoolCache {
        PoolCache { pool: self, free: ArrayVec::new() }
    }

    /// Takes home one buffer whose handle ended outside any cache.
    ///
    /// # Safety
    /// `buffer` is of this pool and has no handle any more.
    pub(crate) unsafe fn give_back(&self, buffer: NonNull<Buffer>) {
        // The depot was made with room for every buffer: this never allocates.
        self.depot.lock().push(FreeBuffer(buffer));
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
        // SAFETY: a free buffer has no handle, and taking it off the list makes this the only one.
        self.free.pop().map(|buffer| unsafe { Packet::from_buffer(buffer.0) })
    }

    /// Sends a packet's buffer home.
    #[inline(always)]
    pub fn put(&mut self, packet: Packet) {
        if self.free.is_full() {
            self.spill();
        }
        self.free.push(FreeBuffer(packet.into_buffer()));
    }

    #[cold]
    fn refill(&mut self) {
        let mut depot = self.pool.depot.lock();
        let keep = depot.len().saturating_sub(BULK);
        self.free.extend(depot.drain(keep..));
    }

    /// Returns the buffers that were not used for longest.
    #[cold]
    fn spill(&mut self) {
        self.pool.depot.lock().extend(self.free.drain(..BULK));
    }
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        self.pool.depot.lock().extend(self.free.drain(..));
    }
}

//! The packet: a move-only handle of a buffer. Dropping it sends the buffer home.

#![allow(unsafe_code)] // A handle owns its buffer by construction; this file and the pool turn that into slices.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use arrayvec::ArrayVec;

use crate::pool::Pool;
use crate::prefetch;

/// Bytes of a buffer that hold headroom and frame.
pub const BUFFER_SIZE: usize = 2048;
/// Bytes kept free before a received frame: room for a device's header and for programs that prepend.
pub const HEADROOM: usize = 256;
/// The longest frame that fits behind the headroom, in bytes.
pub const FRAME_CAPACITY: usize = BUFFER_SIZE - HEADROOM;
/// The most packets in a [`Burst`].
pub const MAX_BURST: usize = 64;

/// Packets that travel together, oldest first.
pub type Burst = ArrayVec<Packet, MAX_BURST>;
/// Packets that leave a [`Burst`].
pub type Drain<'a> = arrayvec::Drain<'a, Packet, MAX_BURST>;

/// What lies in memory for a packet: a line of our own, then the bytes that the device sees. The stride is
/// 33 cache lines: with an even number the frames' first lines would fall on half of the cache's sets.
#[repr(C, align(64))]
pub(crate) struct Buffer {
    /// Where the buffer belongs. Read only when a packet is dropped outside a worker's cache.
    pub(crate) pool: &'static Pool,
    bytes: BufferBytes,
}

#[repr(C, align(64))]
struct BufferBytes([u8; BUFFER_SIZE]);

/// The distance from one buffer to the next, in bytes.
pub(crate) const STRIDE: usize = size_of::<Buffer>();
const _: () = assert!(STRIDE == 33 * 64);
/// Where in a buffer the bytes are that the device sees.
pub(crate) const BYTES: usize = core::mem::offset_of!(Buffer, bytes);
const _: () = assert!(BYTES == 64);

/// A frame in a buffer of its own.
///
/// The handle can't be copied: who holds it may write the bytes, and nobody else has them. Giving it to a TX queue or
/// to a cache moves it; dropping it returns the buffer to its pool.
pub struct Packet {
    buffer: NonNull<Buffer>,
    start: u16,
    len: u16,
}

const _: () = assert!(size_of::<Packet>() == 16 && size_of::<Option<Packet>>() == 16);

// SAFETY: a packet owns its buffer alone, and the pool that it returns to is `Sync`.
unsafe impl Send for Packet {}

impl Packet {
    /// An empty packet behind full headroom.
    ///
    /// # Safety
    /// `buffer` is an initialised buffer of a pool, and this is the only handle of it.
    #[inline(always)]
    pub(crate) unsafe fn from_buffer(buffer: NonNull<Buffer>) -> Packet {
        Packet { buffer, start: HEADROOM as u16, len: 0 }
    }

    /// Gives up the handle without sending the buffer home.
    #[inline(always)]
    pub(crate) fn into_buffer(self) -> NonNull<Buffer> {
        ManuallyDrop::new(self).buffer
    }

    /// The frame's length in bytes, without CRC.
    #[inline(always)]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Free bytes before the frame.
    pub fn headroom(&self) -> usize {
        usize::from(self.start)
    }

    /// The address of the frame's first byte, as CPU and device use it.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        self.start_ptr() as u64
    }

    /// The frame.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: start + len <= BUFFER_SIZE holds for every packet; the buffer is ours and was initialised.
        unsafe { core::slice::from_raw_parts(self.start_ptr(), self.len()) }
    }

    /// The frame, to change.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` makes it the only access.
        unsafe { core::slice::from_raw_parts_mut(self.start_ptr(), self.len()) }
    }

    /// Makes the frame `len` bytes long; what is added holds whatever the buffer held. False, and no change, where the
    /// buffer ends before that.
    #[inline(always)]
    #[must_use]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= BUFFER_SIZE - usize::from(self.start);
        if fits {
            self.len = len as u16;
        }
        fits
    }

    /// Adds `count` bytes before the frame. False, and no change, where the headroom is shorter.
    #[must_use]
    pub fn prepend(&mut self, count: usize) -> bool {
        let fits = count <= self.headroom();
        if fits {
            self.start -= count as u16;
            self.len += count as u16;
        }
        fits
    }

    /// Takes `count` bytes off the frame's front. False, and no change, where the frame is shorter.
    #[must_use]
    pub fn trim_front(&mut self, count: usize) -> bool {
        let fits = count <= self.len();
        if fits {
            self.start += count as u16;
            self.len -= count as u16;
        }
        fits
    }

    /// Replaces the frame by a copy of `frame`, behind full headroom. False, and no change, where it is longer than
    /// [`FRAME_CAPACITY`].
    #[must_use]
    pub fn copy_from(&mut self, frame: &[u8]) -> bool {
        let fits = frame.len() <= FRAME_CAPACITY;
        if fits {
            self.start = HEADROOM as u16;
            self.len = frame.len() as u16;
            self.bytes_mut().copy_from_slice(frame);
        }
        fits
    }

    /// Makes the packet empty behind full headroom, as one fresh from the pool.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.start = HEADROOM as u16;
        self.len = 0;
    }

    /// Makes the packet empty behind `headroom` free bytes, at most all that the buffer has.
    #[inline(always)]
    pub fn clear_behind(&mut self, headroom: usize) {
        self.start = headroom.min(BUFFER_SIZE) as u16;
        self.len = 0;
    }

    /// Makes the frame the `len` bytes behind `headroom`, or what of them the buffer has.
    #[inline(always)]
    pub(crate) fn place(&mut self, headroom: usize, len: usize) {
        let start = headroom.min(BUFFER_SIZE);
        self.start = start as u16;
        self.len = len.min(BUFFER_SIZE - start) as u16;
    }

    /// The `N` bytes before the frame, where a device's header goes: headroom that no one else uses.
    /// `None` where the headroom is shorter.
    #[inline(always)]
    pub fn front_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        // SAFETY: N bytes before the start lie in the buffer when the headroom holds them, and `&mut self` makes it
        // the only access.
        (self.headroom() >= N).then(|| unsafe { &mut *self.start_ptr().sub(N).cast() })
    }

    /// Asks the CPU to fetch the frame's first line, for reading and writing.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch::for_writing(self.start_ptr());
    }

    /// Asks the CPU to fetch the line of the byte that is `before` bytes ahead of the frame, to be written.
    #[inline(always)]
    pub fn prefetch_to_write(&self, before: usize) {
        prefetch::for_writing(self.start_ptr().wrapping_sub(before));
    }

    #[inline(always)]
    fn start_ptr(&self) -> *mut u8 {
        // SAFETY: the buffer is alive and `start <= BUFFER_SIZE`, so the pointer stays in it or one past its end.
        unsafe { (&raw mut (*self.buffer.as_ptr()).bytes).cast::<u8>().add(usize::from(self.start)) }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: the buffer is alive: pools are never freed.
        let pool = unsafe { (*self.buffer.as_ptr()).pool };
        // SAFETY: this handle was the only one, and it ends here.
        unsafe { pool.give_back(self.buffer) };
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes at {:#x})", self.len, self.address())
    }
}

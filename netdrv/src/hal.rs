//! What a driver needs of the platform: memory that devices reach, registers, and a clock.

#![allow(unsafe_code)] // The contract below is the ground that every other line of the crate stands on.

use core::ptr::NonNull;

/// Size and alignment of the unit of DMA memory, in bytes.
pub const PAGE_SIZE: usize = 4096;

/// The platform under the drivers: the image on bare metal, a process in tests and benchmarks.
///
/// **Devices see DMA memory at the address that the CPU uses.** The image maps its memory one to one; a host process
/// registers its memory with a vhost-user backend or an IOMMU at the process's own addresses. Drivers therefore
/// carry one kind of address, and a buffer's address needs no look-up on the way to a descriptor.
///
/// # Safety
/// Memory from [`dma_allocate`](Hal::dma_allocate) is page-aligned, contiguous for the device, readable and writable, aliased by
/// nothing, of some value (not zeroed, but initialised as far as the language is concerned), and stays so until it is
/// given to [`dma_free`](Hal::dma_free). A pointer from [`map_mmio`](Hal::map_mmio) stays valid for the life of the program.
pub unsafe trait Hal: 'static {
    /// Allocates `pages` contiguous pages of [`PAGE_SIZE`] bytes, or `None` when there is no such run.
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>>;

    /// Gives back what [`dma_allocate`](Hal::dma_allocate) returned.
    ///
    /// # Safety
    /// `base` and `pages` are those of one allocation, no reference into it is left, and no device will touch it.
    unsafe fn dma_free(base: NonNull<u8>, pages: usize);

    /// Maps `len` bytes of device registers at bus address `base`, uncached.
    ///
    /// # Safety
    /// The range is a device's register window (a BAR or a part of one) and is not RAM.
    unsafe fn map_mmio(base: u64, len: usize) -> NonNull<u8>;

    /// Nanoseconds since some fixed point; never goes back. Bounds every wait for a device.
    fn now_ns() -> u64;
}

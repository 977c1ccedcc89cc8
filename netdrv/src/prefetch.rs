//! Hints to the CPU's caches.

#![allow(unsafe_code)] // One instruction that the compiler has no name for.

/// Asks for the cache line at `address`, to be written soon: a line that another core has, or a device, comes once, as this
/// core's own. A prefetch for reading brings a copy, and the first write then has to wait for the other's to be given up.
///
/// The compiler's own intrinsic turns into a prefetch for reading unless the whole program is built for newer processors
/// only. Those of x86-64 that don't know `prefetchw` take it for a `nop`.
#[inline(always)]
pub(crate) fn for_writing<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that the program can see, whatever the address.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

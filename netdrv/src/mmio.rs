//! Device registers.

#![allow(unsafe_code)] // Volatile access to mapped registers; bounds are checked when a register is named.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::hal::Hal;

/// A mapped window of device registers.
#[derive(Clone, Copy)]
pub struct Window {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: registers have no owner among the cores; a driver that shares one orders its own accesses.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of registers at bus address `base`.
    ///
    /// # Safety
    /// The range is a register window of a device that the caller owns, as for [`Hal::map_mmio`].
    pub unsafe fn map<H: Hal>(base: u64, len: usize) -> Window {
        // SAFETY: the caller's promise.
        Window { base: unsafe { H::map_mmio(base, len) }, len }
    }

    /// The register of type `T` at byte `offset`, or `None` where it does not lie, aligned, inside the window.
    pub fn register<T: RegisterWord>(&self, offset: usize) -> Option<Register<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.len || !offset.is_multiple_of(size_of::<T>()) {
            return None;
        }
        // SAFETY: the offset lies inside the window, as just checked.
        let address = unsafe { self.base.byte_add(offset).cast() };
        Some(Register { address, _word: PhantomData })
    }
}

/// A width that registers have.
pub trait RegisterWord: Copy {}
impl RegisterWord for u8 {}
impl RegisterWord for u16 {}
impl RegisterWord for u32 {}
impl RegisterWord for u64 {}

/// One device register.
#[derive(Clone, Copy)]
pub struct Register<T> {
    address: NonNull<T>,
    _word: PhantomData<T>,
}

// SAFETY: as for `Window`.
unsafe impl<T> Send for Register<T> {}
// SAFETY: as for `Window`.
unsafe impl<T> Sync for Register<T> {}

impl<T: RegisterWord> Register<T> {
    /// Reads the register.
    #[inline(always)]
    pub fn read(&self) -> T {
        // SAFETY: the window is mapped for the life of the program and the register lies in it.
        unsafe { self.address.read_volatile() }
    }

    /// Writes the register. What was written to memory before is visible to the device first: x86-64 does not
    /// move a store past an uncached store, and `volatile` keeps the compiler from it after [`release`](crate::dma::release).
    #[inline(always)]
    pub fn write(&self, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.address.write_volatile(value) }
    }
}

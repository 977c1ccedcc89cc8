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

/// Reaches the 32-bit registers of one device, at byte offsets. A driver that is generic over it runs on a card, on a model
/// of one in the same process, and on plain memory that another thread treats as registers.
pub trait Bar: Clone + Send + 'static {
    /// Reads the register at `offset`; all ones where there is none, as a bus answers for a device that is gone.
    fn read(&self, offset: u32) -> u32;

    /// Writes the register at `offset`, after everything that was written to memory before.
    fn write(&self, offset: u32, value: u32);
}

impl Bar for Window {
    #[inline(always)]
    fn read(&self, offset: u32) -> u32 {
        self.register::<u32>(offset as usize).map_or(u32::MAX, |register| register.read())
    }

    #[inline(always)]
    fn write(&self, offset: u32, value: u32) {
        if let Some(register) = self.register::<u32>(offset as usize) {
            register.write(value);
        }
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

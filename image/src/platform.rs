//! The machine as the drivers see it.

#![allow(unsafe_code)] // Implements the drivers' platform contract over the kernel.

use core::ptr::NonNull;

use kernel::pci::{BarError, Function};
use kernel::{dma, paging, time};
use netdrv::hal::Hal;
use netdrv::mmio::Window;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

/// Bare metal: RAM is mapped one to one, so a device's address is the CPU's.
pub(crate) struct Platform;

// SAFETY: `dma` gives page-aligned, contiguous pages of RAM that nobody else has, and takes back only those; a mapping of
// registers lasts as long as the image.
unsafe impl Hal for Platform {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        dma::allocate(pages as u64).ok()
    }

    unsafe fn dma_free(base: NonNull<u8>, pages: usize) {
        // SAFETY: as the caller promises.
        if let Err(error) = unsafe { dma::free(base, pages as u64) } {
            log::error!("{pages} pages at {base:p} could not be freed: {error}");
        }
    }

    unsafe fn map_mmio(base: u64, len: usize) -> NonNull<u8> {
        paging::map_mmio(base, len as u64)
            .unwrap_or_else(|error| panic!("{len} bytes of registers at {base:#x}: {error}"))
    }

    fn now_ns() -> u64 {
        time::now_ns()
    }
}

/// The first `len` bytes of a function's registers behind BAR 0, which is that long at least; the function is let loose on
/// memory.
pub(crate) fn map_bar_0(function: &Function, len: usize) -> Result<Window, BarError> {
    let address = function.bar_address(0)?;
    function.enable();
    // SAFETY: the address is that of the function's BAR 0, and the caller knows its length by the kind of card.
    Ok(unsafe { Window::map::<Platform>(address, len) })
}

/// The configuration space of one function. What asks for another gets this one: a driver is given no more than its
/// own device.
#[derive(Clone, Copy)]
pub(crate) struct OwnConfig(pub(crate) Function);

impl OwnConfig {
    /// Where the function is, in the words of `virtio_drivers`, which knows one segment.
    pub(crate) fn place(&self) -> DeviceFunction {
        let address = self.0.address;
        DeviceFunction { bus: address.bus(), device: address.device(), function: address.function() }
    }
}

impl ConfigurationAccess for OwnConfig {
    fn read_word(&self, _function: DeviceFunction, offset: u8) -> u32 {
        self.0.read32(offset.into())
    }

    fn write_word(&mut self, _function: DeviceFunction, offset: u8, value: u32) {
        self.0.write32(offset.into(), value);
    }

    unsafe fn unsafe_clone(&self) -> Self {
        *self
    }
}

//! Bare-metal library: boot, memory, cores, time, PCI, console. It knows no network card.
//!
//! [`entry!`] makes a program of it: the loader's entry ends in the program's `main`, which finds memory,
//! page tables, a heap, a console with the `log` facade, and reports of panics and exceptions in place.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod acpi;
pub mod apic;
mod backtrace;
pub mod boot;
pub mod console;
pub mod cpu;
pub mod dma;
mod logger;
pub mod machine;
mod memfuncs;
pub mod memory;
pub mod paging;
pub mod panic;
pub mod pci;
pub mod power;
pub mod smp;
pub mod time;

/// Makes `main`, a `fn(&'static Boot) -> !`, the program that the image runs, and gives the image its heap
/// and its panic handler. It is called once, in the crate of the image.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        // In a block of its own, so that the names meet no others.
        const _: () = {
            #[global_allocator]
            static HEAP: $crate::memory::Heap = $crate::memory::Heap::new();

            #[panic_handler]
            fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
                $crate::panic::report(info)
            }

            /// Called by the entry code.
            #[unsafe(no_mangle)]
            extern "C" fn sluice_start(
                loader: u32,
                information: u32,
                entry_tsc: u64,
                layout: &'static $crate::boot::Layout,
            ) -> ! {
                $crate::boot::start(loader, information, entry_tsc, layout, $main)
            }
        };
    };
}

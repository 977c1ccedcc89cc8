#![allow(unsafe_code)] // Reads what the loader left in physical memory.
//! From the entry to `main`: takes the loader's information apart and brings up memory and the boot core.

mod handover;
mod multiboot;
mod pvh;

use alloc::boxed::Box;
use alloc::string::String;
use core::slice;

use handover::{BootError, Extent, Handover, PhysicalMemory, Rsdp};
pub use handover::{Loader, Region, RegionKind};

use crate::memory::{FrameError, PageRange};
use crate::{backtrace, console, cpu, logger, memory, paging, power};

// A hosted test has an entry of its own.
#[cfg(not(test))]
core::arch::global_asm!(
    include_str!("entry.S"),
    cr0 = const cpu::CR0,
    cr4 = const cpu::CR4,
    efer = const cpu::EFER,
    pvh_magic = const pvh::MAGIC,
    options(att_syntax),
);

/// What the image knows about its start, for as long as it runs.
pub struct Boot {
    /// The loader that started the image.
    pub loader: Loader,
    /// The command line; empty where the loader gave none.
    pub command_line: &'static str,
    /// The first module, where the loader brought one.
    pub module: Option<&'static [u8]>,
    /// Physical address of the root pointer of the ACPI tables, where the loader knows it. Before it is read
    /// it must be mapped, see [`paging::map_firmware`].
    pub rsdp: Option<u64>,
    /// The memory map as the loader gave it.
    pub memory: &'static [Region],
    /// The time-stamp counter at the first instruction of the image.
    pub entry_tsc: u64,
}

/// Start and end of a part of the image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Section {
    /// The pages that the section touches.
    pub(crate) fn pages(self) -> PageRange {
        PageRange::around(self.start, self.end).expect("the linker script leaves no section empty")
    }
}

/// Where the linker put the image; filled in by `entry.S`.
#[repr(C)]
#[derive(Debug)]
pub struct Layout {
    pub(crate) rodata: Section,
    pub(crate) text: Section,
    /// `.data` and `.bss`.
    pub(crate) data: Section,
    /// The boot stack, with the page below it that is to be unmapped.
    pub(crate) boot_stack: Section,
}
const _: () = assert!(size_of::<Layout>() == 4 * size_of::<Section>());

impl Layout {
    /// Every page of the image.
    fn image(&self) -> PageRange {
        PageRange { start: self.rodata.pages().start, end: self.data.pages().end }
    }
}

/// Brings the machine up and calls `main`. [`entry!`](crate::entry) calls this; nothing else may.
pub fn start(
    loader: u32,
    information: u32,
    entry_tsc: u64,
    layout: &'static Layout,
    main: fn(&'static Boot) -> !,
) -> ! {
    cpu::init_boot_core();
    backtrace::set_text(layout.text);
    console::init();
    logger::init();
    let handover = take_over(loader, information).unwrap_or_else(|error| {
        // No word says what to do then: do what ends a test, and is nothing elsewhere.
        power::set_on_panic(power::OnPanic::Exit);
        refuse(error, "")
    });
    let line = handover.command_line.readable();
    power::set_on_panic_from(line);
    let boot = keep(&handover, entry_tsc, layout).unwrap_or_else(|error| refuse(error, line));
    cpu::guard_boot_stacks().expect("there is memory for the first stacks");
    log::info!("entered through {}; {} MiB of RAM", boot.loader, memory::total_pages() / 256);
    main(boot)
}

/// Stops, with the reason and the command line.
fn refuse(error: BootError, line: &str) -> ! {
    console::print_event(format_args!("sluice refused: boot: {error}\n{line}"));
    power::stop(power::Code::Refused)
}

fn take_over(loader: u32, information: u32) -> Result<Handover, BootError> {
    match loader {
        pvh::MAGIC => pvh::parse(&BelowFourGib, information.into()),
        multiboot::MAGIC => multiboot::parse(&BelowFourGib, information.into()),
        _ => Err(BootError::UnknownLoader),
    }
}

/// Brings up memory around what the loader left, then puts that where it stays.
fn keep(handover: &Handover, entry_tsc: u64, layout: &'static Layout) -> Result<&'static Boot, BootError> {
    let command_line = handover.command_line.checked()?;
    let module = handover.module.map(Extent::pages);
    memory::init(&handover.regions, layout.image(), module).map_err(|error| match error {
        FrameError::Fragmented => BootError::TooManyRegions,
        _ => BootError::NoMemoryMap,
    })?;
    if module.is_some_and(|module| !can_hold_module(module, layout.image())) {
        return Err(BootError::WildModule);
    }
    paging::init(layout);
    Ok(Box::leak(Box::new(Boot {
        loader: handover.loader,
        command_line: String::from(command_line).leak(),
        module: handover.module.map(module_bytes),
        rsdp: handover.rsdp.map(|rsdp| match rsdp {
            Rsdp::At(address) => address,
            Rsdp::Copy(bytes) => Box::leak(Box::new(bytes)).as_ptr() as u64,
        }),
        memory: handover.regions.to_vec().leak(),
        entry_tsc,
    })))
}

/// The page at 0 is not mapped, and the image is no module.
fn can_hold_module(module: PageRange, image: PageRange) -> bool {
    memory::is_ram(module) && module.start != 0 && (module.end <= image.start || image.end <= module.start)
}

/// The module, where the loader put it.
fn module_bytes(module: Extent) -> &'static [u8] {
    let length = usize::try_from(module.end - module.start).expect("addresses have 64 bits");
    // SAFETY: the module lies in RAM (checked by `keep`), which is mapped one to one, and the frame allocator
    // never owned its pages: nobody writes there.
    let bytes = unsafe { slice::from_raw_parts(module.start as *const u8, length) };
    // The page in which other cores start is in low memory, wherever that page is.
    if module.start < memory::LOW_MEMORY_END { bytes.to_vec().leak() } else { bytes }
}

/// What the entry code maps one to one.
struct BelowFourGib;

impl PhysicalMemory for BelowFourGib {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let end = address.checked_add(length as u64)?;
        if address == 0 || end > 1 << 32 {
            return None;
        }
        // SAFETY: the entry code mapped the first 4 GiB, and reading has no effect on RAM; an address where
        // nothing answers reads as ones. Nobody writes while the boot core is alone and takes the structures
        // apart.
        Some(unsafe { slice::from_raw_parts(address as *const u8, length) })
    }
}

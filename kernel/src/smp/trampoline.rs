//! The page below 1 MiB in which the other cores start, and how they find their seats.
#![allow(unsafe_code)] // Writes code into a page of low memory.

use core::arch::global_asm;
use core::mem::offset_of;
use core::{ptr, slice};

use crate::memory::{self, PageRange};
use crate::{cpu, paging};

global_asm!(
    include_str!("trampoline.S"),
    cr0 = const cpu::CR0,
    cr4 = const cpu::CR4,
    efer = const cpu::EFER,
    options(att_syntax),
);

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_parameters: u8;
    static trampoline_end: u8;
    fn core_start32();
    fn core_start64();
}

/// Where a starting core finds itself by its APIC id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Seat {
    apic_id: u32,
    _reserved: u32,
    stack_top: u64,
}

const _: () = assert!(size_of::<Seat>() == 16 && offset_of!(Seat, stack_top) == 8);

impl Seat {
    /// A seat for the core with this APIC id, which will run on the stack that ends at `stack_top`.
    pub(super) fn new(apic_id: u32, stack_top: u64) -> Self {
        Self { apic_id, _reserved: 0, stack_top }
    }
}

/// What `trampoline.S` has to know.
#[repr(C)]
struct Parameters {
    entry32: FarPointer,
    entry64: FarPointer,
    page_table: u32,
    seat_count: u32,
    seats: u64,
    main: u64,
    /// Puts the two fields below at the end of 8 bytes, the second of them aligned.
    _reserved: u16,
    gdt_limit: u16,
    gdt_base: u32,
}

const _: () = assert!(size_of::<Parameters>() == 48);
const _: () = assert!(offset_of!(Parameters, page_table) == 16);
const _: () = assert!(offset_of!(Parameters, seats) == 24);
const _: () = assert!(offset_of!(Parameters, main) == 32);
const _: () = assert!(offset_of!(Parameters, gdt_limit) == 42);

#[repr(C)]
struct FarPointer {
    offset: u32,
    selector: u16,
    _reserved: u16,
}

/// Selector of the 32-bit code segment of `trampoline.S`.
const CODE32: u16 = 0x08;
/// Selector of its 64-bit code segment.
const CODE64: u16 = 0x18;
/// Number and size of its descriptors.
const GDT_SIZE: u16 = 4 * 8;

/// The page, ready for start-up messages.
pub(super) struct Trampoline {
    page: PageRange,
}

impl Trampoline {
    /// Takes the page below 1 MiB that is kept for this; `None` where there is none.
    pub(super) fn find() -> Option<Self> {
        memory::low_page().map(|page| Self { page })
    }

    /// The page's number, for [`Message::StartUp`](crate::apic::Message::StartUp).
    pub(super) fn number(&self) -> u8 {
        u8::try_from(self.page.start / memory::PAGE_SIZE).expect("the page lies below 1 MiB")
    }

    /// Makes cores that start from now on look for their seat here, and call `main` with its index.
    ///
    /// Cores that were started before must have got through, or have been reset.
    pub(super) fn prepare(&mut self, seats: &'static [Seat], main: extern "C" fn(usize) -> !) {
        let code = code();
        let base = self.page.start as *mut u8;
        let parameters = Parameters {
            entry32: FarPointer::new(core_start32, CODE32),
            entry64: FarPointer::new(core_start64, CODE64),
            page_table: paging::root(),
            seat_count: seats.len() as u32,
            seats: seats.as_ptr() as u64,
            main: main as usize as u64,
            _reserved: 0,
            gdt_limit: GDT_SIZE - 1,
            gdt_base: (self.page.start as usize + gdt_offset()) as u32,
        };
        // SAFETY: The page is RAM that nobody else uses, mapped one to one, and the code with its parameters fits into
        // it (checked in `code`); no core is reading it, as the caller sees to.
        unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), base, code.len());
            base.add(parameters_offset()).cast::<Parameters>().write_unaligned(parameters);
        }
    }
}

impl FarPointer {
    fn new(code: unsafe extern "C" fn(), selector: u16) -> Self {
        let offset = u32::try_from(code as usize).expect("the image lies below 4 GiB");
        Self { offset, selector, _reserved: 0 }
    }
}

/// The code that is copied, with room for the parameters at its end.
fn code() -> &'static [u8] {
    let (start, end) = (&raw const trampoline_start, &raw const trampoline_end);
    let length = end as usize - start as usize;
    assert!(length <= memory::PAGE_SIZE as usize);
    // SAFETY: The two symbols are the ends of one object in read-only memory.
    unsafe { slice::from_raw_parts(start, length) }
}

fn parameters_offset() -> usize {
    &raw const trampoline_parameters as usize - &raw const trampoline_start as usize
}

/// The descriptors end where the parameters begin: both are multiples of 8 long.
fn gdt_offset() -> usize {
    parameters_offset() - usize::from(GDT_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_with_descriptors_and_parameters() {
        let code = code();
        assert_eq!(code.len(), parameters_offset() + size_of::<Parameters>());
        let descriptors = &code[gdt_offset()..parameters_offset()];
        assert_eq!(descriptors[..8], [0; 8]);
        assert_eq!(descriptors[usize::from(CODE32)..][..8], 0x00cf_9b00_0000_ffffu64.to_le_bytes());
        assert_eq!(descriptors[usize::from(CODE64)..][..8], 0x00af_9b00_0000_ffffu64.to_le_bytes());
    }
}

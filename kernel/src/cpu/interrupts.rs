#![allow(unsafe_code)] // Entry points of interrupts and exceptions.
//! The 256 vectors: every one enters through an interrupt gate, on a stack of its own kind, and saves
//! everything that Rust code may change.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicPtr, Ordering};

use hermit_sync::OnceCell;
use x86_64::VirtAddr;
use x86_64::instructions::port::Port;
use x86_64::instructions::segmentation::{CS, Segment};
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;

use super::descriptors::StackSlot;
use super::exceptions;

const VECTORS: usize = 256;
/// Vectors below this belong to the processor (SDM volume 3, table 6-1).
const FIRST_INTERRUPT: u8 = 32;
const NON_MASKABLE: u8 = 2;
const DOUBLE_FAULT: u8 = 8;
const MACHINE_CHECK: u8 = 18;

/// The state of the code that was interrupted.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the registers say it")]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    /// The processor's error code; 0 for vectors without one.
    pub error_code: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}
const _: () = assert!(size_of::<Frame>() == 22 * 8);

static HANDLERS: [AtomicPtr<()>; VECTORS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; VECTORS];

/// Sets what a vector does, on all cores. The handler runs with interrupts off; it acknowledges the interrupt
/// at the interrupt controller itself, and it must neither allocate nor print nor take a lock that code
/// outside of handlers takes. An interrupt without a handler is ignored, an exception without one ends in a
/// report.
pub fn set_handler(vector: u8, handler: fn(&Frame)) {
    HANDLERS[usize::from(vector)].store(handler as *mut (), Ordering::Release);
}

/// Where all stubs meet.
extern "C" fn dispatch(frame: &Frame) {
    let vector = frame.vector as u8;
    if vector == NON_MASKABLE && super::is_halting() {
        crate::power::halt_forever();
    }
    let handler = HANDLERS[usize::from(vector)].load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: only `set_handler` stores here, and it stores a `fn(&Frame)`.
        let handler: fn(&Frame) = unsafe { core::mem::transmute(handler) };
        handler(frame);
    } else if vector < FIRST_INTERRUPT {
        exceptions::report(frame);
    }
}

/// Distance between the entry points of two vectors, in bytes.
const STUB_SIZE: usize = 16;

/// The entry points of all vectors, [`STUB_SIZE`] bytes apart: each completes the frame with an error code
/// where the processor pushed none (SDM volume 3, table 6-1), and with its number.
#[unsafe(naked)]
extern "C" fn stubs() {
    naked_asm!(
        ".set sluice_vector, 0",
        ".rept 256",
        ".balign 16",
        concat!(
            ".if !(sluice_vector == 8 || (sluice_vector >= 10 && sluice_vector <= 14) || sluice_vector == 17",
            " || sluice_vector == 21 || sluice_vector == 29 || sluice_vector == 30)",
        ),
        "push 0",
        ".endif",
        "push sluice_vector",
        "jmp {common}",
        ".set sluice_vector, sluice_vector + 1",
        ".endr",
        common = sym common,
    )
}

/// Saves the registers and the SSE state, calls [`dispatch`], and restores all. Interrupts stay off
/// throughout: the next one would start at the top of the same stack.
#[unsafe(naked)]
extern "C" fn common() {
    naked_asm!(
        "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp", "push r8",
        "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "cld",
        "mov rdi, rsp",
        "mov rbx, rsp",
        // 512 bytes, aligned to 16 (SDM volume 1, section 10.5).
        "sub rsp, 512",
        "and rsp, -16",
        "fxsave64 [rsp]",
        "call {dispatch}",
        "fxrstor64 [rsp]",
        "mov rsp, rbx",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9", "pop r8",
        "pop rbp", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rbx", "pop rax",
        // Error code and vector.
        "add rsp, 16",
        "iretq",
        dispatch = sym dispatch,
    )
}

/// A gate of the interrupt descriptor table (SDM volume 3, section 6.14.1).
#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    stack: u16,
    offset_high: u16,
    offset_top: u32,
    _reserved: u32,
}
const _: () = assert!(size_of::<Gate>() == 16);

impl Gate {
    /// Present, ring 0, interrupt gate (type 14), as the upper byte of the stack field.
    const FLAGS: u16 = 0x8e00;

    fn new(vector: usize, selector: u16) -> Self {
        let offset = stubs as *const () as u64 + (vector * STUB_SIZE) as u64;
        Self {
            offset_low: offset as u16,
            selector,
            // Slot 0 of the task state segment is number 1 here: 0 would mean to stay on the stack.
            stack: Self::FLAGS | (slot(vector as u8) as u16 + 1),
            offset_high: (offset >> 16) as u16,
            offset_top: (offset >> 32) as u32,
            _reserved: 0,
        }
    }
}

fn slot(vector: u8) -> StackSlot {
    match vector {
        NON_MASKABLE => StackSlot::NonMaskable,
        DOUBLE_FAULT | MACHINE_CHECK => StackSlot::Fatal,
        ..FIRST_INTERRUPT => StackSlot::Exception,
        _ => StackSlot::Interrupt,
    }
}

/// Masks both legacy interrupt controllers. BIOSes leave them at vectors 8 to 15, which belong to exceptions.
pub(super) fn mask_legacy_controllers() {
    /// Interrupt mask registers (Intel 8259A datasheet, operation command word 1).
    const MASKS: [u16; 2] = [0x21, 0xa1];
    for mask in MASKS {
        // SAFETY: the ports belong to the interrupt controllers; no one else uses them, and they touch no
        // memory.
        unsafe { Port::new(mask).write(0xff_u8) };
    }
}

/// Makes the calling core use the one table that all cores share.
pub(super) fn load() {
    static TABLE: OnceCell<[Gate; VECTORS]> = OnceCell::new();
    let selector = CS::get_reg().0;
    let table = TABLE.get_or_init(|| core::array::from_fn(|vector| Gate::new(vector, selector)));
    let pointer =
        DescriptorTablePointer { limit: (size_of_val(table) - 1) as u16, base: VirtAddr::from_ptr(table) };
    // SAFETY: the table lives for ever, and every gate in it leads to a stub.
    unsafe { lidt(&pointer) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of one entry point.
    fn stub(vector: usize) -> &'static [u8; STUB_SIZE] {
        // SAFETY: the stubs are code of this program, which can be read, [`STUB_SIZE`] bytes for each vector.
        unsafe { &*(stubs as *const u8).add(vector * STUB_SIZE).cast() }
    }

    /// What a stub pushes: small numbers as `6a ib`, others as `68 id`.
    fn pushed(code: &[u8]) -> Option<(u32, &[u8])> {
        match code {
            [0x6a, value, rest @ ..] => Some((u32::from(*value), rest)),
            [0x68, a, b, c, d, rest @ ..] => Some((u32::from_le_bytes([*a, *b, *c, *d]), rest)),
            _ => None,
        }
    }

    #[test]
    fn each_entry_point_completes_the_frame() {
        // SDM volume 3, table 6-1.
        const WITH_ERROR_CODE: [usize; 10] = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30];
        for vector in 0..VECTORS {
            let mut code = stub(vector).as_slice();
            if !WITH_ERROR_CODE.contains(&vector) {
                let (error_code, rest) = pushed(code).expect("an error code");
                assert_eq!(error_code, 0, "vector {vector}");
                code = rest;
            }
            let (number, rest) = pushed(code).expect("a number");
            assert_eq!(number as usize, vector);
            assert!(matches!(rest.first(), Some(0xe9 | 0xeb)), "vector {vector} does not jump");
        }
    }

    #[test]
    fn a_gate_holds_the_whole_address() {
        let gate = Gate::new(255, 8);
        let address =
            u64::from(gate.offset_low) | u64::from(gate.offset_high) << 16 | u64::from(gate.offset_top) << 32;
        assert_eq!(address, stub(255).as_ptr() as u64);
        assert_eq!((gate.selector, gate.stack), (8, 0x8e01));
    }

    #[test]
    fn what_may_interrupt_another_has_a_stack_of_its_own() {
        let slots = [32, 14, 2, 8].map(|vector| slot(vector) as u16);
        assert_eq!(slots, [0, 1, 2, 3]);
        assert_eq!(slot(18) as u16, slot(8) as u16);
    }
}

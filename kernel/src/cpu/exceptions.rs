//! What an exception that nobody handles leaves on the console.

use core::fmt;

use x86_64::registers::control::Cr2;

use super::Frame;
use crate::panic;

const PAGE_FAULT: u64 = 14;

/// Prints the exception and ends as `on-panic=` says.
pub(super) fn report(frame: &Frame) -> ! {
    panic::end(frame.rip, frame.rbp, format_args!("{}", Report(frame)))
}

struct Report<'a>(&'a Frame);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = self.0;
        let (number, code) = (frame.vector, frame.error_code);
        write!(f, "exception {number} ({}), error code {code:#x}", name(number))?;
        if number == PAGE_FAULT {
            write!(f, ": {}", PageFault(code))?;
        }
        writeln!(f, " at {:#x}", frame.rip)?;
        let cr2 = Cr2::read_raw();
        writeln!(
            f,
            "  rax {:016x}  rbx {:016x}  rcx {:016x}  rdx {:016x}",
            frame.rax, frame.rbx, frame.rcx, frame.rdx
        )?;
        writeln!(
            f,
            "  rsi {:016x}  rdi {:016x}  rbp {:016x}  rsp {:016x}",
            frame.rsi, frame.rdi, frame.rbp, frame.rsp
        )?;
        writeln!(
            f,
            "  r8  {:016x}  r9  {:016x}  r10 {:016x}  r11 {:016x}",
            frame.r8, frame.r9, frame.r10, frame.r11
        )?;
        writeln!(
            f,
            "  r12 {:016x}  r13 {:016x}  r14 {:016x}  r15 {:016x}",
            frame.r12, frame.r13, frame.r14, frame.r15
        )?;
        write!(
            f,
            "  rip {:016x}  rfl {:016x}  cr2 {cr2:016x}  cs {:x}  ss {:x}",
            frame.rip, frame.rflags, frame.cs, frame.ss
        )
    }
}

/// The error code of a page fault in words (SDM volume 3, section 4.7).
struct PageFault(u64);

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PRESENT: u64 = 1 << 0;
        const WRITE: u64 = 1 << 1;
        const RESERVED: u64 = 1 << 3;
        const FETCH: u64 = 1 << 4;
        let what = match self.0 {
            code if code & FETCH != 0 => "executing",
            code if code & WRITE != 0 => "writing",
            _ => "reading",
        };
        let why = match self.0 {
            code if code & RESERVED != 0 => "with a bad page table entry",
            code if code & PRESENT != 0 => "without the right to",
            _ => "what is not mapped",
        };
        write!(f, "{what} {why}, address {:#x}", Cr2::read_raw())
    }
}

/// The names of the SDM, volume 3, table 6-1.
fn name(vector: u64) -> &'static str {
    match vector {
        0 => "divide error",
        1 => "debug",
        2 => "non-maskable interrupt",
        3 => "breakpoint",
        4 => "overflow",
        5 => "bound range exceeded",
        6 => "invalid opcode",
        7 => "device not available",
        8 => "double fault",
        10 => "invalid TSS",
        11 => "segment not present",
        12 => "stack-segment fault",
        13 => "general protection fault",
        14 => "page fault",
        16 => "x87 floating-point error",
        17 => "alignment check",
        18 => "machine check",
        19 => "SIMD floating-point exception",
        20 => "virtualization exception",
        21 => "control protection exception",
        _ => "reserved",
    }
}

#![allow(unsafe_code)] // Does what safe code cannot: crash for real.
//! A program on the same kernel that crashes as its command line says, so that tests see real reports:
//! `crash=` with one of the names in [`CRASHES`].
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use core::arch::asm;
use core::{fmt, hint, ptr};

use kernel::boot::Boot;
use kernel::{machine, power, println, smp};

kernel::entry!(main);

/// What can be asked for.
const CRASHES: [(&str, fn()); 11] = [
    ("panic", panic),
    ("panic-twice", panic_twice),
    ("panic-elsewhere", panic_elsewhere),
    ("null", read_null),
    ("ud2", undefined_instruction),
    ("stack-overflow", overflow_stack),
    ("write-rodata", write_rodata),
    ("write-text", write_text),
    ("exec-heap", execute_heap),
    ("double-fault", double_fault),
    ("wild-frame", wild_frame),
];

fn main(boot: &'static Boot) -> ! {
    // With the other cores up, as in the real image: a report must stop them.
    machine::init(boot);
    smp::start_all();
    let wanted = boot.command_line.split_whitespace().find_map(|word| word.strip_prefix("crash="));
    match CRASHES.iter().find(|(name, _)| Some(*name) == wanted) {
        Some((_, crash)) => crash(),
        None => {
            let names = CRASHES.map(|(name, _)| name);
            println!("sluice refused: command line: crash: not known; allowed: {names:?}");
        }
    }
    println!("nothing crashed");
    power::stop(power::Code::Refused)
}

fn panic() {
    panic!("on purpose, {}", 42);
}

/// Panics while it is being reported.
fn panic_twice() {
    struct Bad;
    impl fmt::Display for Bad {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("inside a report")
        }
    }
    panic!("{Bad}");
}

/// Panics on core 1 while core 0 keeps printing.
fn panic_elsewhere() {
    smp::launch(1, Box::new(panic)).expect("a second core");
    loop {
        println!("core 0 is alive");
    }
}

fn read_null() {
    // SAFETY: none, this is a null pointer; the page at 0 is not mapped, so the processor stops it.
    unsafe { asm!("mov {0}, [{0}]", inout(reg) 0_u64 => _) };
}

fn undefined_instruction() {
    // SAFETY: `ud2` does nothing but raise an exception.
    unsafe { asm!("ud2") };
}

fn overflow_stack() {
    println!("deepest {}", descend(0));
}

#[expect(unconditional_recursion, reason = "that is the point")]
#[inline(never)]
fn descend(depth: u64) -> u64 {
    let room = hint::black_box([depth; 64]);
    descend(depth + 1) + room[0]
}

fn write_rodata() {
    static CONSTANT: u64 = 7;
    // SAFETY: none, this is a constant; its page is read-only, so the processor stops it.
    unsafe { ptr::from_ref(&CONSTANT).cast_mut().write_volatile(8) };
}

fn write_text() {
    // SAFETY: none, this is code; its page is read-only, so the processor stops it.
    unsafe { (write_text as fn() as *mut u8).write_volatile(0xc3) };
}

fn execute_heap() {
    const RETURN: u8 = 0xc3;
    let code = Box::leak(Box::new([RETURN; 16]));
    // SAFETY: the bytes are a valid function, but their page is no-execute, so the processor stops it.
    unsafe { asm!("call {}", in(reg) code.as_ptr(), clobber_abi("C")) };
}

/// A page fault whose gate is missing: the processor cannot deliver it (SDM volume 3, table 6-5).
fn double_fault() {
    const PAGE_FAULT: usize = 14;
    const GATE: usize = 16;
    const TYPE_AND_PRESENT: usize = 5;
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: *mut u8,
    }
    let mut table = Pointer { limit: 0, base: ptr::null_mut() };
    // SAFETY: the copy of the table lives for ever; only the gate for page faults is missing in it, and no
    // page fault is meant to return.
    unsafe {
        asm!("sidt [{}]", in(reg) &raw mut table);
        let copy = Box::leak(Box::new([0_u8; 256 * GATE]));
        ptr::copy_nonoverlapping(table.base, copy.as_mut_ptr(), copy.len());
        copy[PAGE_FAULT * GATE + TYPE_AND_PRESENT] = 0;
        table.base = copy.as_mut_ptr();
        asm!("lidt [{}]", in(reg) &raw const table);
    }
    read_null();
}

/// Crashes with a frame pointer that points nowhere: the report must survive it.
fn wild_frame() {
    // SAFETY: nothing comes after the exception, so nobody misses the frame pointer.
    unsafe { asm!("mov rbp, 0xdead0000beef8", "ud2", options(noreturn)) };
}

//! The registers of the local APIC (Intel SDM volume 3, chapter 11; the sections below are its own).
#![allow(unsafe_code)] // Memory-mapped registers and MSRs.

use core::marker::PhantomData;
use core::ptr::NonNull;

use x86_64::registers::model_specific::Msr;

/// A 32-bit register, by its offset in the register page (table 11-1). In x2APIC mode it is MSR 0x800 + offset / 16
/// (table 11-6).
pub(super) struct Register<A> {
    offset: u16,
    access: PhantomData<A>,
}

/// Access of a register that can only be read.
pub(super) enum ReadOnly {}
/// Access of a register that can only be written.
pub(super) enum WriteOnly {}
/// Access of a register that reads as it was written.
pub(super) enum ReadWrite {}

/// Registers that can be read.
pub(super) trait Readable {}
impl Readable for ReadOnly {}
impl Readable for ReadWrite {}

/// Registers that can be written.
pub(super) trait Writable {}
impl Writable for WriteOnly {}
impl Writable for ReadWrite {}

impl<A> Register<A> {
    const fn at(offset: u16) -> Self {
        assert!(offset < 0x400 && offset.is_multiple_of(0x10));
        Self { offset, access: PhantomData }
    }

    const fn msr(&self) -> Msr {
        Msr::new(0x800 + (self.offset >> 4) as u32)
    }
}

/// Local APIC id; in xAPIC mode it is the upper byte (11.4.6, 11.12).
pub(super) const ID: Register<ReadOnly> = Register::at(0x020);
/// Task priority: interrupts of this class and below wait (11.8.3.1).
pub(super) const TASK_PRIORITY: Register<ReadWrite> = Register::at(0x080);
/// End of interrupt: the handler is done (11.8.5).
pub(super) const EOI: Register<WriteOnly> = Register::at(0x0b0);
/// Spurious interrupt vector, and the software enable bit (11.9).
pub(super) const SPURIOUS_VECTOR: Register<ReadWrite> = Register::at(0x0f0);
/// Interrupt command, lower half; writing it sends (11.6.1).
pub(super) const INTERRUPT_COMMAND: Register<ReadWrite> = Register::at(0x300);
/// Interrupt command, upper half: the destination. Not in x2APIC mode, where the command is one register of 64 bits
/// (11.12.9).
pub(super) const INTERRUPT_DESTINATION: Register<ReadWrite> = Register::at(0x310);
/// Local vector table: the timer (11.5.1).
pub(super) const LVT_TIMER: Register<ReadWrite> = Register::at(0x320);
/// Local vector table: pin LINT0 (11.5.1).
pub(super) const LVT_LINT0: Register<ReadWrite> = Register::at(0x350);
/// Local vector table: pin LINT1 (11.5.1).
pub(super) const LVT_LINT1: Register<ReadWrite> = Register::at(0x360);
/// Timer: counts down from here when written (11.5.4).
pub(super) const TIMER_INITIAL_COUNT: Register<ReadWrite> = Register::at(0x380);
/// Timer: where it is now (11.5.4).
pub(super) const TIMER_CURRENT_COUNT: Register<ReadOnly> = Register::at(0x390);
/// Timer: by what its clock is divided (11.5.4).
pub(super) const TIMER_DIVIDE: Register<ReadWrite> = Register::at(0x3e0);

/// [`SPURIOUS_VECTOR`]: the APIC is on.
pub(super) const SOFTWARE_ENABLE: u32 = 1 << 8;
/// Local vector table: nothing is delivered.
pub(super) const LVT_MASKED: u32 = 1 << 16;
/// Local vector table: deliver a non-maskable interrupt (11.5.1).
pub(super) const LVT_DELIVER_NMI: u32 = 0b100 << 8;
/// [`LVT_TIMER`]: fires when the time-stamp counter reaches a deadline (11.5.4.1). Without the bits: counts down once.
pub(super) const LVT_TSC_DEADLINE: u32 = 0b10 << 17;
/// [`TIMER_DIVIDE`]: by 16.
pub(super) const DIVIDE_BY_16: u32 = 0b0011;

/// Base address and mode of the local APIC (11.4.4, 11.12.1).
pub(super) const IA32_APIC_BASE: Msr = Msr::new(0x1b);
/// [`IA32_APIC_BASE`]: the register page.
pub(super) const BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// [`IA32_APIC_BASE`]: x2APIC mode.
pub(super) const X2APIC_ENABLE: u64 = 1 << 10;
/// [`IA32_APIC_BASE`]: the APIC is there at all.
pub(super) const GLOBAL_ENABLE: u64 = 1 << 11;
/// When the timer is to fire, in ticks of the time-stamp counter; 0 disarms it (11.5.4.1).
const IA32_TSC_DEADLINE: Msr = Msr::new(0x6e0);

/// Size of the register page.
pub(super) const PAGE_SIZE: u64 = 0x1000;

/// The way to the registers of the core that executes the access.
#[derive(Clone, Copy)]
pub(super) enum Registers {
    /// xAPIC mode: a page of memory, which shows each core its own registers.
    Memory(NonNull<u8>),
    /// x2APIC mode.
    Msrs,
}

// SAFETY: The page is mapped for ever and on all cores, and each register access is a single one.
unsafe impl Send for Registers {}
// SAFETY: As for `Send`.
unsafe impl Sync for Registers {}

impl Registers {
    pub(super) fn read<A: Readable>(self, register: &Register<A>) -> u32 {
        match self {
            // SAFETY: The register is in the mapped page, aligned, and may be read.
            Self::Memory(page) => unsafe { page.add(register.offset.into()).cast::<u32>().read_volatile() },
            // SAFETY: The mode was found on before `Msrs` was chosen, so the MSR is there.
            Self::Msrs => unsafe { register.msr().read() as u32 },
        }
    }

    pub(super) fn write<A: Writable>(self, register: &Register<A>, value: u32) {
        match self {
            // SAFETY: The register is in the mapped page, aligned, and may be written. What it then does (interrupts
            // that are sent or taken) ends in the handlers of the cores, which are in place before the APIC is on.
            Self::Memory(page) => unsafe {
                page.add(register.offset.into()).cast::<u32>().write_volatile(value);
            },
            // SAFETY: As above, and the mode was found on before `Msrs` was chosen.
            Self::Msrs => unsafe { register.msr().write(value.into()) },
        }
    }

    /// Sends an interrupt command in x2APIC mode.
    pub(super) fn write_command64(self, destination: u32, command: u32) {
        // In x2APIC mode the write is no barrier: what the receiver is to see must be out before (11.12.3).
        // SAFETY: The fences have no precondition.
        unsafe {
            core::arch::x86_64::_mm_mfence();
            core::arch::x86_64::_mm_lfence();
        }
        // SAFETY: Only called in x2APIC mode.
        unsafe { INTERRUPT_COMMAND.msr().write(u64::from(destination) << 32 | u64::from(command)) };
    }
}

/// Reads [`IA32_APIC_BASE`] of this core, which must have an APIC.
pub(super) fn apic_base() -> u64 {
    // SAFETY: Every processor with an APIC has the MSR, as every one with a 64-bit mode does.
    unsafe { IA32_APIC_BASE.read() }
}

/// Turns the APIC of this core on, in x2APIC mode or not.
pub(super) fn set_apic_base(value: u64) {
    let mut base = IA32_APIC_BASE;
    // SAFETY: The value is what was read, with more enable bits; the transitions are those that 11.12.5 allows.
    unsafe { base.write(value) };
}

/// Sets when the timer of this core fires, which must be in deadline mode.
pub(super) fn set_tsc_deadline(deadline: u64) {
    // In xAPIC mode the write to the local vector table must be done before (11.5.4.1).
    // SAFETY: The fence has no precondition.
    unsafe { core::arch::x86_64::_mm_mfence() };
    let mut msr = IA32_TSC_DEADLINE;
    // SAFETY: CPUID said that there is a deadline mode before it was chosen, and with it the MSR.
    unsafe { msr.write(deadline) };
}

#![allow(unsafe_code)] // Loads descriptor tables.
//! Segments and the task state segment of a core. In long mode all that they still do is name the stacks on
//! which handlers run.

use core::cell::UnsafeCell;

use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

use crate::memory::{FrameError, stack};

/// Which stack a handler runs on. Each may interrupt those above it, so none shares a stack with another.
///
/// Nothing ever runs on the stack that was interrupted: precompiled code keeps data below its stack pointer
/// (the red zone), which a handler on the same stack would overwrite.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(super) enum StackSlot {
    Interrupt,
    Exception,
    NonMaskable,
    /// Double fault and machine check: nothing comes after them.
    Fatal,
}

const SLOTS: usize = 4;
/// Pages of a handler's stack: a report formats numbers and walks the stack, unoptimised at worst.
const STACK_PAGES: u64 = 4;

/// Top of each handler stack of a core.
pub(super) struct HandlerStacks([u64; SLOTS]);

impl HandlerStacks {
    /// One static stack in all slots, for the boot core until there is memory.
    pub(super) fn early() -> Self {
        const SIZE: usize = 16 << 10;
        #[repr(align(16))]
        struct Stack(UnsafeCell<[u8; SIZE]>);
        // SAFETY: only the processor uses the stack, and only the boot core's.
        unsafe impl Sync for Stack {}
        static STACK: Stack = Stack(UnsafeCell::new([0; SIZE]));
        Self([STACK.0.get() as u64 + SIZE as u64; SLOTS])
    }

    /// A stack with a guard page for each slot.
    pub(super) fn allocate() -> Result<Self, FrameError> {
        let stacks = stack::allocate_group::<SLOTS>(STACK_PAGES)?;
        Ok(Self(stacks.map(|stack| stack.top())))
    }
}

/// The descriptor tables of one core.
pub(super) struct Descriptors {
    gdt: GlobalDescriptorTable,
    tss: TaskStateSegment,
}

impl Descriptors {
    pub(super) const fn new() -> Self {
        Self { gdt: GlobalDescriptorTable::new(), tss: TaskStateSegment::new() }
    }

    pub(super) fn set_stacks(&mut self, stacks: HandlerStacks) {
        // The structure is packed, so its table is written as a whole.
        let mut table = [VirtAddr::zero(); 7];
        for (slot, top) in table.iter_mut().zip(stacks.0) {
            *slot = VirtAddr::new(top);
        }
        self.tss.interrupt_stack_table = table;
    }

    /// Makes the calling core use these tables.
    pub(super) fn load(&'static mut self) {
        let code = self.gdt.append(Descriptor::kernel_code_segment());
        let data = self.gdt.append(Descriptor::kernel_data_segment());
        let task = self.gdt.append(Descriptor::tss_segment(&self.tss));
        self.gdt.load();
        // SAFETY: the selectors were just made in the table that was just loaded, which lives for ever.
        unsafe {
            CS::set_reg(code);
            SS::set_reg(data);
            DS::set_reg(data);
            ES::set_reg(data);
            FS::set_reg(SegmentSelector::NULL);
            GS::set_reg(SegmentSelector::NULL);
            load_tss(task);
        }
    }
}

#![allow(unsafe_code)] // Loads the tables of a core and reads its GS base.
//! One processor core: its number, its descriptor tables, its handlers.
//!
//! All of that is set up first thing on every core: from then on [`current`] tells its number, and whatever
//! interrupt or exception arrives finds a handler with a good stack.

mod descriptors;
mod exceptions;
pub mod interrupts;

use alloc::boxed::Box;
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};

use hermit_sync::{SpinMutex, SpinMutexGuard};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::GsBase;

use crate::memory::FrameError;
use descriptors::{Descriptors, HandlerStacks};
pub use interrupts::Frame;

/// Most cores that are brought up.
pub const MAX_CORES: usize = 256;

/// CR0 of every core: paging, write protection in ring 0 too, native FPU errors, SSE allowed (SDM volume 3,
/// 2.5).
pub const CR0: u32 = 0x8001_0033;
/// CR4 of every core: physical address extension, machine-check exceptions, SSE and its exceptions (SDM
/// volume 3, 2.5).
pub const CR4: u32 = 0x0000_0660;
/// The low half of the EFER register of every core: long mode, no-execute (SDM volume 4, 2.1).
pub const EFER: u32 = 0x0000_0900;

/// What belongs to one core. GS points to it.
#[repr(C)]
struct CoreBlock {
    number: usize,
    descriptors: Descriptors,
}

/// The number of the calling core: 0 for the boot core, and below [`MAX_CORES`]. It costs one load.
#[must_use]
#[inline]
pub fn current() -> usize {
    let number;
    // SAFETY: GS points to the `CoreBlock` of this core from the first lines of `boot::start` (or of
    // `init_core`) on, and the number in it never changes.
    unsafe {
        asm!(
            "mov {}, gs:[{offset}]",
            out(reg) number,
            offset = const offset_of!(CoreBlock, number),
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    number
}

/// Gives the boot core its tables, before there is memory to allocate: its handlers share one stack at first.
pub(crate) fn init_boot_core() {
    static BLOCK: SpinMutex<CoreBlock> = SpinMutex::new(CoreBlock::new(0));
    let block = SpinMutexGuard::leak(BLOCK.lock());
    block.descriptors.set_stacks(HandlerStacks::early());
    load(block);
    interrupts::mask_legacy_controllers();
}

/// Gives the boot core stacks for its handlers that have guard pages.
pub(crate) fn guard_boot_stacks() -> Result<(), FrameError> {
    prepare_core(0).map(init_core)
}

/// The block of a core that has not started. Another core makes it, so that cores which start at the same
/// time do not queue for memory.
pub(crate) struct PreparedCore(&'static mut CoreBlock);

/// Makes ready what the core with this number will need in [`init_core`].
///
/// # Errors
/// When there is not enough memory for the stacks of its handlers.
pub(crate) fn prepare_core(number: usize) -> Result<PreparedCore, FrameError> {
    let mut block = Box::new(CoreBlock::new(number));
    block.descriptors.set_stacks(HandlerStacks::allocate()?);
    Ok(PreparedCore(Box::leak(block)))
}

/// Gives the calling core its number, descriptor tables, handlers and page tables. Its control registers must
/// hold
/// [`CR0`], [`CR4`] and [`EFER`] before it runs any Rust code.
pub(crate) fn init_core(prepared: PreparedCore) {
    load(prepared.0);
    crate::paging::load_on_this_core();
}

fn load(block: &'static mut CoreBlock) {
    let address = VirtAddr::from_ptr(block);
    block.descriptors.load();
    // Loading the segment registers cleared the base of GS.
    GsBase::write(address);
    interrupts::load();
}

impl CoreBlock {
    const fn new(number: usize) -> Self {
        Self { number, descriptors: Descriptors::new() }
    }
}

static HALTING: AtomicBool = AtomicBool::new(false);

/// From now on a non-maskable interrupt means that its core shall stop for good, see
/// [`smp::halt_others`](crate::smp::halt_others).
pub(crate) fn halt_at_next_nmi() {
    HALTING.store(true, Ordering::SeqCst);
}

/// True once [`halt_at_next_nmi`] was called.
fn is_halting() -> bool {
    HALTING.load(Ordering::SeqCst)
}

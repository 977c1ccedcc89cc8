#![allow(unsafe_code)] // Reads the stack of crashed code.
//! The chain of callers, from frame pointers. It believes nothing: the registers it starts from may be
//! garbage.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::boot::Section;
use crate::paging;

/// Callers that are listed at most.
const MAX_DEPTH: usize = 32;

static TEXT_START: AtomicU64 = AtomicU64::new(0);
static TEXT_END: AtomicU64 = AtomicU64::new(0);

/// Notes where code lies: nothing else is a return address.
pub(crate) fn set_text(text: Section) {
    TEXT_START.store(text.start, Ordering::Relaxed);
    TEXT_END.store(text.end, Ordering::Relaxed);
}

/// Prints as `  at 0x1001234` lines: the code at `rip`, then its callers. The host command puts names to
/// them.
pub(crate) struct Backtrace {
    pub(crate) rip: u64,
    pub(crate) rbp: u64,
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = TEXT_START.load(Ordering::Relaxed)..TEXT_END.load(Ordering::Relaxed);
        write!(f, "backtrace:\n  at {:#x}", self.rip)?;
        callers(self.rbp, read_word).take_while(|caller| text.contains(caller)).try_for_each(|caller| {
            // The call comes before the address that it returns to, and may be the last of its function.
            write!(f, "\n  at {:#x}", caller - 1)
        })
    }
}

/// Return addresses, innermost first: `rbp` points to the caller's `rbp`, and above that lies the return
/// address. Frames must go upwards in memory, so that a broken chain ends.
fn callers(rbp: u64, read: impl Fn(u64) -> Option<u64>) -> impl Iterator<Item = u64> {
    let mut frame = rbp;
    let next = move || {
        let caller_frame = read(frame)?;
        let address = read(frame.checked_add(8)?)?;
        // The outermost frame has 0 here: its return address is still good, and then reading stops.
        frame = if caller_frame > frame { caller_frame } else { 0 };
        Some(address)
    };
    core::iter::from_fn(next).take(MAX_DEPTH)
}

/// The word at `address`, if there is one.
fn read_word(address: u64) -> Option<u64> {
    if address == 0 || !address.is_multiple_of(8) || !paging::is_readable(address) {
        return None;
    }
    // SAFETY: the address is mapped and aligned, and a word does not reach past its page. It may be changed
    // by someone else meanwhile, so it is read as volatile; any value will do.
    Some(unsafe { (address as *const u64).read_volatile() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 0x8000;

    fn walk(stack: &[u64], rbp: u64) -> Vec<u64> {
        let read = |address: u64| {
            let offset = address.checked_sub(BASE).filter(|offset| offset.is_multiple_of(8))?;
            stack.get((offset / 8) as usize).copied()
        };
        callers(rbp, read).collect()
    }

    #[test]
    fn follows_the_chain_to_its_end() {
        let stack = [BASE + 24, 0x111, 7, BASE + 40, 0x222, 0, 0x333];
        assert_eq!(walk(&stack, BASE), [0x111, 0x222, 0x333]);
    }

    #[test]
    fn ends_at_a_loop_a_hole_or_garbage() {
        assert_eq!(walk(&[BASE, 0x111], BASE), [0x111]);
        assert_eq!(walk(&[BASE + 16, 0x111, BASE, 0x222], BASE), [0x111, 0x222]);
        assert_eq!(walk(&[u64::MAX, 0x111], BASE), [0x111]);
        assert_eq!(walk(&[0, 0x111], BASE + 3), []);
        assert_eq!(walk(&[0, 0x111], u64::MAX), []);
    }

    proptest! {
        #[test]
        fn always_ends(
            words in prop::collection::vec(prop_oneof![any::<u64>(), BASE..BASE + 512], 64),
            rbp: u64,
        ) {
            prop_assert!(walk(&words, rbp).len() <= MAX_DEPTH);
            prop_assert!(walk(&words, BASE + rbp % 512).len() <= MAX_DEPTH);
        }
    }
}

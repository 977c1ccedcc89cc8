#![allow(unsafe_code)] // Assembly.
//! The C functions on memory: compiled Rust calls them, and without a C library somebody has to bring them.
//! They are in assembly, because a compiler may turn a loop in Rust into a call to the very function that it
//! is the body of.

use core::arch::global_asm;

global_asm!(include_str!("memfuncs.S"), options(att_syntax));

// The names that the compiler knows. A hosted test has a C library.
#[cfg(not(test))]
global_asm!(
    ".macro export name",
    ".global \\name",
    ".set \\name, sluice_\\name",
    ".endm",
    "export memcpy",
    "export memmove",
    "export memset",
    "export memcmp",
    "export bcmp",
    "export strlen",
    // The precompiled `alloc` names these two as well; without unwinding nobody calls them.
    ".global _Unwind_Resume",
    ".global rust_eh_personality",
    ".set _Unwind_Resume, sluice_unwind",
    ".set rust_eh_personality, sluice_unwind",
    "sluice_unwind: ud2",
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    unsafe extern "C" {
        fn sluice_memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
        fn sluice_memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
        fn sluice_memset(to: *mut u8, value: i32, length: usize) -> *mut u8;
        fn sluice_memcmp(a: *const u8, b: *const u8, length: usize) -> i32;
        fn sluice_bcmp(a: *const u8, b: *const u8, length: usize) -> i32;
        fn sluice_strlen(text: *const u8) -> usize;
    }

    const ROOM: usize = 700;

    /// Bytes that all differ from their neighbours.
    fn numbered() -> Vec<u8> {
        (0..ROOM).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    #[test]
    fn copies_every_length_to_every_alignment_and_nothing_beside() {
        let source = numbered();
        for length in (0..=300).chain([511, 512, 513]) {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 9), (8, 16)] {
                let mut target = vec![0xee; ROOM];
                let mut expected = target.clone();
                expected[to..to + length].copy_from_slice(&source[from..from + length]);
                let at = &raw mut target[to];
                // SAFETY: both runs lie in their vectors, which are two.
                let returned = unsafe { sluice_memcpy(at, &raw const source[from], length) };
                assert_eq!(returned, at);
                assert_eq!(target, expected, "{length} bytes from {from} to {to}");
            }
        }
    }

    proptest! {
        #[test]
        fn moves_where_the_two_overlap(from in 0..200_usize, to in 0..200_usize, length in 0..400_usize) {
            let mut bytes = numbered();
            let mut expected = bytes.clone();
            expected.copy_within(from..from + length, to);
            let base = bytes.as_mut_ptr();
            // SAFETY: both runs lie in the vector.
            let returned = unsafe { sluice_memmove(base.add(to), base.add(from), length) };
            prop_assert_eq!(returned as usize - base as usize, to);
            prop_assert_eq!(bytes, expected);
        }

        #[test]
        fn sets_what_it_is_told_and_nothing_beside(at in 0..40_usize, length in 0..400_usize, value: u8) {
            let mut bytes = numbered();
            let mut expected = bytes.clone();
            expected[at..at + length].fill(value);
            let start = &raw mut bytes[at];
            // Only the low byte counts.
            // SAFETY: the run lies in the vector.
            let returned = unsafe { sluice_memset(start, i32::from(value) | 0x5a00, length) };
            prop_assert_eq!(returned, start);
            prop_assert_eq!(bytes, expected);
        }

        #[test]
        fn compares_like_slices(
            a in prop::collection::vec(0..3_u8, 0..40),
            other in prop::collection::vec(0..3_u8, 40),
            same in 0..41_usize,
        ) {
            let mut b = a.clone();
            for (at, value) in b.iter_mut().enumerate().skip(same) {
                *value = other[at].wrapping_mul(127);
            }
            // SAFETY: both have this length.
            let (order, differs) = unsafe {
                (sluice_memcmp(a.as_ptr(), b.as_ptr(), a.len()), sluice_bcmp(a.as_ptr(), b.as_ptr(), a.len()))
            };
            prop_assert_eq!(order.cmp(&0), a.cmp(&b));
            prop_assert_eq!(differs != 0, a != b);
        }

        #[test]
        fn finds_the_end_of_a_string(text in "[a-z]{0,60}") {
            let text = std::ffi::CString::new(text).unwrap();
            // SAFETY: the string ends with a NUL.
            prop_assert_eq!(unsafe { sluice_strlen(text.as_ptr().cast()) }, text.as_bytes().len());
        }
    }
}

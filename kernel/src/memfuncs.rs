#![allow(unsafe_code)] // Assembly.
//! The C functions on memory that compiled Rust calls.

core::arch::global_asm!(include_str!("memfuncs.S"), options(att_syntax));

//! The card as a whole: time, reset, link, interrupts, strictness, faults.

mod faults;
mod interrupts;
mod link;
mod reset;
mod strict;

use std::time::Duration;

use crate::bench::{Bench, MEMORY, REPORT, RING, WHOLE, payload, rx_buffer, tx_ring};
use crate::fault::{Corruption, Fault};
use crate::options::{CardOptions, Model, Module};
use crate::registers::*;
use crate::strict::Rule;

fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(len, 0xa5);
    frame
}

fn rules(bench: &Bench) -> Vec<Rule> {
    bench.card.violations().iter().map(|violation| violation.rule).collect()
}

fn running() -> Bench {
    Bench::running(CardOptions::default(), 1)
}

fn send(bench: &mut Bench, index: u32) {
    bench.put_tx(0, index % RING, &frame(60), WHOLE | REPORT | payload(60));
    bench.write(Register::TDT, 0, (index + 1) % RING);
}

fn is_done(bench: &Bench, index: u32) -> bool {
    bench.ram.word(tx_ring(0) + u64::from(index) * 16 + 8) >> 32 & 1 == 1
}

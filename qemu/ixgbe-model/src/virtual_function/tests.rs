//! A virtual function beside a host, each through its own registers.

use std::time::Duration;

use super::host::{Link, Notice};
use super::*;
use crate::bench::{Bench, REPORT, RING, WHOLE, payload, rx_buffer, rx_ring, tx_ring};
use crate::options::{CardOptions, Model};

const ADDRESSES: [[u8; 6]; 3] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
/// The function under test.
const OURS: usize = 1;

const VFU: u32 = 1 << 2;
const REQ: u32 = 1 << 0;
const ACK: u32 = 1 << 1;
const PFSTS: u32 = 1 << 4;
const PFACK: u32 = 1 << 5;
const RSTI: u32 = 1 << 6;
const RSTD: u32 = 1 << 7;

struct Guest {
    bench: Bench,
    host: HostDriver,
}

impl Guest {
    /// A host with three functions.
    fn new() -> Guest {
        let mut bench = Bench::new(CardOptions::default());
        bench.write(Register::CTRL, 0, CTRL_RST);
        bench.pass(Duration::from_millis(20));
        let host = HostDriver::start(&mut bench.card, &ADDRESSES, Policy::default());
        Guest { bench, host }
    }

    fn read(&mut self, offset: u32) -> u32 {
        self.bench.card.read_virtual(OURS, offset)
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.bench.card.write_virtual(OURS, offset, value);
    }

    /// Sends a message, and has the first words of the answer.
    fn ask<const N: usize>(&mut self, message: &[u32]) -> [u32; N] {
        self.write(VFMAILBOX, VFU);
        assert_eq!(self.read(VFMAILBOX) & VFU, VFU, "the mailbox is ours");
        for (word, value) in (0..).zip(message) {
            self.write(VFMBMEM + 4 * word, *value);
        }
        self.write(VFMAILBOX, REQ);
        self.host.serve(&mut self.bench.card);
        assert_eq!(self.read(VFMAILBOX) & (PFSTS | PFACK), PFSTS | PFACK);
        let answer = std::array::from_fn(|word| self.read(VFMBMEM + 4 * word as u32));
        self.write(VFMAILBOX, ACK);
        answer
    }

    /// Reset, version, one ring each way.
    fn start(&mut self) {
        self.write(VFCTRL, CTRL_RST);
        let [answer, low, high, _] = self.ask(&[0x01]);
        assert_eq!(answer, 0x8000_0001);
        assert_eq!((low.to_le_bytes(), high), ([2, 0, 0, 0], 0x0101));
        assert_eq!(self.ask(&[0x08, 2]), [0xa000_0008, 2]);
        let queue = 2 * OURS;
        for index in 0..RING {
            self.bench.rearm(queue, index);
        }
        for (offset, value) in [
            (0x1000, rx_ring(queue) as u32),
            (0x1008, RING * 16),
            (0x1014, 1 << 25 | 2),
            (0x1028, DCTL_ENABLE),
            (0x1018, RING - 1),
            (0x2000, tx_ring(queue) as u32),
            (0x2008, RING * 16),
            (0x2028, DCTL_ENABLE | 32),
        ] {
            self.write(offset, value);
        }
    }
}

fn to(destination: [u8; 6]) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.resize(60, 0x5a);
    frame
}

fn rules(bench: &Bench) -> Vec<String> {
    bench.card.violations().iter().map(ToString::to_string).collect()
}

#[test]
fn a_function_says_what_it_is() {
    let guest = Guest::new();
    assert_eq!(guest.bench.card.virtual_function_ids().device, 0x10ed);
    let card = crate::Card::new(CardOptions { model: Model::X540, ..CardOptions::default() });
    assert_eq!(card.virtual_function_ids().device, 0x1515);
}

#[test]
fn a_function_waits_for_its_host() {
    let mut bench = Bench::new(CardOptions::default());
    bench.card.set_virtual_functions(2);
    assert_eq!(bench.card.read_virtual(OURS, VFMAILBOX), RSTI);
    bench.write(Register::CTRL_EXT, 0, CTRL_EXT_PFRSTD);
    assert_eq!(bench.card.read_virtual(OURS, VFMAILBOX), RSTD);
    assert_eq!(bench.card.read_virtual(OURS, VFMAILBOX), 0, "cleared by the read");
    bench.write(Register::CTRL, 0, CTRL_RST);
    assert_eq!(bench.card.read_virtual(OURS, VFMAILBOX), RSTI);
}

#[test]
fn frames_go_both_ways() {
    let mut guest = Guest::new();
    guest.start();
    assert_eq!(guest.read(VFLINKS), LINKS_UP | LINKS_SPEED_10G);
    let queue = 2 * OURS;
    guest.bench.cable.to_card.extend([
        to(ADDRESSES[OURS]),
        to([0xff; 6]),
        to(ADDRESSES[0]),
        to([2, 0, 0, 0, 9, 9]),
    ]);
    guest.bench.put_tx(queue, 0, &to([2, 0, 0, 0, 0, 1]), WHOLE | REPORT | payload(60));
    guest.write(0x2018, 1);
    while guest.bench.run() > 0 {}
    assert_eq!(guest.bench.cable.from_card, [(queue as u16, to([2, 0, 0, 0, 0, 1]))]);
    assert_eq!(guest.bench.bytes(rx_buffer(queue, 0), 60), to(ADDRESSES[OURS]));
    assert_eq!(guest.bench.bytes(rx_buffer(queue, 1), 60), to([0xff; 6]));
    assert_eq!(guest.read(0x1010), 2, "not those of others");
    assert_eq!([VFGPRC, VFGORC_LSB, VFGPTC, VFGOTC_LSB].map(|offset| guest.read(offset)), [2, 120, 1, 60]);
    assert_eq!(rules(&guest.bench), [""; 0]);
    assert!(guest.bench.card.unknown().is_empty());
}

#[test]
fn a_function_has_its_own_interrupts() {
    let mut guest = Guest::new();
    guest.start();
    guest.write(0x0120, 0x81 << 8 | 0x80);
    guest.write(0x0140, 0x82);
    guest.write(0x0110, 0b111);
    guest.write(0x0114, 0b111);
    guest.write(0x0108, 0b111);
    guest.bench.cable.to_card.push_back(to(ADDRESSES[OURS]));
    guest.bench.run();
    assert_eq!(guest.bench.card.take_virtual_interrupts(OURS), 0b001);
    assert_eq!(guest.bench.card.take_virtual_interrupts(0), 0);
    guest.bench.cable.to_card.push_back(to(ADDRESSES[OURS]));
    guest.bench.run();
    assert_eq!(guest.bench.card.take_virtual_interrupts(OURS), 0, "masked itself");
    guest.host.announce(&mut guest.bench.card);
    assert_eq!(guest.bench.card.take_virtual_interrupts(OURS), 0b100);
    guest.write(0x0108, 0b001);
    assert_eq!(guest.bench.card.take_virtual_interrupts(OURS), 0b001);
    assert_eq!(guest.read(VFMAILBOX) & PFSTS, PFSTS);
    assert_eq!(guest.read(VFMBMEM), 0x2000_0100);
}

#[test]
fn the_host_grants_and_refuses() {
    let mut guest = Guest::new();
    assert_eq!(guest.ask(&[0x09]), [0x4000_0009], "nothing before a reset");
    guest.start();
    assert_eq!(guest.ask(&[0x09]), [0xa000_0009, 2, 2, 0, 0]);
    assert_eq!(guest.ask(&[0x08, 1]), [0x6000_0008], "a version that it does not have");
    assert_eq!(guest.ask(&[0x77]), [0x6000_0077]);
    assert_eq!(guest.ask(&[0x0c, 2]), [0x6000_000c], "modes came with 1.2");
    assert_eq!(guest.ask(&[0x08, 4]), [0xa000_0008, 4]);
    assert_eq!(guest.ask(&[0x0c, 3]), [0x6000_000c], "an 82599 can't show everything to a function");
    let queue = 2 * OURS;
    for (message, frame) in [
        (vec![0x02, u32::from_le_bytes([2, 0, 0, 0]), 0x0707], to([2, 0, 0, 0, 7, 7])),
        (vec![0x0001_0003, 0x000], to([0x33, 0x33, 0, 0, 0, 0])),
        (vec![0x0c, 2], to([0x33, 0x33, 0, 0, 0, 9])),
    ] {
        let before = guest.read(0x1010);
        assert_eq!(guest.ask::<1>(&message)[0] >> 28, 0xa);
        guest.bench.cable.to_card.push_back(frame.clone());
        guest.bench.run();
        assert_eq!(guest.read(0x1010), before + 1, "{message:x?}");
        assert_eq!(guest.bench.bytes(rx_buffer(queue, before), 60), frame);
    }
}

#[test]
fn a_function_without_an_address_brings_one() {
    let mut guest = Guest::new();
    guest.host.policy.address = AddressFrom::Function;
    assert_eq!(guest.ask(&[0x01]), [0x4000_0001, 0, 0]);
    assert_eq!(guest.ask(&[0x02, u32::from_le_bytes([2, 0, 0, 0]), 0x0909]), [0xa000_0002]);
    guest.bench.start_rx(2 * OURS);
    guest.bench.cable.to_card.push_back(to([2, 0, 0, 0, 9, 9]));
    guest.bench.run();
    assert_eq!(guest.read(0x1010), 1);
}

#[test]
fn a_link_that_is_taken_away_lets_nothing_through() {
    let mut guest = Guest::new();
    guest.start();
    for (link, word) in [(Link::Taken, 0), (Link::Given, 1)] {
        guest.host.serve(&mut guest.bench.card);
        guest.host.set_link(&mut guest.bench.card, OURS, link);
        assert_eq!(guest.read(VFMAILBOX) & PFSTS, PFSTS);
        assert_eq!(guest.read(VFMBMEM), 0x0100, "requests are not welcome");
        assert_eq!(guest.ask(&[0x10]), [0x4000_0010]);
        guest.start();
        guest.ask::<1>(&[0x08, 4]);
        assert_eq!(guest.ask(&[0x10]), [0xa000_0010, word]);
        guest.bench.cable.to_card.push_back(to(ADDRESSES[OURS]));
        guest.bench.run();
        assert_eq!(guest.read(0x1010), word);
    }
}

#[test]
fn a_reset_of_the_host_begins_with_a_flag_and_ends_with_another() {
    let mut guest = Guest::new();
    guest.start();
    guest.host.reset(&mut guest.bench.card, Notice::None);
    guest.host.serve(&mut guest.bench.card);
    assert_eq!(guest.read(VFMAILBOX), RSTI);
    assert_eq!((guest.read(0x1028), guest.read(0x2028)), (0, 0), "queues are off");
    guest.bench.pass(Duration::from_millis(20));
    guest.host.serve(&mut guest.bench.card);
    assert_eq!(guest.read(VFMAILBOX), RSTD | PFSTS);
    assert_eq!(guest.read(VFMBMEM), 0x0100, "requests are not welcome");
    guest.start();
}

#[test]
fn a_host_that_is_away_does_not_answer() {
    let mut guest = Guest::new();
    guest.host.policy.presence = Presence::Absent;
    guest.write(VFMAILBOX, VFU);
    guest.write(VFMBMEM, 1);
    guest.write(VFMAILBOX, REQ);
    guest.host.serve(&mut guest.bench.card);
    assert_eq!(guest.read(VFMAILBOX) & (PFSTS | PFACK), 0);
}

#[test]
fn a_reset_stops_the_function_alone() {
    let mut guest = Guest::new();
    guest.start();
    guest.write(VFCTRL, CTRL_RST);
    assert_eq!((guest.read(0x1028), guest.read(0x2028)), (0, 0));
    assert_eq!(guest.bench.read(Register::PFVFLRE, 0), 1 << OURS);
    guest.host.serve(&mut guest.bench.card);
    assert_eq!(guest.bench.read(Register::PFVFLRE, 0), 0);
    guest.start();
    guest.bench.cable.to_card.push_back(to(ADDRESSES[OURS]));
    assert_eq!(guest.bench.run(), 1);
}

#[test]
fn what_a_function_does_not_have_is_noted() {
    let mut guest = Guest::new();
    guest.write(0x1080, 1);
    guest.read(0x0500);
    let unknown: Vec<u32> = guest.bench.card.unknown().keys().copied().collect();
    assert_eq!(unknown, [VIRTUAL_FUNCTION_BASE | 0x0500, VIRTUAL_FUNCTION_BASE | 0x1080]);
}

#[test]
fn functions_reach_each_other_without_a_cable() {
    let mut guest = Guest::new();
    guest.start();
    let (own, other) = (2 * OURS, 0);
    // The neighbour is set up by the host's hand.
    guest.host.serve(&mut guest.bench.card);
    guest.bench.write(Register::VFRE, 0, 0b11);
    guest.bench.write(Register::RAL, 1, u32::from_le_bytes([2, 0, 0, 0]));
    guest.bench.write(Register::RAH, 1, RAH_AV | 0x0001);
    guest.bench.write(Register::MPSAR, 2, 1);
    guest.bench.write(Register::VMOLR, 0, 1 << 24 | 1 << 27);
    guest.bench.start_rx(other);
    for (index, destination) in [ADDRESSES[0], [0xff; 6], ADDRESSES[OURS]].into_iter().enumerate() {
        guest.bench.put_tx(own, index as u32, &to(destination), WHOLE | REPORT | payload(60));
    }
    guest.write(0x2018, 3);
    while guest.bench.run() > 0 {}
    assert_eq!(guest.bench.bytes(rx_buffer(other, 0), 60), to(ADDRESSES[0]));
    assert_eq!(guest.bench.bytes(rx_buffer(other, 1), 60), to([0xff; 6]));
    let sent: Vec<_> = guest.bench.cable.from_card.iter().map(|(_, frame)| frame.clone()).collect();
    assert_eq!(sent, [to([0xff; 6]), to(ADDRESSES[OURS])], "the cable has what is not for a neighbour alone");
    assert_eq!(guest.read(0x1010), 0, "and nothing comes back");
}

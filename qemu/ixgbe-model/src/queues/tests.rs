//! Both engines, driven through registers and memory as a driver does.

use std::time::Duration;

use crate::bench::{Bench, REPORT, RING, WHOLE, payload, rx_buffer, tx_ring};
use crate::options::{CardOptions, Overrun};
use crate::registers::*;
use crate::strict::Rule;

const DD: u64 = 1;
const EOP: u64 = 2;

fn frame(tag: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0x82, 0x59, 0x90, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(len, tag);
    frame
}

fn rules(bench: &Bench) -> Vec<Rule> {
    bench.card.violations().iter().map(|violation| violation.rule).collect()
}

fn running() -> Bench {
    Bench::running(CardOptions::default(), 1)
}

#[test]
fn the_usual_way_to_start_breaks_no_rule() {
    let mut bench = running();
    assert_eq!(bench.run(), 0);
    assert_eq!(rules(&bench), []);
    assert!(bench.card.unknown().is_empty());
}

#[test]
fn a_frame_that_arrives_is_in_memory() {
    let mut bench = running();
    for tag in 1..=3 {
        bench.cable.to_card.push_back(frame(tag, 60 + usize::from(tag)));
    }
    assert_eq!(bench.run(), 3);
    for (index, tag) in (0..).zip(1u8..=3) {
        let (_, high) = bench.rx_descriptor(0, index);
        assert_eq!(high & (DD | EOP), DD | EOP);
        assert_eq!(high >> 32 & 0xffff, 60 + u64::from(tag));
        assert_eq!(
            bench.bytes(rx_buffer(0, index), 60 + usize::from(tag)),
            frame(tag, 60 + usize::from(tag))
        );
    }
    assert_eq!(bench.rx_descriptor(0, 3).1 & DD, 0);
    assert_eq!(bench.read(Register::GPRC, 0), 3);
    assert_eq!(bench.read(Register::RDH, 0), 3);
    assert_eq!(rules(&bench), []);
}

#[test]
fn a_frame_that_is_sent_is_on_the_wire() {
    let mut bench = running();
    bench.put_tx(0, 0, &frame(1, 100), WHOLE | payload(100));
    bench.put_tx(0, 1, &frame(2, 17), WHOLE | REPORT | payload(17));
    bench.write(Register::TDT, 0, 2);
    assert_eq!(bench.run(), 2);
    let mut padded = frame(2, 17);
    padded.resize(60, 0);
    assert_eq!(bench.cable.from_card, [(0, frame(1, 100)), (0, padded)]);
    assert_eq!(bench.ram.word(tx_ring(0) + 8) & 1 << 32, 0, "DD where RS was not set");
    assert_eq!(bench.ram.word(tx_ring(0) + 24), 1 << 32, "DD where RS was set");
    assert_eq!(bench.read(Register::TDH, 0), 2);
    assert_eq!(bench.read(Register::GPTC, 0), 2);
    assert_eq!(rules(&bench), []);
}

#[test]
fn rings_wrap() {
    let mut bench = running();
    for round in 0..5 * RING {
        let index = round % RING;
        bench.cable.to_card.push_back(frame(round as u8, 64));
        bench.put_tx(0, index, &frame(round as u8, 64), WHOLE | REPORT | payload(64));
        bench.write(Register::TDT, 0, (index + 1) % RING);
        assert_eq!(bench.run(), 2);
        assert_eq!(bench.bytes(rx_buffer(0, index), 64), frame(round as u8, 64));
        bench.rearm(0, index);
        bench.write(Register::RDT, 0, index);
    }
    assert_eq!(bench.cable.from_card.len(), 5 * RING as usize);
    assert_eq!(rules(&bench), []);
}

#[test]
fn a_long_frame_takes_several_descriptors() {
    let mut bench = running();
    bench.write(Register::HLREG0, 0, HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_JUMBOEN);
    bench.write(Register::MAXFRS, 0, 9018 << 16);
    bench.cable.to_card.push_back(frame(7, 9014));
    bench.cable.to_card.push_back(frame(8, 9015));
    bench.run();
    let ends: Vec<u64> = (0..5).map(|index| bench.rx_descriptor(0, index).1 & (DD | EOP)).collect();
    assert_eq!(ends, [DD, DD, DD, DD, DD | EOP]);
    let lens: u64 = (0..5).map(|index| bench.rx_descriptor(0, index).1 >> 32 & 0xffff).sum();
    assert_eq!(lens, 9014);
    let data: Vec<u8> =
        (0..5u32).flat_map(|index| bench.bytes(rx_buffer(0, index), 2048)).take(9014).collect();
    assert_eq!(data, frame(7, 9014));
    assert_eq!(bench.read(Register::ROC, 0), 1, "one byte too many");
}

#[test]
fn a_frame_may_be_sent_from_several_buffers() {
    let mut bench = running();
    let data = WHOLE & !(1 << 24);
    let whole = frame(9, 150);
    bench.put_tx(0, 0, &whole[..50], data | payload(150));
    bench.put_tx(0, 1, &whole[50..51], data);
    bench.put_tx(0, 2, &whole[51..], WHOLE | REPORT);
    bench.write(Register::TDT, 0, 2);
    assert_eq!(bench.run(), 0, "the end is missing");
    bench.write(Register::TDT, 0, 3);
    assert_eq!(bench.run(), 1);
    assert_eq!(bench.cable.from_card, [(0, whole)]);
    assert_eq!(rules(&bench), []);
}

#[test]
fn the_head_may_be_written_to_memory_instead() {
    let mut bench = Bench::new(CardOptions::default());
    let place = rx_buffer(0, 0);
    bench.start(1);
    bench.write(Register::TXDCTL, 0, 0);
    bench.write(Register::TDWBAL, 0, place as u32 | TDWBAL_HEAD_WB_EN);
    bench.write(Register::TXDCTL, 0, DCTL_ENABLE);
    bench.put_tx(0, 0, &frame(1, 60), WHOLE | REPORT | payload(60));
    bench.write(Register::TDT, 0, 1);
    bench.run();
    assert_eq!(bench.ram.word(place) as u32, 1);
    assert_eq!(bench.ram.word(tx_ring(0) + 8) >> 32 & 1, 0, "no DD");
}

#[test]
fn frames_that_do_not_pass_do_not_hold_up_those_that_do() {
    let mut bench = running();
    bench.write(Register::FCTRL, 0, FCTRL_BAM);
    for tag in 0..10 {
        let mut frame = frame(tag, 60);
        if tag == 9 {
            frame[..6].fill(0xff);
        }
        frame[5] |= 0x80;
        bench.cable.to_card.push_back(frame);
    }
    assert_eq!(bench.run(), 10);
    assert_eq!((bench.read(Register::TPR, 0), bench.read(Register::GPRC, 0)), (10, 1));
    assert_eq!(bench.bytes(rx_buffer(0, 0), 60)[59], 9);
}

#[test]
fn a_queue_that_is_full_blocks_the_others_unless_it_drops() {
    for drop in [false, true] {
        let mut bench = running();
        let srrctl = bench.read(Register::SRRCTL, 0);
        bench.write(Register::SRRCTL, 0, srrctl | if drop { SRRCTL_DROP_EN } else { 0 });
        (0..RING + 9).for_each(|tag| bench.cable.to_card.push_back(frame(tag as u8, 60)));
        while bench.run() > 0 {}
        // The tail is one before the head: 63 descriptors are the card's.
        let lost = if drop { 10 } else { 0 };
        assert_eq!(bench.read(Register::QPRDC, 0), lost);
        assert_eq!(bench.read(Register::QPRC, 0), RING - 1);
        (0..RING - 1).for_each(|index| bench.rearm(0, index));
        bench.write(Register::RDT, 0, RING - 2);
        while bench.run() > 0 {}
        assert_eq!(bench.read(Register::QPRC, 0), 10 - lost);
        assert_eq!(rules(&bench), []);
    }
}

#[test]
fn a_ring_that_drops_waits_for_a_tail_that_may_be_on_its_way() {
    let write_delay = Duration::from_millis(100);
    let mut bench = Bench::running(CardOptions { write_delay, ..CardOptions::default() }, 1);
    let srrctl = bench.read(Register::SRRCTL, 0);
    bench.write(Register::SRRCTL, 0, srrctl | SRRCTL_DROP_EN);
    let mut lost_of = |frames: u32, late: Duration| {
        (0..frames).for_each(|tag| bench.cable.to_card.push_back(frame(tag as u8, 60)));
        while bench.run() > 0 {}
        bench.pass(late);
        while bench.run() > 0 {}
        (0..RING).for_each(|index| bench.rearm(0, index));
        let head = bench.read(Register::RDH, 0);
        bench.write(Register::RDT, 0, (head + RING - 1) % RING);
        while bench.run() > 0 {}
        (bench.read(Register::QPRDC, 0), bench.read(Register::QPRC, 0))
    };
    assert_eq!(lost_of(RING + 9, Duration::from_millis(99)), (0, RING + 9));
    // The tail was written with ten frames taken.
    assert_eq!(lost_of(RING + 9, Duration::from_millis(100)), (20, RING - 11));
    assert_eq!(lost_of(RING - 1, Duration::from_millis(100)), (0, RING - 1), "it has begun anew");
}

#[test]
fn a_full_packet_buffer_misses_frames_where_nobody_holds_them_back() {
    let mut bench = Bench::running(CardOptions { overrun: Overrun::Miss, ..CardOptions::default() }, 1);
    bench.write(Register::RXPBSIZE, 0, 10 * 1024);
    (0..RING - 1).for_each(|_| bench.cable.to_card.push_back(frame(1, 60)));
    bench.run();
    (0..20).for_each(|_| bench.cable.to_card.push_back(frame(2, 1024)));
    (0..30).for_each(|_| {
        bench.run();
    });
    assert_eq!(bench.read(Register::MPC, 0), 10);
    assert!(bench.cable.to_card.is_empty());
}

#[test]
fn nothing_moves_without_a_link_or_with_the_path_stopped() {
    let mut bench = running();
    bench.card.inject(crate::Fault::LinkDown);
    bench.cable.to_card.push_back(frame(1, 60));
    bench.put_tx(0, 0, &frame(1, 60), WHOLE | REPORT | payload(60));
    bench.write(Register::TDT, 0, 1);
    assert_eq!(bench.run(), 0);
    bench.card.inject(crate::Fault::LinkUp);
    bench.pass(Duration::from_millis(10));
    for register in [Register::SECRXCTRL, Register::SECTXCTRL] {
        bench.write(register, 0, SEC_PATH_DIS);
    }
    assert_eq!(bench.run(), 0);
    for register in [Register::SECRXCTRL, Register::SECTXCTRL] {
        bench.write(register, 0, 0);
    }
    assert_eq!(bench.run(), 2);
}

#[test]
fn what_is_sent_in_loop_back_mode_is_received() {
    let mut bench = running();
    bench.write(Register::HLREG0, 0, HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_LPBK);
    bench.put_tx(0, 0, &frame(5, 80), WHOLE | REPORT | payload(80));
    bench.write(Register::TDT, 0, 1);
    assert_eq!(bench.run(), 2);
    assert!(bench.cable.from_card.is_empty());
    assert_eq!(bench.bytes(rx_buffer(0, 0), 80), frame(5, 80));
}

#[test]
fn a_loop_back_that_nobody_empties_has_an_end() {
    let mut bench = running();
    bench.write(Register::HLREG0, 0, HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_LPBK);
    bench.write(Register::RXPBSIZE, 0, 64 * 1024);
    bench.write(Register::RXCTRL, 0, 0);
    for round in 0..200 {
        bench.put_tx(0, round % RING, &frame(5, 1000), WHOLE | REPORT | payload(1000));
        bench.write(Register::TDT, 0, (round + 1) % RING);
        bench.run();
    }
    assert_eq!(bench.read(Register::MPC, 0), 200 - 64 * 1024 / 1000);
}

#[test]
fn the_crc_is_the_frame_s_where_it_is_not_stripped() {
    let mut bench = running();
    bench.write(Register::HLREG0, 0, HLREG0_TXCRCEN);
    bench.cable.to_card.push_back(b"123456789".to_vec());
    bench.run();
    assert_eq!(bench.rx_descriptor(0, 0).1 >> 32 & 0xffff, 64);
    let bytes = bench.bytes(rx_buffer(0, 0), 64);
    // The residue of CRC-32 over a frame and its CRC.
    assert_eq!(crc32fast::hash(&bytes), 0x2144_df1c);
}

#[test]
fn tags_are_stripped_and_inserted_on_request() {
    let mut bench = running();
    let mut tagged = frame(3, 100);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x64]);
    bench.cable.to_card.push_back(tagged.clone());
    bench.run();
    assert_eq!(bench.bytes(rx_buffer(0, 0), 104), tagged, "left alone");
    bench.write(Register::RXDCTL, 0, DCTL_ENABLE | RXDCTL_VME);
    bench.cable.to_card.push_back(tagged.clone());
    bench.run();
    let (_, high) = bench.rx_descriptor(0, 1);
    assert_eq!((high >> 48, high >> 3 & 1, high >> 32 & 0xffff), (0x2064, 1, 100));
    assert_eq!(bench.bytes(rx_buffer(0, 1), 100), frame(3, 100));

    // A context descriptor with the tag, then the frame with VLE and CC.
    bench.ram.set_word(tx_ring(0), 0x2064 << 16 | 14 << 9);
    bench.ram.set_word(tx_ring(0) + 8, 1 << 29 | 2 << 20);
    bench.put_tx(0, 1, &frame(3, 100), WHOLE | REPORT | payload(100) | 1 << 30 | 1 << 39);
    bench.write(Register::TDT, 0, 2);
    bench.run();
    assert_eq!(bench.cable.from_card, [(0, tagged)]);
    assert_eq!(rules(&bench), []);
}

#[test]
fn legacy_descriptors_are_understood() {
    let mut bench = running();
    let command = 1 << 24 | 1 << 25 | 1 << 27;
    bench.put_tx(0, 0, &frame(4, 70), command);
    bench.write(Register::TDT, 0, 1);
    bench.run();
    assert_eq!(bench.cable.from_card, [(0, frame(4, 70))]);
    assert_eq!(bench.ram.word(tx_ring(0) + 8) >> 32 & 1, 1);
    assert_eq!(rules(&bench), []);
}

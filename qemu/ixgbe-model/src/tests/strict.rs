//! Every rule of [`Rule`], broken once.

use super::*;

/// A card that was reset, and nothing more.
fn fresh() -> Bench {
    let mut bench = Bench::new(CardOptions::default());
    bench.pass(Duration::from_millis(10));
    bench
}

#[test]
fn rings_are_programmed_before_they_are_enabled() {
    let mut bench = fresh();
    bench.write(Register::RXDCTL, 0, DCTL_ENABLE);
    bench.write(Register::DMATXCTL, 0, DMATXCTL_TE);
    bench.write(Register::TDBAL, 1, MEMORY as u32);
    bench.write(Register::TXDCTL, 1, DCTL_ENABLE);
    assert_eq!(rules(&bench), [Rule::EnabledUnprogrammed; 2]);
    assert_eq!(bench.card.violations()[1].to_string(), "EnabledUnprogrammed: TXDCTL[1] = 0x100000 at 10ms");
}

#[test]
fn the_transmitter_is_on_before_its_rings() {
    let mut bench = fresh();
    bench.write(Register::TDBAL, 0, MEMORY as u32);
    bench.write(Register::TDLEN, 0, 1024);
    bench.write(Register::TXDCTL, 0, DCTL_ENABLE);
    assert_eq!(rules(&bench), [Rule::EnabledBeforeTransmitter]);
}

#[test]
fn tails_come_after_enable_and_stay_inside() {
    let mut bench = fresh();
    bench.write(Register::RDT, 0, 5);
    bench.write(Register::TDT, 0, 5);
    assert_eq!(rules(&bench), [Rule::TailBeforeEnable; 2]);
    let mut bench = running();
    bench.write(Register::RDT, 0, RING);
    bench.write(Register::TDT, 0, RING);
    assert_eq!(rules(&bench), [Rule::TailOutsideRing; 2]);
    bench.cable.to_card.push_back(frame(60));
    bench.run();
    assert_eq!(bench.rx_descriptor(0, 0).1 & 1, 0, "the ring stands still");
}

#[test]
fn a_head_outside_its_ring_moves_nothing() {
    let mut bench = Bench::new(CardOptions::default());
    bench.start(1);
    for (control, head) in [(Register::RXDCTL, Register::RDH), (Register::TXDCTL, Register::TDH)] {
        bench.write(control, 0, 0);
        bench.write(head, 0, 5000);
        bench.write(control, 0, DCTL_ENABLE);
    }
    bench.cable.to_card.push_back(frame(60));
    send(&mut bench, 0);
    bench.run();
    assert!(bench.cable.from_card.is_empty());
    assert_eq!(bench.read(Register::QPRC, 0), 0);
    assert_eq!(rules(&bench), [Rule::HeadOutsideRing; 2]);
}

#[test]
fn the_mode_has_the_queues() {
    let mut bench = fresh();
    bench.write(Register::DMATXCTL, 0, DMATXCTL_TE);
    for (mtqc, broken) in [(0x0, true), (0xd, false)] {
        bench.write(Register::RTTDCS, 0, RTTDCS_ARBDIS);
        bench.write(Register::MTQC, 0, mtqc);
        bench.write(Register::TXDCTL, 64, 0);
        bench.write(Register::TDBAL, 64, MEMORY as u32);
        bench.write(Register::TDLEN, 64, 1024);
        let before = rules(&bench).len();
        bench.write(Register::TXDCTL, 64, DCTL_ENABLE);
        let expected = if broken { &[Rule::QueueOutsideMode][..] } else { &[] };
        assert_eq!(&rules(&bench)[before..], expected, "MTQC {mtqc:#x}");
    }
}

#[test]
fn a_class_that_sends_has_a_packet_buffer() {
    let mut bench = fresh();
    bench.write(Register::DMATXCTL, 0, DMATXCTL_TE);
    bench.write(Register::RTTDCS, 0, RTTDCS_ARBDIS);
    bench.write(Register::TXPBSIZE, 1, 0);
    // Four classes: 64 queues, 32, 16 and 16. Eight: 32, 32, 16, 16, 8, 8, 8 and 8.
    for (mtqc, queue, broken) in
        [(0x9, 63, false), (0x9, 64, true), (0x9, 96, false), (0xd, 32, true), (0xd, 64, false)]
    {
        bench.write(Register::MTQC, 0, mtqc);
        bench.write(Register::TXDCTL, queue, 0);
        bench.write(Register::TDBAL, queue, MEMORY as u32);
        bench.write(Register::TDLEN, queue, 1024);
        let before = rules(&bench).len();
        bench.write(Register::TXDCTL, queue, DCTL_ENABLE);
        let expected = if broken { &[Rule::ClassWithoutBuffer][..] } else { &[] };
        assert_eq!(&rules(&bench)[before..], expected, "MTQC {mtqc:#x}, queue {queue}");
    }
}

#[test]
fn receive_buffers_have_a_size() {
    let mut bench = fresh();
    bench.write(Register::RDBAL, 0, MEMORY as u32);
    bench.write(Register::RDLEN, 0, 1024);
    for (srrctl, rule) in [(1 << 25, Rule::EnabledUnprogrammed), (2 << 25 | 2, Rule::NotModelled)] {
        bench.write(Register::RXDCTL, 0, 0);
        bench.write(Register::SRRCTL, 0, srrctl);
        bench.write(Register::RXDCTL, 0, DCTL_ENABLE);
        assert_eq!(rules(&bench).last(), Some(&rule));
    }
}

#[test]
fn an_enabled_ring_is_not_changed() {
    let mut bench = running();
    bench.write(Register::RDBAL, 0, 0x1000);
    bench.write(Register::TDLEN, 0, 1024 + 128);
    bench.write(Register::SRRCTL, 0, 1 << 25 | 4);
    assert_eq!(rules(&bench), [Rule::ChangedWhileEnabled; 3]);
}

#[test]
fn thresholds_fit_in_the_cache() {
    let mut bench = running();
    bench.write(Register::TXDCTL, 0, DCTL_ENABLE | 36 | 4 << 16);
    assert_eq!(rules(&bench), []);
    bench.write(Register::TXDCTL, 0, DCTL_ENABLE | 36 | 5 << 16);
    assert_eq!(rules(&bench), [Rule::ThresholdsTooHigh]);
}

#[test]
fn descriptors_stay_in_the_memory_that_was_handed_over() {
    let mut bench = running();
    bench.put_tx(0, 0, &frame(60), WHOLE | payload(60));
    bench.ram.set_word(tx_ring(0), 0x10);
    bench.write(Register::TDT, 0, 1);
    bench.ram.set_word(MEMORY, 0x20);
    bench.cable.to_card.push_back(frame(60));
    bench.run();
    let seen: Vec<_> = bench.card.violations().iter().map(|v| (v.rule, v.place.register, v.value)).collect();
    assert_eq!(
        seen,
        [(Rule::OutsideMemory, Register::TDT, 0x10), (Rule::OutsideMemory, Register::RDT, 0x20)]
    );
}

#[test]
fn memory_is_not_taken_from_under_a_ring() {
    let mut bench = running();
    bench.card.memory_withdrawn(0..MEMORY);
    assert_eq!(rules(&bench), []);
    bench.card.memory_withdrawn(MEMORY + 512..MEMORY + 4096);
    assert_eq!(rules(&bench), [Rule::RingFreedWhileEnabled]);
    bench.write(Register::TXDCTL, 0, 0);
    bench.card.memory_withdrawn(tx_ring(0)..tx_ring(0) + 4096);
    assert_eq!(rules(&bench).len(), 1);
}

#[test]
fn the_receiver_is_switched_on_with_the_path_stopped() {
    let mut bench = fresh();
    bench.write(Register::RDRXCTL, 0, RDRXCTL_CRC_STRIP);
    bench.write(Register::RXCTRL, 0, RXCTRL_RXEN);
    assert_eq!(rules(&bench), [Rule::ReceiverEnabledUnderTraffic]);
}

#[test]
fn both_switches_of_the_crc_agree() {
    let mut bench = fresh();
    bench.write(Register::SECRXCTRL, 0, SEC_PATH_DIS);
    bench.write(Register::RXCTRL, 0, RXCTRL_RXEN);
    assert_eq!(rules(&bench), [Rule::CrcStripDiffers], "HLREG0 strips by default, RDRXCTL does not");
}

#[test]
fn reserved_bits_stay_zero() {
    let mut bench = fresh();
    bench.write(Register::RDBAL, 0, 0x1040);
    bench.write(Register::IVAR, 0, 0x40);
    assert_eq!(rules(&bench), [Rule::ReservedBits; 2]);
}

#[test]
fn queues_are_regrouped_with_the_arbiter_off() {
    let mut bench = fresh();
    bench.write(Register::RTTDCS, 0, RTTDCS_ARBDIS);
    bench.write(Register::MTQC, 0, 0xa);
    assert_eq!(rules(&bench), []);
    bench.write(Register::RTTDCS, 0, 0);
    bench.write(Register::MTQC, 0, 0);
    assert_eq!(rules(&bench), [Rule::MtqcWhileArbitrating]);
}

#[test]
fn a_transmit_descriptor_makes_sense() {
    for (len, command, rule) in [
        (60, WHOLE | payload(61), Rule::PayloadLength),
        (16, WHOLE | payload(16), Rule::FrameLength),
        (60, WHOLE & !(1 << 25) | payload(60), Rule::FrameWithoutCrc),
        (60, WHOLE | payload(60) | 1 << 40, Rule::MissingContext),
        (60, WHOLE ^ 1 << 20 ^ 2 << 20 | payload(60), Rule::BadTransmitDescriptor),
        (0, WHOLE, Rule::BadTransmitDescriptor),
        (60, WHOLE & !(1 << 24) | REPORT | payload(60), Rule::StatusBeforeEnd),
    ] {
        let mut bench = running();
        bench.put_tx(0, 0, &frame(60)[..len], command);
        bench.write(Register::TDT, 0, 1);
        bench.run();
        assert_eq!(rules(&bench), [rule]);
    }
}

#[test]
fn a_frame_has_forty_descriptors_at_most() {
    let mut bench = running();
    for index in 0..41 {
        bench.put_tx(0, index, &[0xa5; 20], WHOLE & !(1 << 24) | payload(820));
    }
    bench.write(Register::TDT, 0, 40);
    bench.run();
    assert_eq!(rules(&bench), []);
    bench.write(Register::TDT, 0, 41);
    bench.run();
    assert_eq!(rules(&bench), [Rule::TooManyDescriptors]);
}

#[test]
fn what_the_model_does_not_know_is_noted() {
    let mut bench = fresh();
    assert_eq!(bench.card.read(0x0000c), 0);
    bench.card.write(0x7f000, 5);
    bench.card.write(0x7f000, 6);
    let unknown: Vec<_> =
        bench.card.unknown().iter().map(|(o, a)| (*o, a.reads, a.writes, a.last_written)).collect();
    assert_eq!(unknown, [(0x0000c, 1, 0, 0), (0x7f000, 0, 2, 6)]);
}

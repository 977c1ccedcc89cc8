//! The card as a whole: time, reset, link, interrupts, strictness, faults.

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

mod reset {
    use super::*;

    #[test]
    fn it_ends_by_itself_and_then_the_card_is_ready() {
        let mut bench = Bench::new(CardOptions::default());
        bench.write(Register::CTRL, 0, CTRL_RST);
        assert_eq!(bench.read(Register::CTRL, 0) & CTRL_RST, CTRL_RST);
        assert_eq!(bench.read(Register::EEC, 0) & EEC_AUTO_RD, 0);
        bench.pass(Duration::from_micros(10));
        assert_eq!(bench.read(Register::CTRL, 0) & CTRL_RST, 0);
        assert_eq!(bench.read(Register::RDRXCTL, 0) & RDRXCTL_DMAIDONE, 0);
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.read(Register::EEC, 0) & EEC_AUTO_RD, EEC_AUTO_RD);
        assert_eq!(bench.read(Register::RDRXCTL, 0) & RDRXCTL_DMAIDONE, RDRXCTL_DMAIDONE);
    }

    #[test]
    fn it_forgets_what_was_set_up_and_keeps_the_memories() {
        let mut bench = running();
        let random = bench.read(Register::MTA, 5);
        bench.write(Register::RETA, 3, 0x0102_0304);
        bench.write(Register::RAL, 0, 0x1111_1111);
        bench.cable.to_card.push_back(frame(60));
        bench.run();
        bench.write(Register::CTRL, 0, CTRL_LRST);
        for (register, index) in
            [(Register::RXDCTL, 0), (Register::TDBAL, 0), (Register::FCTRL, 0), (Register::GPRC, 0)]
        {
            assert_eq!(bench.read(register, index), 0, "{register:?}");
        }
        assert_eq!(bench.read(Register::RAL, 0).to_le_bytes(), [0x02, 0x82, 0x59, 0x90], "from the EEPROM");
        assert_eq!(bench.read(Register::RETA, 3), 0x0102_0304);
        assert_eq!(bench.read(Register::MTA, 5), random);
        assert_ne!(random, 0, "what is in there after power-up is anybody's guess");
    }

    #[test]
    fn a_write_during_it_is_lost() {
        let mut bench = Bench::new(CardOptions::default());
        bench.write(Register::CTRL, 0, CTRL_RST);
        bench.write(Register::FCTRL, 0, FCTRL_BAM);
        assert_eq!(rules(&bench), [Rule::AccessDuringReset]);
        bench.pass(Duration::from_millis(10));
        assert_eq!(bench.read(Register::FCTRL, 0), 0);
    }

    #[test]
    fn a_card_that_is_reset_again_and_again_works() {
        let mut bench = Bench::new(CardOptions::default());
        for _ in 0..100 {
            bench.start(1);
            bench.cable.to_card.push_back(frame(60));
            send(&mut bench, 0);
            assert_eq!(bench.run(), 2);
        }
        assert_eq!(rules(&bench), []);
    }

    #[test]
    fn the_bus_is_left_alone_on_request() {
        let mut bench = running();
        bench.write(Register::CTRL, 0, CTRL_PCIE_MASTER_DISABLE);
        assert_eq!(bench.read(Register::STATUS, 0) & STATUS_MASTER_ENABLED, 0);
        bench.cable.to_card.push_back(frame(60));
        assert_eq!(bench.run(), 0);
    }
}

mod link {
    use super::*;

    #[test]
    fn it_comes_up_by_itself_and_tells() {
        let mut bench = Bench::new(CardOptions::default());
        assert_eq!(bench.read(Register::LINKS, 0), 0);
        bench.pass(Duration::from_millis(10));
        assert_eq!(bench.read(Register::LINKS, 0), LINKS_UP | LINKS_SPEED_10G);
        assert_eq!(bench.read(Register::EICR, 0), EICR_LSC);
        assert_eq!(bench.read(Register::EICR, 0), 0, "cleared by the read");
    }

    #[test]
    fn a_restart_takes_it_away_for_a_while() {
        let mut bench = running();
        bench.write(Register::AUTOC, 0, 3 << 13 | AUTOC_RESTART_AN);
        assert_eq!(bench.read(Register::AUTOC, 0), 3 << 13);
        assert_eq!(bench.read(Register::LINKS, 0) & LINKS_UP, 0);
        bench.pass(Duration::from_millis(10));
        assert_eq!(bench.read(Register::LINKS, 0) & LINKS_UP, LINKS_UP);
    }

    #[test]
    fn it_needs_a_cable_a_module_and_a_laser() {
        for (options, expected) in [
            (CardOptions { cable: false, ..CardOptions::default() }, 0),
            (CardOptions { module: Module::Empty, ..CardOptions::default() }, 0),
            (CardOptions { module: Module::Empty, model: Model::X540, ..CardOptions::default() }, LINKS_UP),
        ] {
            let mut bench = Bench::new(options);
            bench.pass(Duration::from_millis(10));
            assert_eq!(bench.read(Register::LINKS, 0) & LINKS_UP, expected);
        }
        let mut bench = running();
        bench.write(Register::ESDP, 0, ESDP_SDP3);
        assert_eq!(bench.read(Register::LINKS, 0) & LINKS_UP, 0);
    }

    #[test]
    fn a_thousand_flaps_are_told_and_harm_nothing() {
        let mut bench = running();
        bench.read(Register::EICR, 0);
        for _ in 0..1000 {
            for (fault, up) in [(Fault::LinkDown, 0), (Fault::LinkUp, LINKS_UP)] {
                bench.card.inject(fault);
                bench.pass(Duration::from_millis(6));
                assert_eq!(bench.read(Register::LINKS, 0) & LINKS_UP, up);
                assert_eq!(bench.read(Register::EICR, 0), EICR_LSC);
            }
        }
        send(&mut bench, 0);
        assert_eq!(bench.run(), 1);
    }

    #[test]
    fn it_may_take_a_second_reset() {
        let mut bench = Bench::new(CardOptions::default());
        bench.card.inject(Fault::NeedsSecondReset);
        for up in [0, LINKS_UP] {
            bench.write(Register::CTRL, 0, CTRL_RST);
            bench.pass(Duration::from_secs(2));
            assert_eq!(bench.read(Register::LINKS, 0) & LINKS_UP, up);
        }
    }
}

mod interrupts {
    use super::*;

    /// Queue 0 receives by vector 3 and transmits by vector 40; everything else is vector 1.
    fn msix() -> Bench {
        let mut bench = running();
        bench.read(Register::EICR, 0);
        bench.write(Register::GPIE, 0, GPIE_MULTIPLE_MSIX | GPIE_OCD | GPIE_EIAME | GPIE_PBA_SUPPORT);
        bench.write(Register::IVAR, 0, 0x83 | 0xa8 << 8);
        bench.write(Register::IVAR_MISC, 0, 0x81 << 8);
        bench.write(Register::EIAC, 0, EICR_RTX_QUEUE);
        bench
    }

    fn receive(bench: &mut Bench) {
        bench.cable.to_card.push_back(frame(60));
        bench.run();
    }

    #[test]
    fn a_queue_has_the_vector_that_ivar_names() {
        let mut bench = msix();
        (0..2).for_each(|word| bench.write(Register::EIMS_EX, word, !0));
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 1 << 3);
        send(&mut bench, 0);
        bench.run();
        assert_eq!(bench.card.take_interrupts(), 1 << 40);
        assert_eq!(bench.card.take_interrupts(), 0);
        assert_eq!(bench.read(Register::EICR, 0), 0, "cleared when sent");
    }

    #[test]
    fn what_is_masked_waits() {
        let mut bench = msix();
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 0);
        bench.write(Register::EIMS, 0, 1 << 3);
        assert_eq!(bench.read(Register::EIMS, 0), 1 << 3);
        assert_eq!(bench.card.take_interrupts(), 1 << 3);
        bench.write(Register::EIMC_EX, 0, 1 << 3);
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 0);
    }

    #[test]
    fn a_vector_masks_itself_where_eiam_says_so() {
        let mut bench = msix();
        bench.write(Register::EIAM_EX, 0, 1 << 3);
        bench.write(Register::EIMS_EX, 0, 1 << 3);
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 1 << 3);
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 0);
        bench.write(Register::EIMS_EX, 0, 1 << 3);
        assert_eq!(bench.card.take_interrupts(), 1 << 3, "the frame that came meanwhile");
    }

    #[test]
    fn two_messages_are_apart_as_eitr_says() {
        let mut bench = msix();
        bench.write(Register::EIMS_EX, 0, 1 << 3);
        bench.write(Register::EITR, 3, 100 << 3);
        bench.pass(Duration::from_millis(1));
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 1 << 3);
        receive(&mut bench);
        bench.pass(Duration::from_micros(200));
        assert_eq!(bench.card.take_interrupts(), 0);
        bench.pass(Duration::from_micros(5));
        assert_eq!(bench.card.take_interrupts(), 1 << 3);
    }

    #[test]
    fn other_causes_share_a_vector_and_stay_until_they_are_cleared() {
        let mut bench = msix();
        bench.write(Register::EIMS, 0, EICR_LSC);
        bench.card.inject(Fault::LinkDown);
        assert_eq!(bench.card.take_interrupts(), 1 << 1);
        assert_eq!(bench.read(Register::EICS, 0), EICR_LSC, "a read of EICS does not clear");
        bench.write(Register::EICR, 0, EICR_LSC);
        assert_eq!(bench.read(Register::EICR, 0), 0);
    }

    #[test]
    fn software_can_trigger_them() {
        let mut bench = msix();
        (0..2).for_each(|word| bench.write(Register::EIMS_EX, word, !0));
        bench.write(Register::EICS_EX, 1, 1 << 8);
        assert_eq!(bench.card.take_interrupts(), 1 << 40);
    }

    #[test]
    fn without_msix_there_is_one_message() {
        let mut bench = running();
        bench.read(Register::EICR, 0);
        bench.write(Register::IVAR, 0, 0x85);
        bench.write(Register::EIMS, 0, 1 << 5 | EICR_LSC);
        receive(&mut bench);
        assert_eq!(bench.card.take_interrupts(), 1);
        assert_eq!(bench.card.take_interrupts(), 0);
        assert_eq!(bench.read(Register::EICR, 0), 1 << 5);
    }
}

mod strict {
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
        assert_eq!(
            bench.card.violations()[1].to_string(),
            "EnabledUnprogrammed: TXDCTL[1] = 0x100000 at 10ms"
        );
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
        let seen: Vec<_> =
            bench.card.violations().iter().map(|v| (v.rule, v.place.register, v.value)).collect();
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
    fn a_receive_descriptor_is_handed_over_clean() {
        let mut bench = running();
        bench.ram.set_word(MEMORY + 8, 1);
        bench.cable.to_card.push_back(frame(60));
        bench.run();
        assert_eq!(rules(&bench), [Rule::DescriptorHandedOverDone]);
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
}

mod faults {
    use super::*;

    #[test]
    fn a_hung_queue_is_cured_by_a_reset() {
        let mut bench = running();
        bench.card.inject(Fault::TransmitHang { queue: 0 });
        send(&mut bench, 0);
        assert_eq!(bench.run(), 0);
        assert_eq!(bench.read(Register::TDH, 0), 0);
        bench.start(1);
        send(&mut bench, 0);
        assert_eq!(bench.run(), 1);
    }

    #[test]
    fn a_stalled_queue_is_cured_by_a_reset() {
        let mut bench = running();
        bench.card.inject(Fault::ReceiveStall { queue: 0 });
        bench.cable.to_card.push_back(frame(60));
        bench.run();
        assert_eq!(bench.rx_descriptor(0, 0).1 & 1, 0);
        bench.start(1);
        bench.cable.to_card.push_back(frame(60));
        bench.run();
        assert_eq!(bench.rx_descriptor(0, 0).1 & 1, 1);
    }

    #[test]
    fn a_completion_may_be_lost() {
        let mut bench = running();
        bench.card.inject(Fault::LostCompletions { queue: 0, count: 2 });
        (0..3).for_each(|index| {
            send(&mut bench, index);
            bench.run();
        });
        assert_eq!(bench.cable.from_card.len(), 3);
        assert_eq!([0, 1, 2].map(|index| is_done(&bench, index)), [false, false, true]);
    }

    #[test]
    fn a_write_back_may_be_wrong() {
        for (corruption, len, status) in [
            (Corruption::LengthTooLong, 2048 + 64, 3),
            (Corruption::LengthZero, 0, 3),
            (Corruption::ErrorBits, 60, 3 | 1 << 29),
            (Corruption::NoEnd, 60, 1),
        ] {
            let mut bench = running();
            bench.card.inject(Fault::CorruptWriteBack { queue: 0, count: 1, corruption });
            (0..2).for_each(|_| bench.cable.to_card.push_back(frame(60)));
            bench.run();
            assert_eq!(bench.rx_descriptor(0, 0).1, len << 32 | status, "{corruption:?}");
            assert_eq!(bench.rx_descriptor(0, 1).1, 60 << 32 | 3, "once");
            assert_eq!(bench.bytes(rx_buffer(0, 0), 60), frame(60));
        }
    }

    #[test]
    fn a_card_may_lose_its_mind() {
        let mut bench = running();
        bench.card.inject(Fault::SpontaneousReset);
        bench.pass(Duration::from_millis(20));
        assert_eq!(bench.read(Register::RXDCTL, 0), 0);
        bench.cable.to_card.push_back(frame(60));
        assert_eq!(bench.run(), 0);
    }
}

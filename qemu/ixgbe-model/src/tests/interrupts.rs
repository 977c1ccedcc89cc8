//! Interrupts: vectors, masks, moderation.

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

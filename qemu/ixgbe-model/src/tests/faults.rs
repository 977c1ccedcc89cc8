//! Every fault of the injector.

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
fn a_master_may_take_two_resets_to_stop() {
    let mut bench = running();
    bench.card.inject(Fault::MasterStaysEnabled);
    for busy in [true, true, false] {
        bench.write(Register::CTRL, 0, CTRL_PCIE_MASTER_DISABLE);
        assert_eq!(bench.read(Register::STATUS, 0) & STATUS_MASTER_ENABLED != 0, busy);
        bench.write(Register::CTRL, 0, CTRL_RST);
        bench.pass(Duration::from_millis(10));
    }
}

#[test]
fn a_card_may_be_gone() {
    let mut bench = running();
    bench.cable.to_card.push_back(frame(60));
    bench.card.inject(Fault::Unplugged);
    bench.write(Register::EICS, 0, 1);
    assert_eq!(bench.read(Register::STATUS, 0), u32::MAX);
    assert_eq!((bench.run(), bench.card.take_interrupts()), (0, 0));
}

#[test]
fn a_card_may_lose_its_mind() {
    let mut bench = running();
    bench.card.inject(Fault::SpontaneousReset);
    assert_eq!(bench.read(Register::RXDCTL, 0), 0);
    bench.write(Register::EIMC, 0, !0);
    assert_eq!(rules(&bench), [], "a driver that does not know of it breaks no rule");
    bench.pass(Duration::from_millis(20));
    bench.cable.to_card.push_back(frame(60));
    assert_eq!(bench.run(), 0);
}

//! Reset: what it takes, spares and swallows.

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
fn it_may_never_end() {
    let never = Duration::from_secs(3600);
    let mut bench = Bench::new(CardOptions { reset_time: never, ..CardOptions::default() });
    bench.write(Register::CTRL, 0, CTRL_RST);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.read(Register::CTRL, 0) & CTRL_RST, CTRL_RST);
    assert_eq!(bench.read(Register::EEC, 0) & EEC_AUTO_RD, 0);
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

//! The link: when it is up, and who is told.

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

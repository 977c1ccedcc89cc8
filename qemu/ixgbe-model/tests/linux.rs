//! A recording of Linux's own driver, played to the model: nothing that it does is unknown or forbidden, and what it
//! waits for comes.

use std::time::Duration;

use ixgbe_model::registers::{self, Register};
use ixgbe_model::{Card, CardOptions};

const RECORDING: &str = include_str!("linux-6.12.txt");

/// An access, and how its offset and value grow when it is repeated.
#[derive(Clone, Copy, Debug)]
struct Access {
    offset: Growing,
    /// `None`: a read.
    value: Option<Growing>,
}

#[derive(Clone, Copy, Debug)]
struct Growing {
    first: u32,
    step: u32,
}

impl Growing {
    fn parse(text: &str) -> Growing {
        let hexadecimal = |text| u32::from_str_radix(text, 16).expect("a hexadecimal number");
        let (first, step) = text.split_once('+').unwrap_or((text, "0"));
        Growing { first: hexadecimal(first), step: hexadecimal(step) }
    }

    fn at(self, repetition: u32) -> u32 {
        self.first + repetition * self.step
    }
}

impl Access {
    fn parse(text: &str) -> Access {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["r", offset] => Access { offset: Growing::parse(offset), value: None },
            ["w", offset, value] => {
                Access { offset: Growing::parse(offset), value: Some(Growing::parse(value)) }
            }
            _ => panic!("not an access: {text}"),
        }
    }
}

/// Plays a recording; `answered` sees every read.
fn play(card: &mut Card, recording: &str, mut answered: impl FnMut(Register, usize, u32)) {
    let mut time = Duration::ZERO;
    for line in recording.lines().filter(|line| !line.starts_with('#')) {
        if let Some(milliseconds) = line.strip_prefix("wait ") {
            time += Duration::from_millis(milliseconds.parse().expect("milliseconds"));
            card.advance(time);
            continue;
        }
        let (times, accesses) = match line.split_once(" times: ") {
            Some((times, accesses)) => (times.parse().expect("a number"), accesses),
            None => (1, line),
        };
        let accesses: Vec<Access> = accesses.split(';').map(Access::parse).collect();
        for repetition in 0..times {
            for Access { offset, value } in &accesses {
                let offset = offset.at(repetition);
                match value {
                    Some(value) => card.write(offset, value.at(repetition)),
                    None => {
                        let answer = card.read(offset);
                        if let Some((register, index)) = Register::at(offset) {
                            answered(register, index, answer);
                        }
                    }
                }
            }
        }
    }
}

/// The recording up to the moment that the driver takes the card down again.
fn until_it_runs() -> &'static str {
    let (up, _down) = RECORDING.split_once("# down\n").expect("the mark");
    up
}

fn read(card: &mut Card, register: Register, index: usize) -> u32 {
    card.read(register.offset(index))
}

#[test]
fn linux_breaks_no_rule_and_asks_for_nothing_unknown() {
    let mut card = Card::new(CardOptions::default());
    play(&mut card, RECORDING, |_, _, _| ());
    let violations: Vec<String> = card.violations().iter().map(ToString::to_string).collect();
    assert_eq!(violations, [""; 0]);
    assert_eq!(card.unknown().iter().collect::<Vec<_>>(), []);
}

#[test]
fn what_linux_waits_for_comes() {
    let mut card = Card::new(CardOptions::default());
    let mut seen = Vec::new();
    play(&mut card, RECORDING, |register, _, answer| {
        let fulfilled = match register {
            Register::EERD => answer & registers::EERD_DONE != 0,
            Register::MSCA => answer & registers::MSCA_MDI_COMMAND == 0,
            Register::SECRXSTAT | Register::SECTXSTAT => answer & registers::SEC_RDY != 0,
            Register::RDRXCTL => answer & registers::RDRXCTL_DMAIDONE != 0,
            Register::LINKS => answer & registers::LINKS_UP != 0,
            _ => return,
        };
        if fulfilled && !seen.contains(&register) {
            seen.push(register);
        }
    });
    seen.sort_unstable();
    let mut awaited = [
        Register::EERD,
        Register::MSCA,
        Register::SECRXSTAT,
        Register::SECTXSTAT,
        Register::RDRXCTL,
        Register::LINKS,
    ];
    awaited.sort_unstable();
    assert_eq!(seen, awaited);
}

#[test]
fn linux_leaves_the_card_running() {
    let mut card = Card::new(CardOptions::default());
    play(&mut card, until_it_runs(), |_, _, _| ());
    assert_eq!(read(&mut card, Register::LINKS, 0), registers::LINKS_UP | registers::LINKS_SPEED_10G);
    for (register, bit) in [
        (Register::RXDCTL, registers::DCTL_ENABLE),
        (Register::TXDCTL, registers::DCTL_ENABLE),
        (Register::RXCTRL, registers::RXCTRL_RXEN),
        (Register::DMATXCTL, registers::DMATXCTL_TE),
        (Register::GPIE, registers::GPIE_MULTIPLE_MSIX),
        (Register::RAH, registers::RAH_AV),
    ] {
        assert_eq!(read(&mut card, register, 0) & bit, bit, "{register:?}");
    }
    assert_eq!(read(&mut card, Register::RDT, 0), 511, "a ring full of buffers");
}

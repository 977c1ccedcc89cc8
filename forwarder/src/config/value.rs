//! Values: from text to what they mean.

use core::ops::RangeInclusive;

use log::LevelFilter;
use netdrv::packet::MAX_BURST;

use super::{OnPanic, Workers};
use crate::idle::IdleMode;
use crate::programs::Program;
use crate::steer::RxMode;
use crate::txmap::Wish;

/// The text is no value of its key.
pub(super) struct Unparsable;

type Parsed<T> = Result<T, Unparsable>;

pub(super) fn program(text: &str) -> Parsed<Program> {
    match text {
        "drop" => Ok(Program::Drop),
        "pass" => Ok(Program::Pass),
        "reflect" => Ok(Program::Reflect),
        "forward" => Ok(Program::Forward),
        _ => Err(Unparsable),
    }
}

pub(super) fn workers(text: &str) -> Parsed<Workers> {
    match text {
        "all" => Ok(Workers::All),
        _ => number(text, 1..=256).map(Workers::Count),
    }
}

pub(super) fn tx(text: &str) -> Parsed<Wish> {
    match text {
        "auto" => Ok(Wish::Auto),
        "dedicated" => Ok(Wish::Dedicated),
        "shared" => Ok(Wish::Shared),
        "borrowed" => Ok(Wish::Borrowed),
        _ => match text.strip_prefix("shared:") {
            Some(cores) => number(cores, 1..=256).map(Wish::SharedBy),
            None => Err(Unparsable),
        },
    }
}

pub(super) fn idle(text: &str) -> Parsed<IdleMode> {
    match text {
        "poll" => Ok(IdleMode::Poll),
        "adaptive" => Ok(IdleMode::Adaptive),
        _ => Err(Unparsable),
    }
}

pub(super) fn rx(text: &str) -> Parsed<RxMode> {
    match text {
        "hardware" => Ok(RxMode::Hardware),
        "software" => Ok(RxMode::Software),
        _ => Err(Unparsable),
    }
}

pub(super) fn log(text: &str) -> Parsed<LevelFilter> {
    match text {
        "error" => Ok(LevelFilter::Error),
        "warn" => Ok(LevelFilter::Warn),
        "info" => Ok(LevelFilter::Info),
        "debug" => Ok(LevelFilter::Debug),
        "trace" => Ok(LevelFilter::Trace),
        _ => Err(Unparsable),
    }
}

pub(super) fn on_panic(text: &str) -> Parsed<OnPanic> {
    match text {
        "reboot" => Ok(OnPanic::Reboot),
        "exit" => Ok(OnPanic::Exit),
        _ => Err(Unparsable),
    }
}

pub(super) fn ring(text: &str) -> Parsed<usize> {
    number(text, 64..=4096).and_then(|ring| if ring.is_power_of_two() { Ok(ring) } else { Err(Unparsable) })
}

pub(super) fn batch(text: &str) -> Parsed<usize> {
    number(text, 1..=MAX_BURST)
}

/// Decimal digits alone: no sign, no blank.
fn number(text: &str, range: RangeInclusive<usize>) -> Parsed<usize> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unparsable);
    }
    text.parse().ok().filter(|number| range.contains(number)).ok_or(Unparsable)
}

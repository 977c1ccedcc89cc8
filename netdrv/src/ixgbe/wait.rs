//! Waiting for a register, never for ever.

use super::access::Readable;
use super::error::IxgbeError;
use crate::mmio::Bar;

/// A clock in nanoseconds, as [`Hal::now_ns`](crate::hal::Hal::now_ns).
pub(super) type Clock = fn() -> u64;

pub(super) const MICROSECOND: u64 = 1_000;
pub(super) const MILLISECOND: u64 = 1_000 * MICROSECOND;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;

/// Waits for `patience` nanoseconds at most until the bits of `register` under `mask` are `value`: `awaited` in words.
pub(super) fn until(
    (bar, clock): (&impl Bar, Clock),
    register: impl Readable,
    (mask, value): (u32, u32),
    patience: u64,
    awaited: &'static str,
) -> Result<(), IxgbeError> {
    let started = clock();
    while register.read(bar) & mask != value {
        if clock().saturating_sub(started) > patience {
            return Err(IxgbeError::Timeout { register: register.place().name, awaited });
        }
        core::hint::spin_loop();
    }
    Ok(())
}

/// Lets `time` nanoseconds pass.
pub(super) fn pause(clock: Clock, time: u64) {
    let started = clock();
    while clock().saturating_sub(started) < time {
        core::hint::spin_loop();
    }
}

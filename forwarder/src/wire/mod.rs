//! Bytes become fields: lengths are checked once, then fields lie at fixed places.

pub mod ethernet;
pub mod flow;

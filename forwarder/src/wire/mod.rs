//! Bytes become fields.

pub mod ethernet;

//! A model of Intel's 82599, X540 and X550 network cards, for drivers to be tested against without one.
//!
//! [`Card`] is the whole card: what its registers do, what its engines do to memory and to the wire. It has no
//! thread, no clock and no transport; a front end gives it those. [`InProcess`] is one of them: a driver that runs in
//! the same process reaches the card by calls, and the card reaches the driver's memory directly.
//!
//! The model is strict: it reports what real silicon punishes ([`Card::violations`]) and what it does not know
//! ([`Card::unknown`]). It has faults on demand ([`Fault`]). It knows nothing of any driver; facts are from Intel's
//! 82599 datasheet (331520, revision 3.4), whose sections are cited.

#[cfg(test)]
mod bench;
mod card;
mod core;
mod descriptor;
mod eeprom;
mod fault;
mod filter;
mod headers;
mod host;
mod i2c;
mod in_process;
mod interrupt;
mod link;
mod mdio;
mod options;
mod pause;
mod pools;
mod queues;
pub mod registers;
mod reset;
mod rss;
mod semaphore;
mod stats;
mod strict;
#[cfg(test)]
mod tests;
mod virtual_function;

pub use card::Card;
pub use fault::{Corruption, Fault};
pub use host::{Memory, Unmapped, Wire};
pub use in_process::{InProcess, VirtualInProcess, Working};
pub use options::{CardOptions, MAX_FRAME, Model, Module, Overrun, PciIds, Speed};
pub use strict::{Rule, UnknownAccess, Violation};
pub use virtual_function::{
    AddressFrom, HostDriver, LentLink, Notice, Policy, Presence, Trust, VIRTUAL_FUNCTION_BASE,
    VIRTUAL_FUNCTIONS,
};

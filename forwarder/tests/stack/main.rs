//! The local stack against a peer, against frames made by hand, and against garbage.

mod addresses;
mod answers;
mod craft;
mod datagrams;
mod filter;
mod flood;
mod garbage;
mod rig;
mod streams;

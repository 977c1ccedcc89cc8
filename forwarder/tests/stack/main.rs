//! The local stack against a peer, against frames made by hand, and against garbage.

mod addresses;
mod answers;
mod craft;
mod datagrams;
mod filter;
mod flood;
mod garbage;
mod in_queue;
mod rig;
mod streams;

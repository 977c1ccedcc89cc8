//! The local stack against a peer.

mod answers;
mod craft;
mod datagrams;
mod rig;
mod streams;

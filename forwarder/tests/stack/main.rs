//! The local stack against a peer.

mod answers;
mod craft;
mod rig;
mod streams;

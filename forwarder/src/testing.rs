//! What tests of several modules use: packets of a pool, and queues that tests play the device of.

use std::vec::Vec;

use arrayvec::ArrayVec;
use netdrv::packet::{Burst, Packet};
use netdrv::pool::{Pool, PoolCache};
use netdrv::process::ProcessHal;

use crate::programs::{Context, Program, Verdicts};
use crate::verdict::{PortId, Verdict};

/// A pool of `count` buffers in the process's memory.
pub(crate) fn pool(count: usize) -> &'static Pool {
    Pool::new::<ProcessHal>(count).unwrap()
}

/// A packet with this frame, from a pool of its own.
pub(crate) fn packet(frame: &[u8]) -> Packet {
    fill(&mut pool(1).cache(), frame)
}

/// A packet with this frame.
pub(crate) fn fill(cache: &mut PoolCache, frame: &[u8]) -> Packet {
    let mut packet = cache.take().expect("the pool has a buffer");
    assert!(packet.copy_from(frame));
    packet
}

/// What `program` says about frames that `port` of `ports` received.
pub(crate) fn verdicts_on(program: Program, port: u16, ports: u16, frames: &[&[u8]]) -> Vec<Verdict> {
    let mut burst: Burst = frames.iter().map(|frame| packet(frame)).collect();
    let mut verdicts: Verdicts = ArrayVec::new();
    program.decide(Context { port: PortId(port), ports }, &mut burst, &mut verdicts);
    verdicts.to_vec()
}

//! What tests of several modules use: packets, and queues whose device is the test.

use core::cell::Cell;
use core::time::Duration;
use std::boxed::Box;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::vec::Vec;

use netdrv::device::{Mac, Queues, RxDrops, RxQueue, TxQueue};
use netdrv::packet::{Burst, Packet};
use netdrv::pool::{Pool, PoolCache};
use netdrv::process::ProcessHal;

use crate::PortParts;
use crate::idle::Cpu;
use crate::meter::Clock;
use crate::programs::{Context, Program};
use crate::verdict::{PortId, Verdict};

/// A clock for each thread, that moves by a millisecond whenever it is read.
pub(crate) fn clock() -> Clock {
    std::thread_local! { static MILLIS: Cell<u64> = const { Cell::new(0) } }
    Clock { now: || MILLIS.replace(MILLIS.get() + 1), hz: 1000 }
}

/// A core with that clock, whose sleeps end at once, so that it need not be woken.
pub(crate) fn cpu() -> Cpu {
    let sleep = |_limit: Duration, ready: &mut dyn FnMut() -> bool| {
        ready();
    };
    Cpu { clock: clock(), sleep, wake: |_worker| {} }
}

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
    let mut burst: Box<Burst> = Box::new(frames.iter().map(|frame| packet(frame)).collect());
    let mut verdicts = Vec::new();
    program.decide(Context { port: PortId(port), ports }, &mut burst, |burst, count, verdict| {
        verdicts.extend(burst.drain(..count).map(|_| verdict));
    });
    verdicts
}

/// A frame in which the station 192.0.2.2 asks who has 192.0.2.1.
pub(crate) fn arp_request() -> Vec<u8> {
    let mut request = std::vec![0xff; 6];
    request.extend([2, 0, 0, 0, 1, 1, 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1]);
    request.extend([2, 0, 0, 0, 1, 1, 192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
    request
}

/// A receive queue, and the device's hold on it. Clones are the same queue.
#[derive(Clone, Default)]
pub(crate) struct FakeRx(Arc<Mutex<RxState>>);

#[derive(Default)]
pub(crate) struct RxState {
    /// Frames on the wire.
    pub(crate) arriving: VecDeque<Vec<u8>>,
    /// Frames that the worker took.
    pub(crate) taken: usize,
    /// Frames that the driver refused.
    pub(crate) refused: RxDrops,
    /// Whether the worker has said that it won't look at frames.
    pub(crate) are_unread: bool,
    /// Whether the worker has said that buffers won't come back.
    pub(crate) is_kept_full: bool,
}

impl FakeRx {
    pub(crate) fn state(&self) -> MutexGuard<'_, RxState> {
        self.0.lock().unwrap()
    }
}

impl RxQueue for FakeRx {
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        let mut state = self.state();
        let room = burst.capacity() - burst.len();
        let before = burst.len();
        while burst.len() - before < limit.min(room) && !state.arriving.is_empty() {
            let Some(mut packet) = cache.take() else { break };
            let frame = state.arriving.pop_front().unwrap();
            assert!(packet.copy_from(&frame));
            burst.push(packet);
        }
        state.taken += burst.len() - before;
        burst.len() - before
    }

    fn leave_unread(&mut self) {
        self.state().are_unread = true;
    }

    fn keep_full(&mut self) {
        self.state().is_kept_full = true;
    }

    fn arm(&mut self) -> bool {
        self.state().arriving.is_empty()
    }

    fn drops(&self) -> RxDrops {
        self.state().refused
    }
}

/// A transmit queue, and the device's hold on it. Clones are the same queue.
#[derive(Clone)]
pub(crate) struct FakeTx(Arc<Mutex<TxState>>);

pub(crate) struct TxState {
    ring: usize,
    /// Frames longer than this are refused.
    pub(crate) max_frame: usize,
    refused: u64,
    /// Enqueued, and the device was not told.
    quiet: VecDeque<Packet>,
    /// The device may send them.
    flushed: VecDeque<Packet>,
    /// The device is done with them.
    done: VecDeque<Packet>,
    /// The frames that left, in order.
    pub(crate) sent: Vec<Vec<u8>>,
    /// Doorbells.
    pub(crate) flushes: usize,
}

impl FakeTx {
    pub(crate) fn new(ring: usize) -> FakeTx {
        FakeTx(Arc::new(Mutex::new(TxState {
            ring,
            max_frame: usize::MAX,
            refused: 0,
            quiet: VecDeque::new(),
            flushed: VecDeque::new(),
            done: VecDeque::new(),
            sent: Vec::new(),
            flushes: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, TxState> {
        self.0.lock().unwrap()
    }

    /// The device sends up to `count` frames, and spoils the buffers so that a late reader shows.
    pub(crate) fn complete(&self, count: usize) {
        let mut state = self.state();
        for _ in 0..count.min(state.flushed.len()) {
            let mut packet = state.flushed.pop_front().unwrap();
            state.sent.push(packet.bytes().to_vec());
            packet.bytes_mut().fill(0xee);
            state.done.push_back(packet);
        }
    }
}

impl TxState {
    /// Packets in the ring.
    pub(crate) fn held(&self) -> usize {
        self.quiet.len() + self.flushed.len() + self.done.len()
    }

    /// The frames in the ring that did not leave yet, in order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &[u8]> {
        self.flushed.iter().map(Packet::bytes)
    }

    /// Whether the device was told of everything.
    pub(crate) fn is_flushed(&self) -> bool {
        self.quiet.is_empty()
    }
}

impl TxQueue for FakeTx {
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        let done: Vec<Packet> = self.state().done.drain(..).collect();
        let count = done.len();
        done.into_iter().for_each(|packet| cache.put(packet));
        count
    }

    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        let mut state = self.state();
        let count = burst.len().min(state.ring - state.held());
        for packet in burst.drain(..count) {
            if packet.len() > state.max_frame {
                state.refused += 1;
            } else {
                state.quiet.push_back(packet);
            }
        }
        count
    }

    fn flush(&mut self) {
        let mut state = self.state();
        let quiet = std::mem::take(&mut state.quiet);
        state.flushed.extend(quiet);
        state.flushes += 1;
    }

    fn waiting(&self) -> usize {
        self.state().held()
    }

    fn room(&self) -> usize {
        let state = self.state();
        state.ring - state.held()
    }

    fn refused(&self) -> u64 {
        self.state().refused
    }
}

/// Queues for ports with so many RX and TX queues each, and the device's hold on them.
pub(crate) fn fake_ports(
    rx: usize,
    tx: &[usize],
    ring: usize,
) -> (Vec<PortParts<FakeRx, FakeTx>>, Vec<Wire>) {
    let port = |&tx: &usize| Wire {
        rx: (0..rx).map(|_| FakeRx::default()).collect(),
        tx: (0..tx).map(|_| FakeTx::new(ring)).collect(),
    };
    let wires: Vec<Wire> = tx.iter().map(port).collect();
    let parts = |(number, wire): (u8, &Wire)| PortParts {
        mac: Mac([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        rx_interrupts: 0,
        queues: Queues { rx: wire.rx.clone(), tx: wire.tx.clone() },
    };
    ((0..).zip(&wires).map(parts).collect(), wires)
}

/// The far side of one port.
pub(crate) struct Wire {
    pub(crate) rx: Vec<FakeRx>,
    pub(crate) tx: Vec<FakeTx>,
}

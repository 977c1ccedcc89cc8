//! Local delivery: from the workers, which pass packets, to the stacks, which one worker runs.
//!
//! Every worker has a bounded queue to the stack of each port; what finds it full is a counted drop. The stacks are polled
//! between the rounds of their worker, each with a budget, and take from the workers' queues in turn: a flood that one
//! worker passes costs bounded time, and does not keep the packets of another waiting. Where that worker sleeps, whoever
//! passes packets wakes it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use netdrv::device::TxQueue;
use netdrv::packet::{Burst, Drain, MAX_BURST, Packet};
use netdrv::pool::PoolCache;

use crate::meter::Clock;
use crate::ports::total_len;
use crate::programs::Program;
use crate::ring::{Consumer, Producer, PushError, RingBuffer};
use crate::stack::{Budget, Destination, Instant, LocalFilter, Stack, StackStats};
use crate::stats::{Counter, Counts, Ledger};
use crate::txpath::TxPath;
use crate::verdict::{DropReason, PortId, VerdictKind};

/// The worker that runs the stacks.
pub(crate) const HOST: usize = 0;

/// Packets that wait in one worker's queue to a stack, at most.
const QUEUE: usize = 128;

/// Bytes of one such queue: its packets, and what both ends share and count.
pub(crate) const HEAP_OF_QUEUE: usize = QUEUE * size_of::<Packet>() + 512;

/// The most buffers that `stacks` stacks and the queues of `workers` workers to them hold.
pub(crate) fn buffers(stacks: usize, workers: usize) -> usize {
    stacks * (Stack::MAX_BUFFERS + MAX_BURST + workers * QUEUE)
}

/// A worker's way to the stacks.
pub(crate) struct Passing(Vec<Option<Gate>>);

/// The way to the stack of one port.
struct Gate {
    /// Which frames are the stack's; `None` where the program passes all of them.
    filter: Option<LocalFilter>,
    inlet: Inlet,
}

/// A worker's end of its queue to a stack.
struct Inlet {
    queue: Producer<Packet>,
    /// Whether packets were put in since the host was told.
    used: bool,
}

impl Inlet {
    fn hand_over(&mut self, packet: Packet) -> Result<(), (DropReason, Packet)> {
        self.used = true;
        let refuse = |PushError::Full(packet)| (DropReason::StackQueueFull, packet);
        self.queue.push(packet).map_err(refuse)
    }

    /// Passes a received packet, or drops it where the stack takes no more.
    fn pass(&mut self, packet: Packet, cache: &mut PoolCache, counts: &mut Counts) {
        match self.hand_over(packet) {
            Ok(()) => counts[Counter::Passed] += 1,
            Err((reason, packet)) => {
                counts[Counter::Drop(reason)] += 1;
                cache.put(packet);
            }
        }
    }
}

impl Passing {
    /// For a worker without a stack on any of `ports` ports.
    pub(crate) fn nowhere(ports: usize) -> Passing {
        Passing((0..ports).map(|_| None).collect())
    }

    /// Whether frames of `port` are looked at to tell the stack's from others.
    pub(crate) fn reads(&self, port: PortId) -> bool {
        self.0[port.index()].as_ref().is_some_and(|gate| gate.filter.is_some())
    }

    /// Whether anything was put into the stacks' queues since the last call, for the [host](HOST) to see.
    #[inline(always)]
    pub(crate) fn was_used(&mut self) -> bool {
        let gates = self.0.iter_mut().flatten();
        gates.fold(false, |used, gate| core::mem::take(&mut gate.inlet.used) | used)
    }

    /// Takes out of `burst` what is the stack's whatever the program would say, and gives the stack a copy of what is for
    /// everyone.
    #[inline(always)]
    pub(crate) fn divert(
        &mut self,
        port: PortId,
        burst: &mut Burst,
        cache: &mut PoolCache,
        counts: &mut Counts,
    ) {
        if let Some(Gate { filter: Some(filter), inlet }) = &mut self.0[port.index()]
            && burst.iter().any(|packet| filter.is_local(packet.bytes()))
        {
            divert(filter, inlet, burst, cache, counts);
        }
    }

    /// Takes packets for the stack of `port`, as many as it takes; the others are dropped. A port without a stack takes
    /// everything, and it ends there.
    #[inline(always)]
    pub(crate) fn pass(
        &mut self,
        port: PortId,
        packets: Drain<'_>,
        cache: &mut PoolCache,
        counts: &mut Counts,
    ) {
        match &mut self.0[port.index()] {
            Some(gate) => packets.for_each(|packet| gate.inlet.pass(packet, cache, counts)),
            None => {
                counts[Counter::Passed] += packets.len() as u64;
                cache.put_many(packets);
            }
        }
    }
}

/// See [`Passing::divert`].
#[inline(never)]
fn divert(
    filter: &LocalFilter,
    inlet: &mut Inlet,
    burst: &mut Burst,
    cache: &mut PoolCache,
    counts: &mut Counts,
) {
    for packet in burst.take() {
        match filter.destination(packet.bytes()) {
            Destination::Here => {
                counts[Counter::Verdict(VerdictKind::Pass)] += 1;
                inlet.pass(packet, cache, counts);
            }
            Destination::Everyone => {
                // A copy is no packet that was received: where there is no room for it, it is not made.
                if let Some(mut copy) = cache.take()
                    && copy.copy_from(packet.bytes())
                    && let Err((_, copy)) = inlet.hand_over(copy)
                {
                    cache.put(copy);
                }
                burst.push(packet);
            }
            Destination::Elsewhere => burst.push(packet),
        }
    }
}

/// The stacks of all ports that have one, on the worker that runs them.
pub(crate) struct LocalHost<T> {
    ports: Vec<LocalPort<T>>,
    clock: Clock,
}

struct LocalPort<T> {
    port: PortId,
    stack: Stack,
    stats: Arc<StackStats>,
    inbound: InTurn,
    path: TxPath<T>,
    /// Frames of the stack that wait for room in the ring.
    out: Burst,
}

/// The queues of all workers to one stack, as one.
struct InTurn {
    queues: Vec<Consumer<Packet>>,
    next: usize,
}

impl Iterator for InTurn {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        for _ in 0..self.queues.len() {
            let packet = self.queues[self.next].pop();
            self.next = (self.next + 1) % self.queues.len();
            if packet.is_ok() {
                return packet.ok();
            }
        }
        None
    }
}

impl<T: TxQueue> LocalHost<T> {
    /// A host without stacks.
    pub(crate) fn new(clock: Clock) -> LocalHost<T> {
        LocalHost { ports: Vec::new(), clock }
    }

    /// Adds the stack of `port`, which sends by `path`, and connects every worker to it. Returns where its counters are
    /// published.
    pub(crate) fn add(
        &mut self,
        port: PortId,
        stack: Stack,
        path: TxPath<T>,
        program: Program,
        workers: &mut [Passing],
    ) -> Arc<StackStats> {
        let connect = |passing: &mut Passing| {
            let (queue, consumer) = RingBuffer::new(QUEUE);
            let filter = (program != Program::Pass).then(|| stack.filter().clone());
            passing.0[port.index()] = Some(Gate { filter, inlet: Inlet { queue, used: false } });
            consumer
        };
        let inbound = InTurn { queues: workers.iter_mut().map(connect).collect(), next: 0 };
        let stats = Arc::new(StackStats::new());
        self.ports.push(LocalPort { port, stack, stats: stats.clone(), inbound, path, out: Burst::new() });
        stats
    }

    /// Whether packets wait for a stack.
    pub(crate) fn is_called(&self) -> bool {
        self.ports.iter().any(|port| port.inbound.queues.iter().any(|queue| !queue.is_empty()))
    }

    /// How long the stacks have nothing to do, if no packets come. `None` where they wait for something that nobody tells
    /// them of: room in a TX ring, or completions.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let mut rest = Duration::MAX;
        for port in &self.ports {
            if !port.out.is_empty() || port.path.waiting() > 0 {
                return None;
            }
            if let Some(poll_at) = port.stack.poll_at() {
                let micros = poll_at.total_micros() - self.clock.micros();
                rest = rest.min(Duration::from_micros(micros.max(0) as u64));
            }
        }
        Some(rest)
    }

    /// Lets every stack take, think and send, within its budget. Returns whether any of them did.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cache: &mut PoolCache, ledger: &mut Ledger) -> bool {
        if self.ports.is_empty() {
            return false;
        }
        let now = Instant::from_micros(self.clock.micros());
        let mut any = false;
        for port in &mut self.ports {
            any |= port.poll(now, cache, ledger);
        }
        any
    }

    /// Sends home what the devices are done with. Returns whether there was anything.
    pub(crate) fn reclaim(&mut self, cache: &mut PoolCache, ledger: &mut Ledger) -> bool {
        self.ports.iter_mut().fold(false, |any, port| port.reclaim(cache, ledger) | any)
    }

    /// The stacks' ways out; what waited for them is given up.
    pub(crate) fn into_paths(self) -> impl Iterator<Item = TxPath<T>> {
        self.ports.into_iter().map(|port| port.path)
    }
}

impl<T: TxQueue> LocalPort<T> {
    fn poll(&mut self, now: Instant, cache: &mut PoolCache, ledger: &mut Ledger) -> bool {
        let before = *self.stack.counters();
        let budget =
            Budget { tx: Budget::default().tx.min(self.out.remaining_capacity()), ..Budget::default() };
        self.stack.poll(now, &mut self.inbound, cache, &mut self.out, budget);
        let after = self.stack.counters();
        if *after != before {
            self.stats.publish(after);
        }
        let took = after.frames_in != before.frames_in;
        if self.out.is_empty() {
            return took;
        }
        let bytes = total_len(&self.out);
        let progress = self.path.send(&mut self.out, cache);
        let counts = ledger.port(self.port);
        counts[Counter::StackSent] += progress.sent() as u64;
        counts[Counter::TxPackets] += progress.sent() as u64;
        counts[Counter::TxBytes] += bytes - total_len(&self.out);
        counts[Counter::TxCompleted] += progress.completed as u64;
        took || progress.taken > 0
    }

    /// Sends home what the device is done with.
    pub(crate) fn reclaim(&mut self, cache: &mut PoolCache, ledger: &mut Ledger) -> bool {
        let completed = self.path.reclaim(cache);
        if completed > 0 {
            ledger.port(self.port)[Counter::TxCompleted] += completed as u64;
        }
        completed > 0
    }
}

#[cfg(test)]
mod tests;

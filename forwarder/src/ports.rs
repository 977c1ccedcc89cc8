//! The ports as one worker uses them: where packets come in, and where they leave.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use arrayvec::ArrayVec;
use netdrv::device::{RxDrops, RxQueue, TxQueue};
use netdrv::packet::{Burst, MAX_BURST};
use netdrv::pool::PoolCache;

use crate::stats::{Counter, Counts, Ledger};
use crate::txpath::{Progress, TxPath};
use crate::verdict::{DropReason, PortId};

/// An RX queue of one worker.
pub(crate) struct Input<R> {
    pub(crate) port: PortId,
    pub(crate) queue: R,
    /// Whether the queue can interrupt its worker.
    pub(crate) interrupts: bool,
    refused: RxDrops,
}

impl<R: RxQueue> Input<R> {
    pub(crate) fn new(port: PortId, queue: R, interrupts: bool) -> Input<R> {
        Input { port, interrupts, refused: queue.drops(), queue }
    }

    /// Counts what the ring has refused since the last call. Returns whether there was anything.
    #[inline(always)]
    pub(crate) fn count_refused(&mut self, ledger: &mut Ledger) -> bool {
        let refused = self.queue.drops();
        let new = refused != self.refused;
        if new {
            record_refused(ledger.port(self.port), self.refused, refused);
            self.refused = refused;
        }
        new
    }
}

#[cold]
fn record_refused(counts: &mut Counts, before: RxDrops, now: RxDrops) {
    for (reason, count) in [
        (DropReason::Oversize, now.oversize - before.oversize),
        (DropReason::Truncated, now.truncated - before.truncated),
        (DropReason::UnknownDescriptor, now.unknown_descriptor - before.unknown_descriptor),
        (DropReason::Damaged, now.damaged - before.damaged),
        (DropReason::DeviceReset, now.reset - before.reset),
    ] {
        counts[Counter::RxPackets] += count;
        counts[Counter::Drop(reason)] += count;
    }
}

/// The ports that one worker sends to.
pub(crate) struct Outputs<T>(Vec<Output<T>>);

/// A way out, and the packets that wait for it.
///
/// Packets that the ring has no room for, or that found a shared queue in another's hands, stay here and go first in the next
/// round; what does not fit in one burst is
/// dropped, and counted for the port that it came from. So a slow port loses what is beyond its ring and one
/// burst, and costs the others nothing: receiving never waits for it.
struct Output<T> {
    path: TxPath<T>,
    packets: Box<Burst>,
    /// Where the packets came from, in their order.
    origins: ArrayVec<Origin, MAX_BURST>,
}

/// Successive packets that were received by the same port.
struct Origin {
    port: PortId,
    packets: usize,
}

impl<T: TxQueue> Outputs<T> {
    /// One way out for each port, in the order of the ports.
    pub(crate) fn new(paths: impl IntoIterator<Item = TxPath<T>>) -> Outputs<T> {
        let output = |path| Output { path, packets: Box::default(), origins: ArrayVec::new() };
        Outputs(paths.into_iter().map(output).collect())
    }

    /// How many ports there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Lines the first `count` packets of `burst` up for `port`, as many as find room. Returns how many don't, and why.
    ///
    /// A whole burst changes hands by its address. To copy the packets would be to read together what was written in parts
    /// a moment ago, and a processor waits for that.
    #[inline(always)]
    pub(crate) fn push(&mut self, port: PortId, burst: &mut Box<Burst>, count: usize) -> (usize, DropReason) {
        let Some(output) = self.0.get_mut(port.index()) else { return (count, DropReason::NoSuchPort) };
        let refusal = output.path.refusal();
        if matches!(output.path, TxPath::Unavailable) {
            return (count, refusal);
        }
        if output.packets.is_empty() && burst.len() == count {
            mem::swap(&mut output.packets, burst);
            return (0, refusal);
        }
        let fitting = count.min(output.packets.remaining_capacity());
        output.packets.extend(burst.drain(..fitting));
        (count - fitting, refusal)
    }

    /// Sends what is lined up: since the last call, packets that `origin` received. One doorbell a port.
    #[inline(always)]
    pub(crate) fn flush(&mut self, origin: PortId, cache: &mut PoolCache, ledger: &mut Ledger) {
        for (port, output) in (0..).map(PortId).zip(&mut self.0) {
            if !output.packets.is_empty() {
                output.note_origin(origin, ledger);
                output.send(port, cache, ledger);
            }
        }
    }

    /// Tries again what found no room before. Returns whether any of it went.
    #[inline(always)]
    pub(crate) fn retry(&mut self, cache: &mut PoolCache, ledger: &mut Ledger) -> bool {
        let mut sent = false;
        for (port, output) in (0..).map(PortId).zip(&mut self.0) {
            if !output.packets.is_empty() {
                sent |= output.send(port, cache, ledger) > 0;
            }
        }
        sent
    }

    /// Sends home the buffers that the devices are done with. Returns whether there were any.
    pub(crate) fn reclaim(&mut self, cache: &mut PoolCache, ledger: &mut Ledger) -> bool {
        let mut any = false;
        for (port, output) in (0..).map(PortId).zip(&mut self.0) {
            let completed = output.path.reclaim(cache);
            if completed > 0 {
                ledger.port(port)[Counter::TxCompleted] += completed as u64;
                any = true;
            }
        }
        any
    }

    /// Packets that wait for room in a ring.
    #[cfg(test)]
    pub(crate) fn lined_up(&self) -> usize {
        self.0.iter().map(|output| output.packets.len()).sum()
    }

    /// The queue to `port`, which others use as well.
    #[cfg(test)]
    pub(crate) fn shared_queue(&self, port: PortId) -> alloc::sync::Arc<crate::txpath::SharedTx<T>> {
        match &self.0[port.index()].path {
            TxPath::Shared(sender) | TxPath::Borrowed(sender) => sender.queue(),
            TxPath::Dedicated(_) | TxPath::Unavailable => panic!("port {port} has no shared queue"),
        }
    }

    /// Whether every packet has left and every device is done with those it had.
    pub(crate) fn drained(&self) -> bool {
        self.0.iter().all(|output| output.packets.is_empty() && output.path.waiting() == 0)
    }

    /// Gives up on what still waits: dropped for want of room.
    pub(crate) fn abandon(&mut self, cache: &mut PoolCache, ledger: &mut Ledger) {
        for output in &mut self.0 {
            for origin in output.origins.drain(..) {
                let counts = ledger.port(origin.port);
                counts[Counter::Waiting] -= origin.packets as u64;
                counts[Counter::Drop(output.path.refusal())] += origin.packets as u64;
            }
            output.packets.drain(..).for_each(|packet| cache.put(packet));
        }
    }

    /// The ways out, in the order of the ports.
    pub(crate) fn into_paths(self) -> impl Iterator<Item = TxPath<T>> {
        self.0.into_iter().map(|output| output.path)
    }
}

impl<T: TxQueue> Output<T> {
    #[inline(always)]
    fn note_origin(&mut self, port: PortId, ledger: &mut Ledger) {
        let noted: usize = self.origins.iter().map(|origin| origin.packets).sum();
        let packets = self.packets.len() - noted;
        if packets > 0 {
            // Never more origins than packets, and both lists are as long.
            self.origins.push(Origin { port, packets });
            ledger.port(port)[Counter::Waiting] += packets as u64;
        }
    }

    /// Returns how many packets went.
    #[inline(always)]
    fn send(&mut self, port: PortId, cache: &mut PoolCache, ledger: &mut Ledger) -> usize {
        let bytes = total_len(&self.packets);
        let progress = self.path.send(&mut self.packets, cache);
        let counts = ledger.port(port);
        counts[Counter::TxPackets] += progress.sent() as u64;
        counts[Counter::TxBytes] += bytes - total_len(&self.packets);
        counts[Counter::TxCompleted] += progress.completed as u64;
        self.settle(progress, ledger);
        progress.taken
    }

    /// Credits the ports that the packets came from. Which of them the device refused is not known; with packets of more
    /// than one port, those of the first are taken for it.
    #[inline(always)]
    fn settle(&mut self, progress: Progress, ledger: &mut Ledger) {
        let Progress { mut taken, mut refused, .. } = progress;
        while taken > 0
            && let Some(origin) = self.origins.first_mut()
        {
            let gone = origin.packets.min(taken);
            let refused_here = gone.min(refused);
            let counts = ledger.port(origin.port);
            counts[Counter::Waiting] -= gone as u64;
            counts[Counter::Forwarded] += (gone - refused_here) as u64;
            counts[Counter::Drop(DropReason::TxRefused)] += refused_here as u64;
            taken -= gone;
            refused -= refused_here;
            origin.packets -= gone;
            if origin.packets == 0 {
                self.origins.remove(0);
            }
        }
    }
}

/// Bytes of all frames.
#[inline(always)]
pub(crate) fn total_len(burst: &Burst) -> u64 {
    burst.iter().map(|packet| packet.len() as u64).sum()
}

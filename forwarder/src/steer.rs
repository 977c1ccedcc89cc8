//! Steering in software (`rx=software`): every core decides and sends, however few RX queues there are.
//!
//! A worker that owns an RX queue hashes the flow of each frame that it receives, and hands the frame to the worker that the
//! hash names: through a ring, one for each pair of workers. Its own share goes on without a ring. A flow stays on one
//! worker and, from one RX queue, on one ring, so its packets stay in order. Both directions of a flow meet on one worker.
//!
//! What finds its ring full is a counted drop: receiving never waits for a worker that is slow.

mod hash;
mod shape;

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use netdrv::packet::{Burst, MAX_BURST, Packet};
use netdrv::pool::PoolCache;

use self::hash::flow_hash;
pub(crate) use self::shape::Shape;
use crate::ports::total_len;
use crate::ring::{ChunkError, Consumer, Producer, RingBuffer};
use crate::stats::{Counter, Ledger};
use crate::verdict::{DropReason, PortId};
use crate::wake::Roster;
use crate::wire::flow::Flow;

/// Who spreads flows over the workers (`rx=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RxMode {
    /// The devices, over their RX queues: a worker decides on what its own queues bring.
    Hardware,
    /// The workers that own an RX queue, over all workers.
    Software,
}

impl RxMode {
    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            RxMode::Hardware => "hardware",
            RxMode::Software => "software",
        }
    }
}

/// One worker's part in steering.
pub(crate) struct Steering {
    worker: usize,
    workers: usize,
    outbox: Outbox,
    /// A ring from each other worker that owns an RX queue.
    inboxes: Vec<Consumer<Steered>>,
    /// Counts what is handed over, and is published before anyone can take it.
    handed: Ledger,
}

/// A packet on its way to the worker that decides on it.
struct Steered {
    packet: Packet,
    /// The port that received it.
    port: PortId,
}

/// Steering for as many workers as there are ledgers, which each count what one of them hands over. Where the workers do the
/// steering, the first `receivers` own the RX queues; where the hardware does, every worker keeps what it receives.
pub(crate) fn connect(mode: RxMode, receivers: usize, ledgers: Vec<Ledger>) -> Vec<Steering> {
    let workers = ledgers.len();
    let shape = Shape::new(workers, receivers);
    let unconnected = |(worker, handed)| {
        let outbox = Outbox { rings: Vec::new(), in_flight: 0, quota: shape.quota };
        Steering { worker, workers, outbox, inboxes: Vec::new(), handed }
    };
    let mut steerings: Vec<Steering> = ledgers.into_iter().enumerate().map(unconnected).collect();
    if mode == RxMode::Software {
        log::info!("rx=software: {receivers} of {workers} cores receive, and hand flows to all");
        for receiver in 0..receivers {
            for distance in 1..workers {
                let (producer, consumer) = RingBuffer::new(shape.ring);
                steerings[receiver].outbox.rings.push(producer);
                steerings[(receiver + distance) % workers].inboxes.push(consumer);
            }
        }
    }
    steerings
}

/// Which of `workers` workers decides on `frame` where the workers do the steering; `None` is whichever received it, a runt.
#[inline(always)]
pub fn worker_of(frame: &[u8], workers: usize) -> Option<usize> {
    Flow::of(frame).map(|flow| hash::share(flow_hash(&flow), workers))
}

impl Steering {
    /// Whether this worker hands packets to others.
    #[inline(always)]
    pub(crate) fn spreads(&self) -> bool {
        !self.outbox.rings.is_empty()
    }

    /// How many others hand packets to this worker.
    #[inline(always)]
    pub(crate) fn inboxes(&self) -> usize {
        self.inboxes.len()
    }

    /// Hands each packet that `port` received to the worker of its flow, and wakes that; this worker's own share stays in
    /// `burst`. `ledger` has counted all of it, and has not published that: what is handed over is counted here instead.
    /// What comes back because its ring is full ends here, and `ledger` counts it.
    #[inline(never)]
    pub(crate) fn spread(
        &mut self,
        port: PortId,
        burst: &mut Burst,
        cache: &mut PoolCache,
        ledger: &mut Ledger,
        roster: &Roster,
    ) {
        burst.iter().for_each(Packet::prefetch);
        let bytes = total_len(burst);
        let lots = self.sort(burst);
        let mut packets: ArrayVec<Option<Packet>, MAX_BURST> = burst.take().into_iter().map(Some).collect();
        let mut pick = |lot: &Lot| packets[lot.place].take();

        let (own, others) = lots.split_at(lots.partition_point(|lot| lot.distance == 0));
        burst.extend(own.iter().filter_map(&mut pick));
        if others.is_empty() {
            return;
        }
        let (packets_handed, bytes_handed) = (others.len() as u64, bytes - total_len(burst));
        let (kept, handed) = (ledger.port(port), self.handed.port(port));
        kept[Counter::RxPackets] -= packets_handed;
        kept[Counter::RxBytes] -= bytes_handed;
        handed[Counter::RxPackets] += packets_handed;
        handed[Counter::RxBytes] += bytes_handed;
        handed[Counter::Steered] += packets_handed;
        self.handed.publish();
        let by_worker = || others.chunk_by(|one, next| one.distance == next.distance);
        for lots in by_worker() {
            let packets = lots.iter().filter_map(&mut pick);
            self.outbox.fill(lots[0].distance, lots.len(), packets.map(|packet| Steered { packet, port }));
        }
        roster.rouse(by_worker().map(|lots| self.worker_at(lots[0].distance)));

        let returned = packets.into_iter().flatten().map(|packet| cache.put(packet)).count() as u64;
        if returned > 0 {
            let counts = ledger.port(port);
            counts[Counter::Taken] += returned;
            counts[Counter::Drop(DropReason::SteerRingFull)] += returned;
        }
    }

    /// The burst's packets by worker, those of one worker in their order.
    fn sort(&self, burst: &Burst) -> ArrayVec<Lot, MAX_BURST> {
        let lot = |(place, packet): (usize, &Packet)| Lot { distance: self.distance(packet.bytes()), place };
        let mut lots: ArrayVec<Lot, MAX_BURST> = burst.iter().enumerate().map(lot).collect();
        lots.sort_unstable();
        lots
    }

    /// How far the worker of `frame` is, counted from this one on: 0 is this one, which keeps runts as well.
    #[inline(always)]
    fn distance(&self, frame: &[u8]) -> usize {
        match worker_of(frame, self.workers) {
            Some(worker) if worker >= self.worker => worker - self.worker,
            Some(worker) => worker + self.workers - self.worker,
            None => 0,
        }
    }

    fn worker_at(&self, distance: usize) -> usize {
        let worker = self.worker + distance;
        if worker < self.workers { worker } else { worker - self.workers }
    }

    /// Whether packets wait to be taken.
    pub(crate) fn is_called(&self) -> bool {
        self.inboxes.iter().any(|ring| !ring.is_empty())
    }

    /// Takes up to `limit` packets that one of the others has handed over, all received by the port that is returned.
    /// `None` where there are none.
    #[inline(always)]
    pub(crate) fn take(&mut self, inbox: usize, burst: &mut Burst, limit: usize) -> Option<PortId> {
        let ring = &mut self.inboxes[inbox];
        let chunk = ring.read_chunk(ring.slots().min(limit)).ok()?;
        let (front, back) = chunk.as_slices();
        let port = front.first()?.port;
        let alike = front.iter().chain(back).take_while(|steered| steered.port == port).count();
        burst.extend(chunk.into_iter().take(alike).map(|steered| steered.packet));
        Some(port)
    }

    /// Nothing is handed over any more.
    pub(crate) fn close(&mut self) {
        self.outbox.rings.clear();
    }

    /// Whether everything is taken and nothing can come any more: all others have closed.
    pub(crate) fn is_drained(&self) -> bool {
        self.inboxes.iter().all(|ring| ring.is_abandoned() && ring.is_empty())
    }
}

/// Where a packet of a burst goes; ordered by that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lot {
    distance: usize,
    /// The place in the burst.
    place: usize,
}

/// A worker's rings to all others.
struct Outbox {
    /// The ring to the worker after this one, then to the next, and so on around.
    rings: Vec<Producer<Steered>>,
    /// Packets in all rings, at most: how many of them were taken since they were counted is not known.
    in_flight: usize,
    /// Packets that may be in all rings.
    quota: usize,
}

impl Outbox {
    /// Puts as many of `count` packets as may be into the ring to the worker at `distance`: one hand-over.
    #[inline(always)]
    fn fill(&mut self, distance: usize, count: usize, packets: impl Iterator<Item = Steered>) {
        if self.quota - self.in_flight < count {
            self.in_flight = self.rings.iter().map(|ring| ring.buffer().capacity() - ring.slots()).sum();
        }
        let count = count.min(self.quota - self.in_flight);
        let ring = &mut self.rings[distance - 1];
        let chunk = match ring.write_chunk_uninit(count) {
            Err(ChunkError::TooFewSlots(slots)) => ring.write_chunk_uninit(slots),
            chunk => chunk,
        };
        self.in_flight += chunk.map_or(0, |chunk| chunk.fill_from_iter(packets));
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

//! The worker: the loop that owns one core, and the match that turns verdicts into queues.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use netdrv::device::{RxQueue, TxQueue};
use netdrv::packet::Burst;
use netdrv::pool::PoolCache;
use netdrv::sync::spin_loop;

use crate::control::{Control, StoppedQueues};
use crate::idle::{ATTENTIVE, Cpu, IdleMode, LONGEST, Spell};
use crate::local::{self, LocalHost, Passing};
use crate::meter::{Every, Meter, RoundKind};
use crate::ports::{Input, Outputs, total_len};
use crate::programs::{Context, Program};
use crate::stats::{Counter, Ledger, WorkerStats};
use crate::steer::Steering;
use crate::verdict::{DropReason, PortId, Verdict};
use crate::wake::Roster;
use crate::wire::ethernet;

/// One core's share of the forwarder: its RX queues, and a way out of every port.
pub struct Worker<R, T> {
    pub(crate) program: Program,
    pub(crate) idle: IdleMode,
    pub(crate) batch: usize,
    pub(crate) inputs: Vec<Input<R>>,
    pub(crate) steering: Steering,
    pub(crate) outputs: Outputs<T>,
    pub(crate) passing: Passing,
    /// The stacks, on the worker that runs them.
    pub(crate) local: LocalHost<T>,
    /// What was received and is decided on; empty between two queues.
    pub(crate) burst: Box<Burst>,
    pub(crate) cache: PoolCache,
    pub(crate) ledger: Ledger,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) roster: Roster,
    pub(crate) cpu: Cpu,
}

impl<R: RxQueue, T: TxQueue> Worker<R, T> {
    /// Forwards until `control` says stop; then waits, for a second at most, until the TX rings are empty, and gives its
    /// queues back. Does `chores`, if there are any, every few milliseconds in between, also under load: a console, where
    /// one core does everything.
    pub fn run(mut self, control: &Control<R, T>, mut chores: Option<&mut dyn FnMut()>) {
        let clock = self.cpu.clock;
        let mut meter = Meter::new(clock);
        let mut every = Every::millis(5, clock);
        let mut spell = Spell::new(self.idle, clock);
        while !control.is_stopping() {
            let kind = self.round();
            let now = meter.account(kind, &self.stats);
            if kind == RoundKind::Idle {
                // Each look takes the line of an index from the device that writes it.
                spin_loop();
            }
            if spell.is_over(kind, now) {
                let until_chores = chores.is_some().then(|| every.remaining(now, clock));
                self.doze(control, until_chores.unwrap_or(LONGEST));
                meter.account(RoundKind::Asleep, &self.stats);
            }
            if let Some(chores) = &mut chores
                && every.is_due(now)
            {
                chores();
            }
        }
        // Who sleeps is to see the end as well.
        self.roster.rouse_all();
        self.drain(&mut meter);
        control.give_back(self.end());
    }

    /// Sleeps until a queue interrupts or another worker has work for this one, for `limit` at most.
    fn doze(&mut self, control: &Control<R, T>, limit: Duration) {
        let limit = limit.min(self.rest());
        let Worker { inputs, steering, local, roster, cpu, .. } = self;
        (cpu.sleep)(limit, &mut || {
            roster.lie_down();
            control.is_stopping()
                || steering.is_called()
                || local.is_called()
                || inputs.iter_mut().any(|input| !input.queue.arm())
        });
        if roster.get_up() {
            self.stats.wakeups.add(1);
        }
    }

    /// How long this worker may sleep if nobody wakes it.
    fn rest(&self) -> Duration {
        let is_woken = self.inputs.iter().all(|input| input.interrupts) && self.outputs.drained();
        match self.local.rest() {
            Some(rest) if is_woken => rest.min(LONGEST),
            _ => ATTENTIVE,
        }
    }

    /// Whether packets come to this worker, from an RX queue or from another worker. If not, it has nothing to do but to
    /// [`retire`](Self::retire).
    pub fn has_work(&self) -> bool {
        !self.inputs.is_empty() || self.steering.inboxes() > 0
    }

    /// One round of what [`run`](Self::run) does, for who has several workers on one core.
    pub fn step(&mut self) {
        self.round();
    }

    /// Gives the queues back without running to an end, so that the core may sleep.
    pub fn retire(self, control: &Control<R, T>) {
        control.give_back(self.end());
    }

    /// One pass over all queues. The whole walk of a packet through this core is in [`process`](Self::process).
    // Into both of its callers: as a function of its own it costs a packet 20 instructions more.
    #[inline(always)]
    pub(crate) fn round(&mut self) -> RoundKind {
        let mut moved = self.outputs.retry(&mut self.cache, &mut self.ledger);
        for input in 0..self.inputs.len() {
            moved |= self.process(input);
        }
        for inbox in 0..self.steering.inboxes() {
            moved |= self.process_steered(inbox);
        }
        if self.passing.was_used() {
            self.roster.rouse([local::HOST]);
        }
        moved |= self.local.poll(&mut self.cache, &mut self.ledger);
        if !moved {
            moved = self.reclaim();
        }
        if !moved {
            return RoundKind::Idle;
        }
        self.ledger.publish();
        self.stats.cached.set(self.cache.len() as u64);
        RoundKind::Busy
    }

    /// Receives a burst from one queue, and decides on it, or on this worker's share of it. Returns whether there was any.
    #[inline(always)]
    fn process(&mut self, input: usize) -> bool {
        let Worker { batch, inputs, steering, roster, passing, burst, cache, ledger, .. } = self;
        let input = &mut inputs[input];

        let received = input.queue.receive(cache, burst, *batch);
        let refused = input.count_refused(ledger);
        if received == 0 {
            return refused;
        }
        let port = input.port;
        let counts = ledger.port(port);
        counts[Counter::RxPackets] += received as u64;
        counts[Counter::RxBytes] += total_len(burst);
        counts[Counter::Drop(DropReason::Runt)] += remove_runts(burst, cache);

        // What is the stack's does not wait in a ring with what is forwarded: a flood would fill it.
        passing.divert(port, burst, cache, counts);
        if steering.spreads() {
            steering.spread(port, burst, cache, ledger, roster);
        }
        self.decide(port);
        true
    }

    /// Takes a burst from one of the workers that hand packets to this one, and decides on it. Returns whether there was any.
    #[inline(always)]
    fn process_steered(&mut self, inbox: usize) -> bool {
        let Some(port) = self.steering.take(inbox, &mut self.burst, self.batch) else { return false };
        self.ledger.port(port)[Counter::Taken] += self.burst.len() as u64;
        self.decide(port);
        true
    }

    /// Sees every packet of the burst, which `port` received, to its end.
    #[inline(always)]
    fn decide(&mut self, port: PortId) {
        let Worker { program, outputs, passing, burst, cache, ledger, .. } = self;
        let counts = ledger.port(port);
        let context = Context { port, ports: outputs.count() as u16 };
        program.decide(context, burst, |burst, count, verdict| {
            counts[Counter::Verdict(verdict.kind())] += count as u64;
            let (dropped, reason) = match verdict {
                Verdict::Tx => outputs.push(port, burst, count),
                Verdict::Redirect(to) => outputs.push(to, burst, count),
                Verdict::Drop => (count, DropReason::Verdict),
                Verdict::Aborted => (count, DropReason::Aborted),
                Verdict::Pass => return passing.pass(port, burst.drain(..count), cache, counts),
            };
            counts[Counter::Drop(reason)] += dropped as u64;
            cache.put_many(burst.drain(..dropped));
        });
        outputs.flush(port, cache, ledger);
    }

    /// Sends home the buffers that the devices are done with. Returns whether there were any.
    fn reclaim(&mut self) -> bool {
        let stacks = self.local.reclaim(&mut self.cache, &mut self.ledger);
        self.outputs.reclaim(&mut self.cache, &mut self.ledger) | stacks
    }

    /// Nothing is received any more; what is on its way to this worker is decided on, and leaves as long as the devices take
    /// it. The other workers do the same and are waited for; a device that takes nothing is not.
    fn drain(&mut self, meter: &mut Meter) {
        self.steering.close();
        while !self.steering.is_drained() {
            self.drain_round(meter);
        }
        let mut deadline = Every::millis(1000, self.cpu.clock);
        while !self.outputs.drained() {
            let now = self.drain_round(meter);
            if deadline.is_due(now) {
                self.outputs.abandon(&mut self.cache, &mut self.ledger);
                break;
            }
        }
    }

    /// A round without the RX queues. Returns when it ended.
    fn drain_round(&mut self, meter: &mut Meter) -> u64 {
        self.outputs.retry(&mut self.cache, &mut self.ledger);
        for inbox in 0..self.steering.inboxes() {
            self.process_steered(inbox);
        }
        self.reclaim();
        self.ledger.publish();
        meter.account(RoundKind::Busy, &self.stats)
    }

    fn end(mut self) -> StoppedQueues<R, T> {
        for input in &mut self.inputs {
            input.count_refused(&mut self.ledger);
        }
        self.ledger.publish();
        self.stats.cached.set(0);
        StoppedQueues {
            rx: self.inputs.into_iter().map(|input| input.queue).collect(),
            tx: self.outputs.into_paths().chain(self.local.into_paths()).collect(),
            steering: Vec::from([self.steering]),
        }
    }
}

/// Takes out what is shorter than an Ethernet header, so that every program may count on one. Returns how many.
#[inline(always)]
fn remove_runts(burst: &mut Burst, cache: &mut PoolCache) -> u64 {
    if burst.iter().all(|packet| packet.len() >= ethernet::HEADER_LEN) {
        return 0;
    }
    remove_shorter(ethernet::HEADER_LEN, burst, cache)
}

#[cold]
fn remove_shorter(len: usize, burst: &mut Burst, cache: &mut PoolCache) -> u64 {
    let before = burst.len();
    for packet in burst.take() {
        if packet.len() < len {
            cache.put(packet);
        } else {
            burst.push(packet);
        }
    }
    (before - burst.len()) as u64
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

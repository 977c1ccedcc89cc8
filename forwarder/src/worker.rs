//! The worker: the loop that owns one core, and the match that turns verdicts into queues.

use alloc::vec::Vec;
use core::time::Duration;

use netdrv::device::{RxQueue, TxQueue};
use netdrv::packet::Burst;
use netdrv::pool::PoolCache;

use crate::control::{Control, StoppedQueues};
use crate::idle::{ATTENTIVE, IdleMode, LONGEST, Sleep, Spell};
use crate::local::{LocalHost, Passing};
use crate::meter::{Clock, Every, Meter, RoundKind};
use crate::ports::{Input, Outputs, total_len};
use crate::programs::{Context, Program, Verdicts};
use crate::stats::{Counter, Ledger};
use crate::verdict::{DropReason, Verdict};
use crate::wire::ethernet;

/// One core's share of the forwarder: its RX queues, and a way out of every port.
pub struct Worker<R, T> {
    pub(crate) program: Program,
    pub(crate) idle: IdleMode,
    pub(crate) batch: usize,
    pub(crate) inputs: Vec<Input<R>>,
    pub(crate) outputs: Outputs<T>,
    pub(crate) passing: Passing,
    /// The stacks, on the worker that runs them.
    pub(crate) local: LocalHost<T>,
    pub(crate) cache: PoolCache,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
}

impl<R: RxQueue, T: TxQueue> Worker<R, T> {
    /// Forwards until `control` says stop; then waits, for a second at most, until the TX rings are empty, and gives its
    /// queues back. Does `chores`, if there are any, every few milliseconds in between, also under load: a console, where
    /// one core does everything.
    pub fn run(mut self, control: &Control<R, T>, sleep: Sleep, mut chores: Option<&mut dyn FnMut()>) {
        let mut meter = Meter::new(self.clock);
        let mut every = Every::millis(5, self.clock);
        let mut spell = Spell::new(self.idle, self.clock);
        while !control.is_stopping() {
            let kind = self.round();
            let now = meter.account(kind, self.ledger.stats());
            if spell.is_over(kind, now) {
                let until_chores = chores.is_some().then(|| every.remaining(now, self.clock));
                self.doze(control, sleep, until_chores.unwrap_or(LONGEST));
                meter.account(RoundKind::Asleep, self.ledger.stats());
            }
            if let Some(chores) = &mut chores
                && every.is_due(now)
            {
                chores();
            }
        }
        self.drain(&mut meter);
        control.give_back(self.end());
    }

    /// Sleeps until a queue interrupts, for `limit` at most.
    fn doze(&mut self, control: &Control<R, T>, sleep: Sleep, limit: Duration) {
        let all_interrupt = self.inputs.iter().all(|input| input.interrupts);
        let is_relaxed = all_interrupt && self.local.is_empty() && self.outputs.drained();
        let limit = if is_relaxed { limit } else { limit.min(ATTENTIVE) };
        let inputs = &mut self.inputs;
        sleep(limit, &mut || control.is_stopping() || inputs.iter_mut().any(|input| !input.queue.arm()));
    }

    /// Whether any RX queue is this worker's: one without has nothing to do but to [`retire`](Self::retire).
    pub fn receives(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Gives the queues back without ever running, so that the core may sleep.
    pub fn retire(self, control: &Control<R, T>) {
        control.give_back(self.end());
    }

    /// One pass over all queues. The whole walk of a packet through this core is in [`process`](Self::process).
    pub(crate) fn round(&mut self) -> RoundKind {
        let mut moved = self.outputs.retry(&mut self.cache, &mut self.ledger);
        for input in 0..self.inputs.len() {
            moved |= self.process(input);
        }
        moved |= self.local.poll(&mut self.cache, &mut self.ledger);
        if !moved {
            moved = self.reclaim();
        }
        if !moved {
            return RoundKind::Idle;
        }
        self.ledger.publish();
        self.ledger.stats().cached.set(self.cache.len() as u64);
        RoundKind::Busy
    }

    /// Receives a burst from one queue and sees every packet to its end. Returns whether there was any.
    #[inline(always)]
    fn process(&mut self, input: usize) -> bool {
        let Worker { program, batch, inputs, outputs, passing, cache, ledger, .. } = self;
        let input = &mut inputs[input];

        let mut burst = Burst::new();
        let received = input.queue.receive(cache, &mut burst, *batch);
        let refused = input.count_refused(ledger);
        if received == 0 {
            return refused;
        }
        let counts = ledger.port(input.port);
        counts[Counter::RxPackets] += received as u64;
        counts[Counter::RxBytes] += total_len(&burst);
        counts[Counter::Drop(DropReason::Runt)] += remove_runts(&mut burst, cache);

        passing.divert(input.port, &mut burst, cache, counts);
        let mut verdicts = Verdicts::new();
        let context = Context { port: input.port, ports: outputs.count() as u16 };
        program.decide(context, &mut burst, &mut verdicts);

        for (packet, &verdict) in burst.drain(..).zip(&verdicts) {
            counts[Counter::Verdict(verdict.kind())] += 1;
            let dropped = match verdict {
                Verdict::Tx => outputs.push(input.port, packet),
                Verdict::Redirect(port) => outputs.push(port, packet),
                Verdict::Drop => Err((DropReason::Verdict, packet)),
                Verdict::Aborted => Err((DropReason::Aborted, packet)),
                Verdict::Pass => passing.pass(input.port, packet, cache, counts),
            };
            if let Err((reason, packet)) = dropped {
                counts[Counter::Drop(reason)] += 1;
                cache.put(packet);
            }
        }
        outputs.flush(input.port, cache, ledger);
        true
    }

    /// Sends home the buffers that the devices are done with. Returns whether there were any.
    fn reclaim(&mut self) -> bool {
        let stacks = self.local.reclaim(&mut self.cache, &mut self.ledger);
        self.outputs.reclaim(&mut self.cache, &mut self.ledger) | stacks
    }

    /// Nothing is received any more; what is on its way leaves, as long as the devices take it.
    fn drain(&mut self, meter: &mut Meter) {
        let mut deadline = Every::millis(1000, self.clock);
        while !self.outputs.drained() {
            self.outputs.retry(&mut self.cache, &mut self.ledger);
            self.reclaim();
            self.ledger.publish();
            if deadline.is_due(meter.account(RoundKind::Busy, self.ledger.stats())) {
                self.outputs.abandon(&mut self.cache, &mut self.ledger);
                break;
            }
        }
    }

    fn end(mut self) -> StoppedQueues<R, T> {
        for input in &mut self.inputs {
            input.count_refused(&mut self.ledger);
        }
        self.ledger.publish();
        self.ledger.stats().cached.set(0);
        StoppedQueues {
            rx: self.inputs.into_iter().map(|input| input.queue).collect(),
            tx: self.outputs.into_paths().chain(self.local.into_paths()).collect(),
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

#[cfg(test)]
mod tests;

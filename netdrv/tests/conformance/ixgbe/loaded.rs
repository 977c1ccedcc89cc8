//! A load that faults befall, and the account of every frame of it.

use ixgbe_model::Fault;
use netdrv::device::{NetDevice, RxDrops};

use super::{CardBench, Function};
use crate::bench::{Bench, Rig};

/// Frames that go in every five milliseconds.
const LOAD: u32 = 3;

/// A function of a card under a steady load, which comes back out.
pub(super) struct Loaded<F: Function> {
    pub(super) rig: Rig<CardBench<F>>,
    pub(super) fed: u64,
    pub(super) back: u64,
}

impl<F: Function> Loaded<F> {
    pub(super) fn new(bench: CardBench<F>) -> Loaded<F> {
        Loaded { rig: Rig::new(bench), fed: 0, back: 0 }
    }

    /// Lets `millis` pass under load. Returns how many frames have come back meanwhile.
    pub(super) fn run(&mut self, millis: u64) -> u64 {
        self.pass(millis, LOAD)
    }

    pub(super) fn pass(&mut self, millis: u64, load: u32) -> u64 {
        let before = self.back;
        for _ in 0..millis / 5 {
            for _ in 0..load {
                self.rig.bench.feed(0, CardBench::<F>::frame(self.fed as u32, 1514));
                self.fed += 1;
            }
            self.rig.bench.live(5);
            self.rig.echo(0, 32);
            self.rig.bench.run();
            self.back += self.rig.bench.collect(0).len() as u64;
        }
        self.back - before
    }

    /// Frames that did not come back, as the counters have it.
    pub(super) fn accounted(&mut self) -> u64 {
        let RxDrops { oversize, truncated, unknown_descriptor, damaged, reset } = self.rig.drops(0);
        let counters = self.rig.bench.device().counters();
        let dropped = oversize + truncated + unknown_descriptor + damaged + reset;
        dropped + counters.missed + counters.errors + counters.lost
    }

    /// Ends the load, and holds that forwarding works, that no frame is missing, and that no buffer is.
    pub(super) fn finish(mut self) {
        self.pass(1_000, 0);
        assert_eq!(self.run(200), 200 / 5 * u64::from(LOAD), "forwarding works as before");
        self.pass(3_000, 0);
        assert_eq!(self.rig.bench.pending(0), 0);
        assert_eq!(self.rig.bench.device().fault(), None);
        let accounted = self.accounted();
        assert_eq!(self.fed, self.back + accounted, "every frame is accounted for");
        self.rig.finish();
    }

    pub(super) fn resets(&mut self) -> u64 {
        self.rig.bench.device().counters().resets
    }

    pub(super) fn inject(&self, fault: Fault) {
        self.rig.bench.card.inject(fault);
    }
}

//! Random sequences of calls against random devices, some of which break the rules half way.

use netdrv::device::{NetDevice, RxQueue, TxQueue};
use netdrv::packet::{Burst, FRAME_CAPACITY, Packet};
use proptest::prelude::*;

use crate::bench::{Bench, Misdeed, Rig};

/// One thing that the driver's owner, the wire or the device does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Feed(u32),
    Run,
    Receive(usize),
    Reclaim,
    Enqueue(usize),
    Flush,
    Release(usize),
    Misbehave(Misdeed),
}

/// Any step; misdeeds are rare. A descriptor that is completed twice is none of them: once it is lent again,
/// no driver can tell the second completion from a good one, and what comes of that is the device's doing.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let misdeed = prop_oneof![
        Just(Misdeed::Truncated),
        Just(Misdeed::Oversize),
        Just(Misdeed::UnknownDescriptor),
        Just(Misdeed::ReceiveIndexJump),
        Just(Misdeed::TransmitIndexJump),
        Just(Misdeed::NeedsReset),
    ];
    prop_oneof![
        8 => (1u32..80).prop_map(Step::Feed),
        12 => Just(Step::Run),
        12 => (0usize..=64).prop_map(Step::Receive),
        6 => Just(Step::Reclaim),
        10 => (1usize..=64).prop_map(Step::Enqueue),
        8 => Just(Step::Flush),
        4 => (1usize..100).prop_map(Step::Release),
        1 => misdeed.prop_map(Step::Misbehave),
    ]
}

/// Buffers that are not on a ring: held by the test, oldest first.
struct Hands<B: Bench> {
    rig: Rig<B>,
    held: Vec<Packet>,
    fed: u32,
    received: u32,
    /// Numbers of the frames that the transmit ring took and the wire has not shown.
    sent: Vec<u32>,
}

impl<B: Bench> Hands<B> {
    fn take(&mut self, step: Step) {
        let (rx, tx) = (&mut self.rig.queues.rx[0], &mut self.rig.queues.tx[0]);
        match step {
            Step::Feed(count) => {
                (0..count)
                    .for_each(|index| self.rig.bench.feed(0, B::frame(self.fed + index, FRAME_CAPACITY)));
                self.fed += count;
            }
            Step::Run => {
                self.rig.bench.run();
                self.collect();
            }
            Step::Receive(limit) => {
                let mut burst = Burst::new();
                rx.receive(&mut self.rig.cache, &mut burst, limit);
                for packet in burst {
                    let expected = B::frame(self.received, FRAME_CAPACITY);
                    assert!(packet.bytes() == expected, "frame {}", self.received);
                    self.received += 1;
                    self.held.push(packet);
                }
            }
            Step::Reclaim => {
                let before = tx.waiting();
                let completed = tx.reclaim(&mut self.rig.cache);
                assert_eq!(tx.waiting(), before - completed);
            }
            Step::Enqueue(count) => {
                let count = count.min(self.held.len());
                let mut burst: Burst = self.held.drain(..count).collect();
                let numbers: Vec<u32> = burst.iter().map(number).collect();
                let taken = tx.enqueue(&mut burst);
                self.sent.extend(&numbers[..taken]);
                self.held.splice(..0, burst);
            }
            Step::Flush => tx.flush(),
            Step::Release(count) => {
                for packet in self.held.drain(..count.min(self.held.len())) {
                    self.rig.cache.put(packet);
                }
            }
            Step::Misbehave(misdeed) => {
                self.rig.bench.misbehave(misdeed);
            }
        }
    }

    /// What has left is what was sent first.
    fn collect(&mut self) {
        let out = self.rig.bench.collect(0);
        let sent: Vec<u32> = self.sent.drain(..out.len()).collect();
        for (bytes, number) in out.iter().zip(sent) {
            assert!(*bytes == B::frame(number, FRAME_CAPACITY), "frame {number} has left");
        }
    }
}

fn number(packet: &Packet) -> u32 {
    packet.bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Takes all steps and brings every buffer home.
pub(crate) fn run<B: Bench>(rig: Rig<B>, steps: Vec<Step>) {
    let mut hands = Hands { rig, held: Vec::new(), fed: 0, received: 0, sent: Vec::new() };
    steps.into_iter().for_each(|step| hands.take(step));
    let Hands { mut rig, held, .. } = hands;
    rig.bench.device().stop();
    drop(held);
    rig.finish();
}

mod contention;

use std::collections::HashMap;
use std::string::String;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::vec::Vec;

use netdrv::pool::Pool;
use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::stats::Counts;
use crate::testing::{FakeRx, FakeTx, RxState, Wire, cpu, fake_ports, pool};
use crate::verdict::{PortId, VerdictKind};
use crate::{Assembly, assemble};

mod asleep;
mod steering;

type FakeWorker = Worker<FakeRx, FakeTx>;

/// A forwarder over fake ports, stepped by hand.
struct Bench {
    control: alloc::sync::Arc<Control<FakeRx, FakeTx>>,
    workers: Vec<FakeWorker>,
    wires: Vec<Wire>,
    pool: &'static Pool,
    /// Frames sent to each (port, queue) so far: the next one's number.
    numbers: HashMap<(usize, usize), u16>,
    /// Flows that frames belong to in turn.
    flows: u16,
}

struct Shape<'a> {
    words: &'a str,
    workers: usize,
    rx_queues: usize,
    tx_queues: &'a [usize],
    ring: usize,
}

impl Bench {
    fn new(shape: Shape<'_>) -> Bench {
        Bench::over(pool(1024), shape)
    }

    fn over(pool: &'static Pool, shape: Shape<'_>) -> Bench {
        Bench::on(cpu(), pool, shape)
    }

    fn on(cpu: Cpu, pool: &'static Pool, shape: Shape<'_>) -> Bench {
        let config = Config::read(shape.words, None).unwrap();
        let (ports, wires) = fake_ports(shape.rx_queues, shape.tx_queues, shape.ring);
        let Assembly { control, workers } = assemble(ports, &config, shape.workers, pool, cpu).unwrap();
        Bench { control, workers, wires, pool, numbers: HashMap::new(), flows: 1 }
    }

    /// Two ports with a queue each, one worker.
    fn pair(words: &str, ring: usize) -> Bench {
        Bench::new(Shape { words, workers: 1, rx_queues: 1, tx_queues: &[1, 1], ring })
    }

    /// Frames arrive that say where and as which one they did: port, queue, number. Their flow is told by the stations,
    /// the same whichever way round they are.
    fn arrive(&mut self, port: usize, queue: usize, count: usize, len: usize) {
        for _ in 0..count {
            let number = self.numbers.entry((port, queue)).or_default();
            let mut frame = std::vec![0; len];
            let flow = (*number % self.flows).to_be_bytes();
            frame[0..2].copy_from_slice(&flow);
            frame[6..8].copy_from_slice(&flow);
            frame[12..16].copy_from_slice(&[port as u8, queue as u8, (*number >> 8) as u8, *number as u8]);
            *number += 1;
            self.wires[port].rx[queue].state().arriving.push_back(frame);
        }
    }

    fn arrive_raw(&mut self, port: usize, frame: &[u8]) {
        self.wires[port].rx[0].state().arriving.push_back(frame.to_vec());
    }

    fn round(&mut self) {
        for worker in &mut self.workers {
            worker.round();
        }
    }

    fn counts(&self, port: usize) -> Counts {
        self.control.counts(PortId(port as u16))
    }

    fn dropped(&self, port: usize, reason: DropReason) -> u64 {
        self.counts(port)[Counter::Drop(reason)]
    }

    fn all_tx(&self) -> impl Iterator<Item = &FakeTx> {
        self.wires.iter().flat_map(|wire| &wire.tx)
    }

    /// The devices send everything, until nothing moves any more.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.all_tx().for_each(|tx| tx.complete(usize::MAX));
            if self.workers.iter_mut().all(|worker| worker.round() == RoundKind::Idle) {
                return;
            }
        }
        panic!("the forwarder does not come to rest");
    }

    /// The promises of `metrics`, each against what the fake devices know.
    fn check(&self) {
        let mut forwarded_by_origin = HashMap::new();
        for tx in self.all_tx() {
            let state = tx.state();
            assert!(state.is_flushed(), "the device was not told of all descriptors");
            for frame in state.sent.iter().map(Vec::as_slice).chain(state.pending()) {
                *forwarded_by_origin.entry(usize::from(frame[12])).or_default() += 1;
            }
        }
        for (port, wire) in self.wires.iter().enumerate() {
            let counts = self.counts(port);
            let refused = |refused: netdrv::device::RxDrops| {
                refused.oversize + refused.truncated + refused.unknown_descriptor
            };
            let received: u64 = wire
                .rx
                .iter()
                .map(|rx| rx.state())
                .map(|state| state.taken as u64 + refused(state.refused))
                .sum();
            assert_eq!(counts[Counter::RxPackets], received, "port {port}");
            assert_eq!(
                counts[Counter::Forwarded],
                forwarded_by_origin.get(&port).copied().unwrap_or(0),
                "port {port}"
            );
            assert_eq!(
                received,
                counts.dropped()
                    + counts[Counter::Passed]
                    + counts[Counter::Forwarded]
                    + counts[Counter::Waiting],
                "port {port}: {counts:?}"
            );
            let held: usize = wire.tx.iter().map(|tx| tx.state().held()).sum();
            assert_eq!(counts[Counter::TxPackets] - counts[Counter::TxCompleted], held as u64, "port {port}");
        }
        let lined_up: usize = self.workers.iter().map(|worker| worker.outputs.lined_up()).sum();
        let sum =
            |of: fn(Counts) -> u64| -> u64 { (0..self.wires.len()).map(|port| of(self.counts(port))).sum() };
        let in_steering = sum(|counts| counts.in_steering());
        assert_eq!(sum(|counts| counts[Counter::Waiting]), lined_up as u64 + in_steering);
    }

    /// Ends the forwarder as the image does, and sees every buffer home.
    fn end(self) {
        let Bench { control, workers, wires, pool, .. } = self;
        control.stop();
        for tx in wires.iter().flat_map(|wire| &wire.tx) {
            tx.complete(usize::MAX);
        }
        // Each on a thread of its own: those that steer wait for each other.
        thread::scope(|scope| {
            workers.into_iter().for_each(|worker| drop(scope.spawn(|| worker.run(&control, None))));
        });
        let queues = control.wait_stopped().expect("the first to ask gets the queues");
        assert!(control.wait_stopped().is_none());
        drop(wires);
        drop(queues);
        assert_eq!(pool.in_depot(), pool.count());
        let mut text = String::new();
        control.write_metrics(&[], &mut text).unwrap();
        let free = std::format!("sluice_pool_free_packets {}\n", pool.count());
        assert!(text.contains(&free), "{text}");
    }
}

#[test]
fn queues_are_told_what_becomes_of_their_frames() {
    for (words, are_unread, are_kept_full) in [
        ("program=drop", [true, true], false),
        ("program=forward", [true, true], false),
        ("program=reflect", [false, false], false),
        ("program=pass", [false, false], false),
        ("program=forward stack=1@192.0.2.1/24", [true, false], false),
    ] {
        let bench = Bench::pair(words, 64);
        let told = |of: fn(&RxState) -> bool| [0, 1].map(|port: usize| of(&bench.wires[port].rx[0].state()));
        assert_eq!(told(|queue| queue.are_unread), are_unread, "{words}");
        assert_eq!(told(|queue| queue.is_kept_full), [are_kept_full; 2], "{words}");
    }
    for (words, tx_queues, are_kept_full) in [
        ("program=reflect", [2, 2], [false, false]),
        ("program=pass", [2, 2], [false, true]),
        ("program=reflect stack=1@192.0.2.1/24", [3, 3], [false, true]),
        ("program=reflect", [1, 1], [true, true]),
    ] {
        let bench = Bench::new(Shape { words, workers: 2, rx_queues: 2, tx_queues: &tx_queues, ring: 64 });
        let told = [0, 1].map(|worker: usize| bench.wires[1].rx[worker].state().is_kept_full);
        assert_eq!(told, are_kept_full, "{words} of two workers, {tx_queues:?} queues");
    }
    let steered =
        Shape { words: "program=drop rx=software", workers: 2, rx_queues: 1, tx_queues: &[1, 1], ring: 64 };
    let steered = Bench::new(steered);
    let queue = steered.wires[0].rx[0].state();
    assert!(!queue.are_unread, "flows are told by their frames");
    assert!(queue.is_kept_full, "packets end on the workers that they are handed to");
}

#[test]
fn forward_sends_to_the_partner_unchanged() {
    let mut bench = Bench::pair("program=forward", 256);
    bench.arrive(0, 0, 3, 60);
    bench.arrive(1, 0, 1, 1514);
    bench.round();
    bench.check();
    bench.settle();
    assert_eq!(bench.wires[1].tx[0].state().sent.len(), 3);
    assert_eq!(bench.wires[0].tx[0].state().sent[0].len(), 1514);
    let (zero, one) = (bench.counts(0), bench.counts(1));
    assert_eq!((zero[Counter::RxPackets], zero[Counter::RxBytes]), (3, 180));
    assert_eq!((zero[Counter::TxPackets], zero[Counter::TxBytes]), (1, 1514));
    assert_eq!((one[Counter::RxPackets], one[Counter::RxBytes]), (1, 1514));
    assert_eq!((one[Counter::TxPackets], one[Counter::TxBytes]), (3, 180));
    assert_eq!(zero[Counter::Verdict(VerdictKind::Redirect)], 3);
    bench.check();
    bench.end();
}

#[test]
fn one_doorbell_serves_a_burst() {
    let mut bench = Bench::pair("program=forward batch=32", 256);
    bench.arrive(0, 0, 32, 60);
    bench.round();
    assert_eq!(bench.wires[1].tx[0].state().flushes, 1);
    bench.settle();
    bench.end();
}

#[test]
fn a_batch_is_no_larger_than_the_setting() {
    let mut bench = Bench::pair("program=drop batch=5", 256);
    bench.arrive(0, 0, 12, 60);
    for taken in [5, 10, 12] {
        bench.round();
        assert_eq!(bench.wires[0].rx[0].state().taken, taken);
    }
    assert_eq!(bench.dropped(0, DropReason::Verdict), 12);
    bench.end();
}

#[test]
fn reflect_swaps_and_returns() {
    let mut bench = Bench::pair("program=reflect", 256);
    bench.arrive_raw(1, b"dstdstsrcsrc\x01\x00payload");
    bench.settle();
    assert_eq!(bench.wires[1].tx[0].state().sent, [b"srcsrcdstdst\x01\x00payload"]);
    assert_eq!(bench.counts(1)[Counter::Verdict(VerdictKind::Tx)], 1);
    bench.check();
    bench.end();
}

#[test]
fn pass_is_counted_and_goes_home() {
    let mut bench = Bench::pair("program=pass", 256);
    bench.arrive(0, 0, 7, 60);
    bench.settle();
    assert_eq!(bench.counts(0)[Counter::Passed], 7);
    assert_eq!(bench.counts(0)[Counter::Verdict(VerdictKind::Pass)], 7);
    bench.check();
    bench.end();
}

#[test]
fn a_runt_meets_no_program() {
    for program in ["drop", "pass", "reflect", "forward"] {
        let mut bench = Bench::pair(&std::format!("program={program}"), 256);
        for len in [0, 1, 13] {
            bench.arrive_raw(0, &[0; 14][..len]);
        }
        bench.arrive_raw(0, &[0; 14]);
        bench.settle();
        let counts = bench.counts(0);
        assert_eq!(counts[Counter::Drop(DropReason::Runt)], 3, "{program}");
        assert_eq!(counts[Counter::RxPackets], 4);
        let verdicts: u64 = VerdictKind::ALL.iter().map(|&kind| counts[Counter::Verdict(kind)]).sum();
        assert_eq!(verdicts, 1, "{program}");
        bench.end();
    }
}

#[test]
fn the_last_of_three_ports_has_no_partner() {
    let shape = Shape { words: "", workers: 1, rx_queues: 1, tx_queues: &[1, 1, 1], ring: 64 };
    let mut bench = Bench::new(shape);
    bench.arrive(2, 0, 4, 60);
    bench.arrive(0, 0, 4, 60);
    bench.settle();
    assert_eq!(bench.dropped(2, DropReason::NoSuchPort), 4);
    assert_eq!(bench.counts(0)[Counter::Forwarded], 4);
    bench.check();
    bench.end();
}

#[test]
fn a_port_without_tx_queue_drops_what_is_sent_to_it() {
    let shape = Shape { words: "", workers: 2, rx_queues: 1, tx_queues: &[0, 1], ring: 64 };
    let mut bench = Bench::new(shape);
    bench.arrive(0, 0, 4, 60);
    bench.arrive(1, 0, 5, 60);
    bench.settle();
    assert_eq!(bench.dropped(1, DropReason::TxUnavailable), 5);
    assert_eq!(bench.counts(0)[Counter::Forwarded], 4);
    bench.check();
    bench.end();
}

#[test]
fn a_full_ring_makes_a_burst_wait_and_drops_the_rest() {
    let mut bench = Bench::pair("program=forward batch=64", 64);
    bench.arrive(0, 0, 300, 60);
    (0..10).for_each(|_| bench.round());
    let counts = bench.counts(0);
    assert_eq!(counts[Counter::RxPackets], 300, "receiving never waits for a ring");
    assert_eq!(counts[Counter::Forwarded], 64);
    assert_eq!(counts[Counter::Waiting], 64);
    assert_eq!(counts[Counter::Drop(DropReason::TxRingFull)], 300 - 128);
    bench.check();

    bench.settle();
    assert_eq!(bench.counts(0)[Counter::Waiting], 0);
    assert_eq!(bench.counts(0)[Counter::Forwarded], 128);
    let sent: Vec<u8> = bench.wires[1].tx[0].state().sent.iter().map(|frame| frame[15]).collect();
    assert_eq!(sent, (0..128).collect::<Vec<u8>>(), "what waited goes first");
    bench.end();
}

#[test]
fn a_stuck_port_costs_the_others_nothing() {
    let shape = Shape { words: "batch=16", workers: 1, rx_queues: 1, tx_queues: &[1, 1, 1, 1], ring: 64 };
    let mut bench = Bench::new(shape);
    for _ in 0..40 {
        bench.arrive(0, 0, 16, 60); // To port 1, whose device is dead.
        bench.arrive(2, 0, 16, 60);
        bench.round();
        bench.wires[3].tx[0].complete(usize::MAX);
        bench.check();
    }
    assert_eq!(bench.counts(2)[Counter::Forwarded], 640);
    assert_eq!(bench.counts(2).dropped(), 0);
    assert_eq!(bench.counts(0)[Counter::Forwarded], 64);
    bench.settle();
    bench.end();
}

#[test]
fn buffers_go_home_when_traffic_stops() {
    let mut bench = Bench::pair("program=forward", 256);
    bench.arrive(0, 0, 20, 60);
    bench.round();
    bench.wires[1].tx[0].complete(20);
    bench.round();
    assert_eq!(bench.wires[1].tx[0].state().held(), 0);
    bench.end();
}

#[test]
fn what_the_driver_refused_was_received_and_dropped() {
    let mut bench = Bench::pair("program=forward", 256);
    {
        let mut state = bench.wires[0].rx[0].state();
        state.refused.oversize = 3;
        state.refused.truncated = 2;
        state.refused.unknown_descriptor = 1;
    }
    bench.round();
    bench.round();
    bench.arrive(0, 0, 1, 60);
    bench.settle();
    assert_eq!(bench.counts(0)[Counter::RxPackets], 7);
    assert_eq!(bench.dropped(0, DropReason::Oversize), 3);
    assert_eq!(bench.dropped(0, DropReason::Truncated), 2);
    assert_eq!(bench.dropped(0, DropReason::UnknownDescriptor), 1);
    bench.check();
    bench.end();
}

#[test]
fn what_the_device_cannot_send_is_a_drop() {
    let mut bench = Bench::pair("program=forward", 256);
    bench.wires[1].tx[0].state().max_frame = 100;
    bench.arrive(0, 0, 3, 60);
    bench.arrive(0, 0, 2, 101);
    bench.arrive(0, 0, 4, 100);
    bench.settle();
    assert_eq!(bench.dropped(0, DropReason::TxRefused), 2);
    assert_eq!(bench.counts(0)[Counter::Forwarded], 7);
    assert_eq!(bench.counts(1)[Counter::TxPackets], 7);
    bench.check();
    bench.end();
}

#[test]
fn a_device_that_never_completes_does_not_hold_up_the_end() {
    let mut bench = Bench::pair("program=forward batch=64", 64);
    bench.arrive(0, 0, 100, 60);
    (0..3).for_each(|_| bench.round());
    assert_eq!(bench.counts(0)[Counter::Waiting], 36);
    bench.control.stop();
    bench.workers.pop().unwrap().run(&bench.control, None);
    assert_eq!(bench.counts(0)[Counter::Waiting], 0);
    assert_eq!(bench.counts(0)[Counter::Drop(DropReason::TxRingFull)], 36);
    bench.check();
    bench.end();
}

#[test]
fn chores_are_done_under_load_and_say_stop() {
    let mut bench = Bench::pair("program=drop batch=1", 64);
    bench.arrive(0, 0, 1000, 60);
    let chores = AtomicUsize::new(0);
    let worker = bench.workers.pop().unwrap();
    worker.run(
        &bench.control,
        Some(&mut || {
            if chores.fetch_add(1, Ordering::Relaxed) == 2 {
                bench.control.stop();
            }
        }),
    );
    assert_eq!(chores.into_inner(), 3);
    assert!(bench.wires[0].rx[0].state().taken < 1000, "it was still under load");
    bench.check();
}

#[test]
fn workers_on_threads_share_a_queue_and_lose_nothing() {
    on_threads(Shape { words: "tx=shared", workers: 2, rx_queues: 2, tx_queues: &[1, 1], ring: 64 }, 20_000);
}

/// Each worker has a thread of its own, and a reader looks on while so many frames go from every queue of port 0 to port 1.
fn on_threads(shape: Shape<'_>, frames: usize) {
    let total = (shape.rx_queues * frames) as u64;
    let mut bench = Bench::new(shape);
    bench.flows = 100;
    for queue in 0..bench.wires[0].rx.len() {
        bench.arrive(0, queue, frames, 60);
    }
    let (control, wires) = (&*bench.control, &bench.wires);
    let running = &AtomicUsize::new(bench.workers.len());
    thread::scope(|scope| {
        for worker in bench.workers.drain(..) {
            scope.spawn(move || {
                worker.run(control, None);
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut equation_held = true;
        while running.load(Ordering::Relaxed) > 0 {
            wires[1].tx.iter().for_each(|tx| tx.complete(16));
            let counts = control.counts(PortId(0));
            equation_held &= counts[Counter::Waiting] <= counts[Counter::RxPackets];
            let ends = counts.dropped() + counts[Counter::Forwarded] + counts[Counter::Waiting];
            equation_held &= counts[Counter::RxPackets] == ends;
            if counts[Counter::RxPackets] == total {
                control.stop();
            }
        }
        assert!(equation_held, "in every reading");
    });
    assert_eq!(bench.counts(0)[Counter::Waiting], 0);
    bench.check();
    check_order(&bench);
    bench.end();
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { port: usize, queue: usize, count: usize, len: usize },
    Refuse { port: usize },
    Round { worker: usize },
    Complete { port: usize, queue: usize, count: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5usize, 0..3usize, 1..100usize, 16..200usize)
            .prop_map(|(port, queue, count, len)| Step::Arrive { port, queue, count, len }),
        1 => (0..5usize).prop_map(|port| Step::Refuse { port }),
        6 => (0..4usize).prop_map(|worker| Step::Round { worker }),
        3 => (0..5usize, 0..4usize, 1..100usize)
            .prop_map(|(port, queue, count)| Step::Complete { port, queue, count }),
    ]
}

fn take(bench: &mut Bench, step: Step) {
    match step {
        Step::Arrive { port, queue, count, len } => {
            let port = port % bench.wires.len();
            bench.arrive(port, queue % bench.wires[port].rx.len(), count, len);
        }
        Step::Refuse { port } => {
            let port = port % bench.wires.len();
            bench.wires[port].rx[0].state().refused.oversize += 1;
            bench.settle(); // So that the worker has seen it.
        }
        Step::Round { worker } => {
            let worker = worker % bench.workers.len();
            bench.workers[worker].round();
        }
        Step::Complete { port, queue, count } => {
            let tx = &bench.wires[port % bench.wires.len()].tx;
            if let Some(tx) = tx.get(queue) {
                tx.complete(count);
            }
        }
    }
}

/// Frames of one RX queue and one flow leave in the order of their numbers, wherever they leave.
fn check_order(bench: &Bench) {
    for tx in bench.all_tx() {
        let mut last = HashMap::new();
        for frame in &tx.state().sent {
            let number = u16::from_be_bytes([frame[14], frame[15]]);
            let before = last.insert((frame[12], frame[13], frame[0], frame[1]), number);
            assert!(before.is_none_or(|before| before < number), "{before:?} before {number}");
        }
    }
}

#[test]
fn every_packet_is_accounted_for_at_any_time() {
    // One pool for all cases, since a pool is for ever; each case leaves it full.
    let pool = pool(4096);
    proptest!(|(
        program in prop::sample::select(std::vec!["drop", "pass", "reflect", "forward"]),
        tx in prop::sample::select(std::vec!["auto", "shared"]),
        (rx, flows) in prop::sample::select(std::vec![("hardware", 1), ("hardware", 60), ("software", 60)]),
        workers in 1..5usize,
        rx_queues in 1..4usize,
        tx_queues in prop::collection::vec(1..5usize, 1..6),
        ring in prop::sample::select(std::vec![1, 5, 64, 256]),
        batch in 1..65usize,
        steps in prop::collection::vec(step(), 1..60),
    )| {
        let words = std::format!("program={program} batch={batch} tx={tx} rx={rx}");
        let shape = Shape { words: &words, workers, rx_queues, tx_queues: &tx_queues, ring };
        let mut bench = Bench::over(pool, shape);
        bench.flows = flows;
        // Each program sends to a port only what one other received: the origin of a refused frame is known.
        bench.wires[0].tx.iter().for_each(|tx| tx.state().max_frame = 150);
        for step in steps {
            take(&mut bench, step);
            bench.check();
        }
        bench.settle();
        bench.check();
        check_order(&bench);
        for port in 0..bench.wires.len() {
            prop_assert_eq!(bench.counts(port)[Counter::Waiting], 0);
        }
        bench.end();
    });
}

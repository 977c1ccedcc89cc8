//! Bursts that find their queue in another's hands.

use std::sync::Arc;

use super::*;
use crate::txpath::SharedTx;

/// One worker, and the queue that it shares with another, whom the test plays.
fn reflecting() -> (Bench, Arc<SharedTx<FakeTx>>) {
    let words = "program=reflect tx=shared";
    let bench = Bench::new(Shape { words, workers: 1, rx_queues: 1, tx_queues: &[1], ring: 256 });
    let queue = bench.workers[0].outputs.shared_queue(PortId(0));
    (bench, queue)
}

/// The numbers of the frames that have left, in order.
fn sent(bench: &Bench) -> Vec<u8> {
    bench.wires[0].tx[0].state().sent.iter().map(|frame| frame[15]).collect()
}

#[test]
fn a_burst_waits_in_the_worker_and_leaves_in_order_with_the_next() {
    let (mut bench, queue) = reflecting();
    let held = queue.hold();
    bench.arrive(0, 0, 20, 60);
    for _ in 0..3 {
        bench.round();
        bench.check();
        assert_eq!(bench.counts(0)[Counter::Waiting], 20);
    }
    drop(held);
    bench.arrive(0, 0, 5, 60);
    bench.round();
    assert_eq!(bench.counts(0)[Counter::Waiting], 0);
    bench.settle();
    assert_eq!(sent(&bench), (0..25).collect::<Vec<u8>>());
    assert_eq!(bench.counts(0).dropped(), 0);
    bench.check();
    bench.end();
}

#[test]
fn contention_drops_nothing_however_large_the_batch() {
    for batch in [1, 31, 32, 33, 64] {
        let words = std::format!("program=reflect tx=shared batch={batch}");
        let shape = Shape { words: &words, workers: 1, rx_queues: 2, tx_queues: &[2], ring: 256 };
        let mut bench = Bench::new(shape);
        let queue = bench.workers[0].outputs.shared_queue(PortId(0));
        bench.arrive(0, 0, 100, 60);
        bench.arrive(0, 1, 100, 60);
        let bench = thread::scope(|scope| {
            // Whoever keeps no more than it may has to wait for the lock in the end.
            let held = queue.hold();
            let forwarding = scope.spawn(move || {
                (0..200).for_each(|_| bench.round());
                bench
            });
            (0..100).for_each(|_| thread::yield_now());
            assert!(!forwarding.is_finished(), "200 packets are more than a worker keeps");
            drop(held);
            forwarding.join().unwrap()
        });
        assert_eq!(bench.counts(0).dropped(), 0, "batch={batch}");
        assert_eq!(bench.counts(0)[Counter::Forwarded], 200, "batch={batch}");
        bench.check();
        bench.end();
    }
}

#[test]
fn what_is_kept_leaves_before_the_end() {
    let (mut bench, queue) = reflecting();
    bench.arrive(0, 0, 20, 60);
    let held = queue.hold();
    bench.round();
    drop(held);
    drop(queue);
    bench.control.stop();
    bench.workers.pop().unwrap().run(&bench.control, None);
    bench.wires[0].tx[0].complete(64);
    assert_eq!(sent(&bench), (0..20).collect::<Vec<u8>>());
    bench.check();
    bench.end();
}

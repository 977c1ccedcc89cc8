//! Workers that steer (`rx=software`).

use super::*;

fn software(words: &str, workers: usize, rx_queues: usize, tx_queues: &[usize], ring: usize) -> Bench {
    let words = std::format!("rx=software {words}");
    let mut bench = Bench::new(Shape { words: &words, workers, rx_queues, tx_queues, ring });
    bench.flows = 100;
    bench
}

#[test]
fn every_worker_sends_what_one_queue_receives() {
    let mut bench = software("program=forward", 4, 1, &[4, 4], 1024);
    for _ in 0..10 {
        bench.arrive(0, 0, 100, 60);
        bench.round();
        bench.check();
    }
    bench.settle();
    for tx in &bench.wires[1].tx {
        let sent = tx.state().sent.len();
        assert!(sent > 150, "{sent} of 1000 frames");
    }
    let counts = bench.counts(0);
    assert_eq!((counts[Counter::RxPackets], counts[Counter::RxBytes]), (1000, 60_000));
    assert_eq!((counts[Counter::Forwarded], counts[Counter::Waiting]), (1000, 0));
    assert!(counts[Counter::Steered] > 600);
    check_order(&bench);
    bench.end();
}

#[test]
fn packets_in_the_rings_are_waiting() {
    let mut bench = software("program=drop", 2, 1, &[1, 1], 256);
    bench.arrive(0, 0, 32, 60);
    bench.workers[0].round();
    let counts = bench.counts(0);
    assert_eq!(counts[Counter::RxPackets], 32);
    assert!(counts.in_steering() > 0 && counts[Counter::Waiting] == counts.in_steering());
    assert_eq!(counts[Counter::Waiting] + counts[Counter::Drop(DropReason::Verdict)], 32);
    bench.check();
    bench.workers[1].round();
    assert_eq!(bench.counts(0)[Counter::Drop(DropReason::Verdict)], 32);
    bench.check();
    bench.end();
}

#[test]
fn a_worker_that_does_not_come_to_its_ring_costs_what_is_its_own() {
    let mut bench = software("program=drop batch=64", 2, 1, &[1, 1], 256);
    bench.arrive(0, 0, 2000, 60);
    for _ in 0..40 {
        bench.workers[0].round();
        bench.check();
    }
    let counts = bench.counts(0);
    assert_eq!(counts[Counter::RxPackets], 2000, "receiving goes on");
    assert_eq!(counts[Counter::Waiting], 256, "a ring's worth");
    let refused = counts[Counter::Drop(DropReason::SteerRingFull)];
    assert_eq!(refused + 256 + counts[Counter::Drop(DropReason::Verdict)], 2000);
    assert!(refused > 500, "{counts:?}");
    bench.settle();
    bench.check();
    bench.end();
}

#[test]
fn what_is_the_stacks_passes_a_ring_that_a_flood_has_filled() {
    let mut bench = software("program=drop stack=192.0.2.1/24 batch=64", 2, 1, &[1, 1], 256);
    bench.arrive(0, 0, 2000, 60);
    // From 50 stations: some of these flows would be the other worker's.
    for station in 0..50 {
        bench.arrive_raw(0, &to_the_stack(station));
    }
    while bench.workers[0].round() == RoundKind::Busy {}
    assert!(bench.dropped(0, DropReason::SteerRingFull) > 0, "the ring is full");
    assert_eq!(bench.counts(0)[Counter::Passed], 50);
    bench.check();
    bench.settle();
    bench.end();
}

/// An IPv4 packet from one station to the stack, as far as anyone looks who is not the stack.
fn to_the_stack(station: u8) -> Vec<u8> {
    let mut frame = std::vec![0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0]);
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[26..30].copy_from_slice(&[192, 0, 2, 100 + station]);
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame
}

#[test]
fn packets_in_the_rings_are_decided_on_at_the_end() {
    let mut bench = software("program=forward", 3, 1, &[3, 3], 256);
    bench.arrive(0, 0, 60, 60);
    bench.workers[0].round();
    bench.workers[0].round();
    assert!(bench.counts(0)[Counter::Waiting] > 0);
    let control = bench.control.clone();
    bench.end();
    let counts = control.counts(PortId(0));
    assert_eq!((counts[Counter::Forwarded], counts[Counter::Waiting]), (60, 0));
}

#[test]
fn a_runt_is_counted_once() {
    let mut bench = software("program=forward", 4, 1, &[4, 4], 256);
    for len in 0..14 {
        bench.arrive_raw(0, &[0; 14][..len]);
    }
    bench.settle();
    assert_eq!(bench.dropped(0, DropReason::Runt), 14);
    bench.check();
    bench.end();
}

#[test]
fn one_worker_needs_no_rings() {
    let mut bench = software("program=forward", 1, 1, &[1, 1], 256);
    bench.arrive(0, 0, 32, 60);
    bench.settle();
    let counts = bench.counts(0);
    assert_eq!((counts[Counter::Forwarded], counts[Counter::Steered]), (32, 0));
    bench.end();
}

#[test]
fn every_worker_has_work_if_there_is_a_queue_at_all() {
    let bench = software("", 4, 1, &[4], 64);
    assert!(bench.workers.iter().all(Worker::has_work));
    let bench = software("", 4, 0, &[4], 64);
    assert!(!bench.workers.iter().any(Worker::has_work));
    let shape = Shape { words: "rx=hardware", workers: 4, rx_queues: 1, tx_queues: &[4], ring: 64 };
    let has_work: Vec<bool> = Bench::new(shape).workers.iter().map(Worker::has_work).collect();
    assert_eq!(has_work, [true, false, false, false]);
}

#[test]
fn workers_on_threads_steer_and_lose_nothing() {
    let words = "rx=software tx=shared";
    on_threads(Shape { words, workers: 3, rx_queues: 1, tx_queues: &[2, 2], ring: 64 }, 20_000);
}

//! Workers that sleep (`idle=adaptive`) and are woken by others. A sleep that nobody ends lasts a minute here, longer than
//! any test waits: a wake-up that is lost shows.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use super::*;
use crate::idle::Cpu;
use crate::testing::{arp_request, cpu};

const PATIENCE: Duration = Duration::from_secs(30);

/// The threads of the workers of one test.
type Threads = Mutex<Option<HashMap<usize, thread::Thread>>>;

/// A thread's park, which a wake-up between the look and the sleep ends as well.
fn park(limit: Duration, ready: &mut dyn FnMut() -> bool) {
    if !ready() {
        thread::park_timeout(if limit > ATTENTIVE { 2 * PATIENCE } else { limit });
    }
}

fn unpark(threads: &Threads, worker: usize) {
    threads.lock().unwrap().as_ref().unwrap()[&worker].unpark();
}

/// Stops the workers also where the test fails: their threads are waited for.
struct StopAtEnd<'a>(&'a Control<FakeRx, FakeTx>);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs each worker on a thread of its own while `drive` has its way.
fn run(bench: &mut Bench, threads: &'static Threads, drive: impl FnOnce(&Bench)) {
    let workers: Vec<FakeWorker> = bench.workers.drain(..).collect();
    let control = bench.control.clone();
    let begin = &Barrier::new(workers.len() + 1);
    thread::scope(|scope| {
        let control = &*control;
        let spawn = |(number, worker): (usize, FakeWorker)| {
            let handle = scope.spawn(move || {
                begin.wait();
                worker.run(control, None);
            });
            (number, handle.thread().clone())
        };
        *threads.lock().unwrap() = Some(workers.into_iter().enumerate().map(spawn).collect());
        begin.wait();
        let _stop = StopAtEnd(control);
        drive(bench);
    });
}

fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}");
        thread::yield_now();
    }
}

/// Wake-ups of all workers.
fn wakeups(bench: &Bench) -> u64 {
    let mut text = String::new();
    bench.control.write_metrics(&[], &mut text).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("sluice_core_wakeups_total{"));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_packet_that_is_handed_over_wakes_its_worker() {
    static THREADS: Threads = Mutex::new(None);
    let cpu = Cpu { sleep: park, wake: |worker| unpark(&THREADS, worker), ..cpu() };
    let words = "rx=software program=forward";
    let shape = Shape { words, workers: 3, rx_queues: 1, tx_queues: &[3, 3], ring: 64 };
    let mut bench = Bench::on(cpu, pool(1024), shape);
    bench.flows = 100;
    let sent = |bench: &Bench| bench.wires[1].tx.iter().map(|tx| tx.state().sent.len()).sum::<usize>();
    run(&mut bench, &THREADS, |bench| {
        for number in 0..500_usize {
            // The flows take turns, so most of them are for a worker that sleeps.
            let mut frame = std::vec![0; 60];
            frame[..2].copy_from_slice(&(number as u16).to_be_bytes());
            bench.wires[0].rx[0].state().arriving.push_back(frame);
            wait_until("the frame leaves", || {
                bench.all_tx().for_each(|tx| tx.complete(usize::MAX));
                sent(bench) > number
            });
        }
    });
    assert_eq!((sent(&bench), bench.counts(0)[Counter::Waiting]), (500, 0));
    assert!(wakeups(&bench) > 0);
    bench.check();
    bench.end();
}

/// Worker 0 runs the stack of port 1, which worker 1 receives for.
#[test]
fn a_packet_that_is_passed_wakes_the_worker_of_the_stacks() {
    static THREADS: Threads = Mutex::new(None);
    let cpu = Cpu { sleep: park, wake: |worker| unpark(&THREADS, worker), ..cpu() };
    let words = "program=drop stack=1@192.0.2.1/24";
    let shape = Shape { words, workers: 2, rx_queues: 1, tx_queues: &[3, 3], ring: 64 };
    let mut bench = Bench::on(cpu, pool(1024), shape);
    // As if the queue of worker 0, where nothing comes in, interrupted: no reason to look at it in between.
    bench.workers[0].inputs[0].interrupts = true;
    let request = arp_request();
    let answers = |bench: &Bench| bench.counts(1)[Counter::StackSent];
    run(&mut bench, &THREADS, |bench| {
        for _ in 0..200 {
            let before = answers(bench);
            bench.wires[1].rx[0].state().arriving.push_back(request.clone());
            wait_until("the stack answers", || {
                bench.all_tx().for_each(|tx| tx.complete(usize::MAX));
                answers(bench) > before
            });
        }
    });
    assert_eq!(bench.counts(1)[Counter::Passed], 200);
    assert!(wakeups(&bench) > 0);
    bench.end();
}

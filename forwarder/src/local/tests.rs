use std::string::String;
use std::vec::Vec;

use super::*;
use crate::config::Config;
use crate::testing::{FakeRx, FakeTx, Wire, cpu, fake_ports, pool};
use crate::{Assembly, assemble};

const STACK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const STACK_IP: [u8; 4] = [192, 0, 2, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const PEER_IP: [u8; 4] = [192, 0, 2, 2];

const OPERATION_REQUEST: u8 = 1;
const OPERATION_REPLY: u8 = 2;

/// An ARP packet of the peer, padded to the least length of a frame (RFC 826).
fn arp_request() -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend([0xff; 6]);
    frame.extend(PEER_MAC);
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, OPERATION_REQUEST]);
    frame.extend(PEER_MAC);
    frame.extend(PEER_IP);
    frame.extend([0; 6]);
    frame.extend(STACK_IP);
    frame.resize(60, 0);
    frame
}

fn is_arp_reply(frame: &[u8]) -> bool {
    frame[..6] == PEER_MAC
        && frame[6..12] == STACK_MAC
        && frame[12..14] == [0x08, 0x06]
        && frame[21] == OPERATION_REPLY
}

/// A frame that is none of the stack's.
fn foreign() -> Vec<u8> {
    let mut frame = std::vec![0; 60];
    frame[..6].copy_from_slice(&STACK_MAC);
    frame[6..12].copy_from_slice(&PEER_MAC);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

struct Bench {
    assembly: Assembly<FakeRx, FakeTx>,
    wires: Vec<Wire>,
    pool: &'static netdrv::pool::Pool,
}

impl Bench {
    /// Two ports; port 0 has the stack.
    fn new(words: &str, workers: usize, tx_queues: usize, ring: usize) -> Bench {
        let words =
            if words.contains("stack=") { words.into() } else { std::format!("stack=192.0.2.1/24 {words}") };
        let config = Config::read(&words, None).unwrap();
        let pool = pool(2048);
        let (ports, wires) = fake_ports(1, &[tx_queues, tx_queues], ring);
        let assembly = assemble(ports, &config, workers, pool, cpu()).unwrap();
        Bench { assembly, wires, pool }
    }

    fn arrive(&self, port: usize, frame: &[u8], count: usize) {
        for _ in 0..count {
            self.wires[port].rx[0].state().arriving.push_back(frame.to_vec());
        }
    }

    fn rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.assembly.workers.iter_mut().for_each(|worker| {
                worker.round();
            });
        }
    }

    /// Rounds in which the devices send everything.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.wires.iter().flat_map(|wire| &wire.tx).for_each(|tx| tx.complete(usize::MAX));
            self.rounds(1);
        }
    }

    fn sent(&self, port: usize) -> Vec<Vec<u8>> {
        self.wires[port].tx.iter().flat_map(|tx| tx.state().sent.clone()).collect()
    }

    fn counts(&self, port: u16) -> Counts {
        self.assembly.control.counts(PortId(port))
    }

    fn check(&self) {
        for port in 0..2 {
            let counts = self.counts(port);
            let ends = counts.dropped()
                + counts[Counter::Passed]
                + counts[Counter::Forwarded]
                + counts[Counter::Waiting];
            assert_eq!(counts[Counter::RxPackets], ends, "port {port}: {counts:?}");
        }
        let sum = |counter| self.counts(0)[counter] + self.counts(1)[counter];
        assert_eq!(sum(Counter::Forwarded) + sum(Counter::StackSent), sum(Counter::TxPackets));
    }
}

#[test]
fn the_stack_answers_whatever_the_program_says() {
    for program in ["drop", "pass", "reflect", "forward"] {
        let mut bench = Bench::new(&std::format!("program={program}"), 1, 2, 64);
        bench.arrive(0, &arp_request(), 1);
        bench.settle();
        let replies = bench.sent(0).iter().filter(|frame| is_arp_reply(frame)).count();
        assert_eq!(replies, 1, "program={program}");
        let counts = bench.counts(0);
        assert_eq!((counts[Counter::Passed], counts[Counter::Verdict(VerdictKind::Pass)]), (1, 1));
        bench.check();
    }
}

#[test]
fn what_is_not_the_stacks_follows_the_program() {
    let mut bench = Bench::new("program=reflect", 1, 2, 64);
    let mut mixed: Vec<Vec<u8>> = Vec::new();
    for number in 0..20 {
        mixed.push(if number % 3 == 0 { arp_request() } else { foreign() });
    }
    mixed.iter().for_each(|frame| bench.arrive(0, frame, 1));
    bench.arrive(1, &arp_request(), 1);
    bench.settle();
    let reflected = bench.sent(0).iter().filter(|frame| frame[12..14] == [0x88, 0xb5]).count();
    assert_eq!(reflected, 13);
    assert_eq!(bench.counts(0)[Counter::Passed], 7);
    assert_eq!(
        (bench.sent(1).len(), bench.counts(1)[Counter::Passed]),
        (1, 0),
        "port 1 has no stack: its ARP is reflected"
    );
    bench.check();
}

#[test]
fn a_worker_that_passes_more_than_the_stack_takes_counts_what_is_lost() {
    // Worker 1 receives for port 1, so the stack goes there; worker 0, which runs it, does not get to.
    let mut bench = Bench::new("stack=1@192.0.2.1/24 program=pass", 2, 3, 64);
    bench.arrive(1, &foreign(), QUEUE + 50);
    for _ in 0..20 {
        bench.assembly.workers[1].round();
    }
    let counts = bench.counts(1);
    assert_eq!(counts[Counter::Passed], QUEUE as u64);
    assert_eq!(counts[Counter::Drop(DropReason::StackQueueFull)], 50);
    bench.check();
    bench.settle();
    drop(bench.assembly);
    assert_eq!(bench.pool.in_depot(), bench.pool.count());
}

#[test]
fn the_owner_of_a_borrowed_queue_answers_when_borrowers_may_not_send() {
    let mut bench = Bench::new("program=reflect", 2, 1, 64);
    assert_eq!(
        std::string::ToString::to_string(bench.assembly.control.tx_plan(PortId(0))),
        "borrowed(2 cores/queue)"
    );
    bench.arrive(0, &foreign(), 300);
    bench.rounds(20);
    assert!(bench.counts(0)[Counter::Drop(DropReason::TxRingReserved)] > 0);
    assert_eq!(bench.counts(0)[Counter::TxPackets], 48, "a quarter of the ring is left");
    bench.arrive(0, &arp_request(), 10);
    bench.rounds(5);
    assert_eq!(bench.counts(0)[Counter::StackSent], 10);
    bench.settle();
    assert_eq!(bench.sent(0).iter().filter(|frame| is_arp_reply(frame)).count(), 10);
    bench.check();
}

#[test]
fn a_stack_on_a_port_that_is_not_there_is_refused_with_the_numbers() {
    let config = Config::read("stack=7@192.0.2.1/24", None).unwrap();
    let (ports, _wires) = fake_ports(1, &[1, 1], 64);
    let refusal: String = match assemble(ports, &config, 1, pool(64), cpu()) {
        Ok(_) => panic!("it was taken"),
        Err(refusal) => std::string::ToString::to_string(&refusal),
    };
    assert!(
        refusal.starts_with("sluice refused: command line: stack: port 7: there are 2 ports;"),
        "{refusal}"
    );
}

#[test]
fn a_stack_shows_its_counters() {
    let mut bench = Bench::new("program=pass", 2, 3, 64);
    bench.arrive(0, &arp_request(), 3);
    bench.arrive(0, &foreign(), 2);
    bench.settle();
    let mut text = String::new();
    bench.assembly.control.write_metrics(&[], &mut text).unwrap();
    for sample in [
        "sluice_stack_taken_packets_total{port=\"0\"} 5",
        "sluice_stack_handled_packets_total{port=\"0\"} 3",
        "sluice_stack_drops_total{port=\"0\",reason=\"not_local\"} 2",
        "sluice_stack_drops_total{port=\"0\",reason=\"malformed\"} 0",
        "sluice_stack_conflicts_total{port=\"0\"} 0",
    ] {
        assert!(text.lines().any(|line| line == sample), "no {sample} in\n{text}");
    }
    let value = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let made = value("sluice_stack_made_packets_total{");
    assert!(made >= 3, "{made} packets made");
    assert_eq!(made, value("sluice_stack_handed_out_packets_total{"));
    assert_eq!(made, value("sluice_stack_sent_packets_total{port=\"0\"}"));
    assert!(!text.contains("sluice_stack_taken_packets_total{port=\"1\"}"), "port 1 has no stack");
}

//! Workers as they ship, of which one sleeps and is woken by another. See [`wake`](crate::wake).

use alloc::sync::Arc;

use loom::thread::{self, JoinHandle};
use netdrv::pool::{BULK, Pool};
use netdrv::process::ReusedMemory;
use netdrv::sync;

use super::*;
use crate::config::Config;
use crate::testing::{FakeRx, FakeTx, Wire, arp_request, cpu, fake_ports};
use crate::verdict::VerdictKind;
use crate::wake::models::{sleep, sleep_here, wake};
use crate::{Assembly, assemble};

/// Two workers, of which this thread is the one that can be woken.
struct Scene {
    control: Arc<Control<FakeRx, FakeTx>>,
    workers: [Worker<FakeRx, FakeTx>; 2],
    wires: Vec<Wire>,
}

impl Scene {
    /// Over so many ports with one RX queue.
    fn new(words: &str, ports: usize) -> Scene {
        sleep_here();
        let config = Config::read(words, None).unwrap();
        let pool = Pool::new::<ReusedMemory>(2 * BULK).unwrap();
        let (ports, wires) = fake_ports(1, &[3, 3][..ports], 64);
        let cpu = Cpu { sleep, wake, ..cpu() };
        let Assembly { control, workers } = assemble(ports, &config, 2, pool, cpu).unwrap();
        let Ok(workers) = workers.try_into() else { panic!("two were asked for") };
        Scene { control, workers, wires }
    }
}

/// As [`sync::check`], with a model that has workers on its stack.
fn check(preemptions: usize, model: impl Fn() + Copy + Send + Sync + 'static) {
    sync::check(preemptions, move || spawn(model).join().unwrap());
}

/// A thread with a stack that a whole worker fits on: the checker's own have 32 KiB.
fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    const WORDS: usize = 0x1_0000;
    thread::Builder::new().stack_size(WORDS).spawn(body).unwrap()
}

#[test]
fn whom_packets_are_handed_to_is_awake_or_woken() {
    check(3, || {
        let Scene { control, workers: [mut receiver, mut sleeper], wires } =
            Scene::new("program=drop rx=software batch=1", 1);
        // Two frames of a flow that is the other worker's.
        let frame = |flow: u8| [&[flow; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
        let flow = (0..).find(|&flow| crate::steer::worker_of(&frame(flow), 2) == Some(1)).unwrap();
        wires[0].rx[0].state().arriving.extend([frame(flow), frame(flow)]);
        let receiving = spawn(move || {
            assert_eq!([receiver.round(), receiver.round()], [RoundKind::Busy; 2]);
            receiver
        });
        let decided =
            |sleeper: &mut Worker<_, _>| sleeper.ledger.port(PortId(0))[Counter::Verdict(VerdictKind::Drop)];
        while decided(&mut sleeper) < 2 {
            if sleeper.round() == RoundKind::Idle {
                sleeper.doze(&control, LONGEST);
            }
        }
        drop(receiving.join().unwrap());
    });
}

#[test]
fn whoever_sees_the_end_wakes_those_who_sleep() {
    check(3, || {
        let Scene { control, workers: [first, sleeper], .. } = Scene::new("program=drop", 1);
        let ending = spawn({
            let control = control.clone();
            move || {
                control.stop();
                first.run(&control, None);
            }
        });
        sleeper.run(&control, None);
        ending.join().unwrap();
        assert!(control.wait_stopped().is_some());
    });
}

#[test]
fn whom_packets_are_passed_to_is_awake_or_woken() {
    check(2, || {
        // The first worker runs the stack of the port that the second receives for.
        let Scene { control, workers: [mut host, mut receiver], wires } =
            Scene::new("program=drop batch=1 stack=1@192.0.2.1/24", 2);
        wires[1].rx[0].state().arriving.extend([arp_request(), arp_request()]);
        let receiving = spawn(move || {
            assert_eq!([receiver.round(), receiver.round()], [RoundKind::Busy; 2]);
            receiver
        });
        let port = PortId(1);
        while host.ledger.port(port)[Counter::StackSent] < 2 {
            if host.round() == RoundKind::Idle {
                host.doze(&control, LONGEST);
            }
        }
        drop(receiving.join().unwrap());
    });
}

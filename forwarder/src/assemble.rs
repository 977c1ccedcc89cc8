//! Set-up: queues become workers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use log::warn;
use netdrv::device::{Queues, RxQueue, TxQueue};
use netdrv::packet::MAX_BURST;
use netdrv::pool::{CACHE_CAPACITY, Pool};

use crate::config::{Config, Refusal};
use crate::control::{Control, PortTelemetry, Telemetry};
use crate::meter::Clock;
use crate::ports::{Input, Outputs};
use crate::stats::{Ledger, LockStats, WorkerStats};
use crate::txmap::{self, Mode, Plan, SharedTx, TxPath};
use crate::verdict::PortId;
use crate::worker::Worker;

/// What set-up makes.
pub struct Assembly<R, T> {
    /// For whoever prints metrics and says stop.
    pub control: Arc<Control<R, T>>,
    /// One for each core that forwards: worker `i` is core `i`'s.
    pub workers: Vec<Worker<R, T>>,
}

/// The most buffers that workers hold outside of the rings: each a full cache, a burst in its hands, and one that waits
/// at every port.
pub fn buffers_in_workers(workers: usize, ports: usize) -> usize {
    workers * (CACHE_CAPACITY + MAX_BURST * (1 + ports))
}

/// Makes `workers` workers (see [`Config::worker_count`]) over the queues of all ports, in the order of the ports. Every
/// buffer comes from `pool`. Refused where `tx=` can't be met with the queues that the devices gave.
pub fn assemble<R: RxQueue, T: TxQueue>(
    ports: Vec<Queues<R, T>>,
    config: &Config,
    workers: usize,
    pool: &'static Pool,
    clock: Clock,
) -> Result<Assembly<R, T>, Refusal> {
    let rx_queues: usize = ports.iter().map(|queues| queues.rx.len()).sum();
    let plans = plan_ports(&ports, config, workers)?;
    warn_of_limits(&plans, config);
    if workers > rx_queues {
        warn!("{workers} workers and {rx_queues} RX queues: {} have nothing to do", workers - rx_queues);
    }

    let stats: Vec<_> = (0..workers).map(|_| Arc::new(WorkerStats::new(ports.len()))).collect();
    let (rx, tx): (Vec<_>, Vec<_>) = ports.into_iter().map(|queues| (queues.rx, queues.tx)).unzip();
    let inputs = hand_out_rx(rx, workers);
    let mut outputs: Vec<Vec<TxPath<T>>> = (0..workers).map(|_| Vec::new()).collect();
    let mut telemetry = Vec::new();
    let mut spare = Vec::new();
    for (plan, mut queues) in plans.into_iter().zip(tx) {
        spare.extend(queues.drain(plan.queues()..));
        let locks = hand_out_tx(queues, &plan, &mut outputs);
        telemetry.push(PortTelemetry { plan, locks });
    }

    let control = Control::new(Telemetry { ports: telemetry, workers: stats.clone(), pool }, spare);
    let workers = inputs.into_iter().zip(outputs).zip(stats).map(|((inputs, paths), stats)| Worker {
        program: config.program,
        batch: config.batch,
        inputs,
        outputs: Outputs::new(paths),
        cache: pool.cache(),
        ledger: Ledger::new(stats),
        clock,
    });
    Ok(Assembly { control: Arc::new(control), workers: workers.collect() })
}

fn plan_ports<R, T>(ports: &[Queues<R, T>], config: &Config, workers: usize) -> Result<Vec<Plan>, Refusal> {
    let plan = |(port, queues): (usize, &Queues<R, T>)| {
        txmap::plan(workers, queues.tx.len(), config.tx).map_err(|error| config.refuse_tx(port, error))
    };
    ports.iter().enumerate().map(plan).collect()
}

/// Says at boot what will be slow, or will not work at all.
fn warn_of_limits(plans: &[Plan], config: &Config) {
    for (port, plan) in (0..).map(PortId).zip(plans) {
        match plan.mode() {
            Mode::Dedicated => {}
            Mode::Shared => warn!("port {port}: cores take turns at the TX queues: {plan}"),
            Mode::Unavailable => warn!("port {port} has no TX queue: what is sent to it is dropped"),
        }
        if !config.program.serves(port, plans.len() as u16) {
            warn!("port {port} has no partner: what it receives is dropped");
        }
    }
}

/// Gives every RX queue to its worker.
fn hand_out_rx<R: RxQueue>(rx: Vec<Vec<R>>, workers: usize) -> Vec<Vec<Input<R>>> {
    let counts: Vec<usize> = rx.iter().map(Vec::len).collect();
    let mut queues: Vec<_> = rx.into_iter().map(Vec::into_iter).collect();
    let mut inputs: Vec<Vec<Input<R>>> = (0..workers).map(|_| Vec::new()).collect();
    for (port, worker) in txmap::assign_rx(workers, &counts) {
        inputs[worker].extend(queues[port].next().map(|queue| Input::new(PortId(port as u16), queue)));
    }
    inputs
}

/// Gives each worker its way out of one port. Returns the locks of the shared queues.
fn hand_out_tx<T: TxQueue>(
    queues: Vec<T>,
    plan: &Plan,
    outputs: &mut [Vec<TxPath<T>>],
) -> Vec<Arc<LockStats>> {
    match plan.mode() {
        Mode::Dedicated => {
            outputs.iter_mut().zip(queues).for_each(|(paths, queue)| paths.push(TxPath::Dedicated(queue)));
            Vec::new()
        }
        Mode::Shared => {
            let locks: Vec<_> = queues.iter().map(|_| Arc::<LockStats>::default()).collect();
            let share = |(queue, lock): (T, &Arc<LockStats>)| Arc::new(SharedTx::new(queue, lock.clone()));
            let shared: Vec<_> = queues.into_iter().zip(&locks).map(share).collect();
            for (worker, paths) in outputs.iter_mut().enumerate() {
                let queue = plan.queue_of(worker).expect("a shared port has a queue");
                paths.push(TxPath::Shared(shared[queue].clone()));
            }
            locks
        }
        Mode::Unavailable => {
            outputs.iter_mut().for_each(|paths| paths.push(TxPath::Unavailable));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;
    use crate::stats::Counter;
    use crate::testing::{FakeRx, FakeTx, clock, fake_ports, pool};

    fn assemble_over(words: &str, workers: usize, tx: &[usize]) -> Result<Assembly<FakeRx, FakeTx>, String> {
        let config = Config::read(words, None).unwrap();
        let (ports, _) = fake_ports(1, tx, 64);
        assemble(ports, &config, workers, pool(64), clock()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_wish_that_the_devices_cannot_meet_is_refused_with_the_numbers() {
        assert_eq!(
            assemble_over("batch=8 tx=dedicated", 4, &[4, 2]).err().unwrap(),
            "sluice refused: command line: tx: port 1: 4 workers need a TX queue each and the device gave 2; \
             allowed: auto, shared, or fewer workers\nbatch=8 tx=dedicated"
        );
        assert_eq!(
            assemble_over("tx=shared", 1, &[0]).err().unwrap(),
            "sluice refused: command line: tx: port 0: the device gave no TX queue; allowed: auto\ntx=shared"
        );
    }

    #[test]
    fn each_port_has_the_mode_that_its_queues_allow() {
        let control = assemble_over("", 2, &[2, 1, 0]).unwrap().control;
        let modes = [0, 1, 2].map(|port| control.tx_plan(PortId(port)).to_string());
        assert_eq!(modes, ["dedicated", "shared(2 cores/queue)", "unavailable"]);
    }

    #[test]
    fn ports_with_one_queue_each_are_spread_over_the_workers() {
        let config = Config::read("program=drop", None).unwrap();
        let (ports, wires) = fake_ports(1, &[1, 1, 1], 64);
        let mut assembly = assemble(ports, &config, 2, pool(256), clock()).unwrap();
        for wire in &wires {
            wire.rx[0].state().arriving.extend([std::vec![0; 60]]);
        }
        assembly.workers[1].round();
        let received = [0, 1, 2].map(|port| assembly.control.counts(PortId(port))[Counter::RxPackets]);
        assert_eq!(received, [0, 1, 0]);
        assembly.workers[0].round();
        let received = [0, 1, 2].map(|port| assembly.control.counts(PortId(port))[Counter::RxPackets]);
        assert_eq!(received, [1, 1, 1]);
    }

    #[test]
    fn queues_that_no_worker_uses_live_until_the_end() {
        let config = Config::read("", None).unwrap();
        let (ports, wires) = fake_ports(1, &[3], 64);
        let Assembly { control, workers } = assemble(ports, &config, 1, pool(64), clock()).unwrap();
        control.stop();
        workers.into_iter().for_each(|worker| worker.run(&control, || ()));
        let queues = control.wait_stopped().unwrap();
        assert_eq!((queues.rx.len(), queues.tx.len()), (1, wires[0].tx.len()));
    }
}

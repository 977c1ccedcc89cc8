//! Set-up: queues become workers.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use log::warn;
use netdrv::device::{Mac, Queues, RxQueue, TxQueue};
use netdrv::packet::MAX_BURST;
use netdrv::pool::Pool;

use crate::config::{Config, Refusal};
use crate::control::{Control, PortTelemetry, Telemetry};
use crate::idle::{Cpu, IdleMode};
use crate::local::{HOST, LocalHost, Passing};
use crate::meter::Clock;
use crate::ports::{Input, Outputs};
use crate::programs::Program;
use crate::stack::{Instant, IpCidr, Stack, StackConfig};
use crate::stats::{Ledger, LockStats, WorkerStats};
use crate::steer;
use crate::txmap::{self, Mode, Plan, StackNeed};
use crate::txpath::{SharedTx, TxPath, WhenTaken};
use crate::verdict::PortId;
use crate::wake::{Roster, SleepFlag};
use crate::worker::Worker;

/// What a port brings to set-up.
pub struct PortParts<R, T> {
    /// The station address, which its stack speaks from.
    pub mac: Mac,
    /// The largest payload of a frame in bytes.
    pub mtu: u16,
    /// How many of its RX queues, from queue 0 on, interrupt the core that [`assign_rx`](txmap::assign_rx) gives them.
    pub rx_interrupts: usize,
    /// Its queues.
    pub queues: Queues<R, T>,
}

/// What set-up makes.
pub struct Assembly<R, T> {
    /// For whoever prints metrics and says stop.
    pub control: Arc<Control<R, T>>,
    /// One for each core that forwards: worker `i` is core `i`'s. The first runs the local stacks.
    pub workers: Vec<Worker<R, T>>,
}

/// Makes `workers` workers (see [`Config::worker_count`]) over the queues of all ports, in the order of the ports. Every
/// buffer comes from `pool`. Refused where `tx=` can't be met with the queues that the devices gave, or `stack=` with
/// the ports.
pub fn assemble<R: RxQueue, T: TxQueue>(
    ports: Vec<PortParts<R, T>>,
    config: &Config,
    workers: usize,
    pool: &'static Pool,
    cpu: Cpu,
) -> Result<Assembly<R, T>, Refusal> {
    let clock = cpu.clock;
    let plans = plan_ports(&ports, config, workers)?;
    warn_of_limits(&plans, config);
    let stacks = make_stacks(&ports, config, pool, clock)?;
    let stats: Vec<_> = (0..workers).map(|_| Arc::new(WorkerStats::new(ports.len()))).collect();
    let mut passing: Vec<_> = (0..workers).map(|_| Passing::nowhere(ports.len())).collect();
    let interrupts: Vec<usize> = ports.iter().map(|port| port.rx_interrupts).collect();
    let (rx, tx): (Vec<_>, Vec<_>) = ports.into_iter().map(|port| (port.queues.rx, port.queues.tx)).unzip();
    let mut inputs = hand_out_rx(rx, &interrupts, workers);
    let receivers = inputs.iter().filter(|inputs| !inputs.is_empty()).count();
    let ledgers = stats.iter().map(|stats| Ledger::new(stats.handed.clone())).collect();
    let steerings = steer::connect(config.rx, receivers, ledgers);
    let flags: Arc<[SleepFlag]> = match config.idle {
        IdleMode::Poll => Arc::default(),
        IdleMode::Adaptive => (0..workers).map(|_| SleepFlag::new()).collect(),
    };
    let rosters = (0..workers).map(|worker| Roster::new(worker, flags.clone(), cpu.wake));
    // What is kept leaves room for one more batch: contention alone makes nobody drop.
    let when_taken = WhenTaken::Keep { most: MAX_BURST - config.batch };
    let mut outputs: Vec<Vec<TxPath<T>>> = (0..workers).map(|_| Vec::new()).collect();
    let mut local = LocalHost::new(clock);
    let mut telemetry = Vec::new();
    let mut spare = Vec::new();
    for (((port, plan), stack), queues) in (0..).map(PortId).zip(plans).zip(stacks).zip(tx) {
        let handed_out = hand_out_tx(queues, &plan, when_taken, &mut outputs);
        let stack = stack.map(|stack| local.add(port, stack, handed_out.stack, config.program, &mut passing));
        spare.extend(handed_out.spare);
        telemetry.push(PortTelemetry { plan, locks: handed_out.locks, stack });
    }

    for (worker, inputs) in inputs.iter_mut().enumerate() {
        let (steering, passing, outputs) = (&steerings[worker], &passing[worker], &outputs[worker]);
        // Buffers end on another core: on one that packets are handed to, on that of the stacks, or on whichever reclaims a ring
        // that is shared.
        let passes = config.program == Program::Pass || inputs.iter().any(|input| passing.reads(input.port));
        let shares = outputs.iter().any(|path| matches!(path, TxPath::Shared(_) | TxPath::Borrowed(_)));
        if steering.spreads() || (worker != HOST && passes) || (workers > 1 && shares) {
            inputs.iter_mut().for_each(|input| input.queue.keep_full());
        }
        let is_unread = |port| !config.program.reads() && !passing.reads(port) && !steering.spreads();
        inputs.iter_mut().filter(|input| is_unread(input.port)).for_each(|input| input.queue.leave_unread());
    }

    let telemetry = Telemetry { rx: config.rx, ports: telemetry, workers: stats.clone(), pool };
    let control = Control::new(telemetry, spare);
    // The first worker gets the stacks, the others a host of none.
    let hosts = core::iter::once(local).chain(core::iter::repeat_with(|| LocalHost::new(clock)));
    let workers =
        inputs.into_iter().zip(steerings).zip(outputs).zip(passing).zip(hosts).zip(rosters).zip(stats).map(
            |((((((inputs, steering), paths), passing), local), roster), stats)| Worker {
                program: config.program,
                idle: config.idle,
                batch: config.batch,
                burst: Box::default(),
                inputs,
                steering,
                outputs: Outputs::new(paths),
                passing,
                local,
                cache: pool.cache(),
                ledger: Ledger::new(stats.decided.clone()),
                stats,
                roster,
                cpu,
            },
        );
    Ok(Assembly { control: Arc::new(control), workers: workers.collect() })
}

fn port_ids(ports: usize) -> impl Iterator<Item = PortId> {
    (0..).map(PortId).take(ports)
}

fn plan_ports<R, T>(
    ports: &[PortParts<R, T>],
    config: &Config,
    workers: usize,
) -> Result<Vec<Plan>, Refusal> {
    let plan = |(id, port): (PortId, &PortParts<R, T>)| {
        let need = match config.stack.addresses(id).next() {
            Some(_) => StackNeed::Queue,
            None => StackNeed::Nothing,
        };
        txmap::plan(workers, port.queues.tx.len(), need, config.tx)
            .map_err(|error| config.refuse_tx(id, error))
    };
    port_ids(ports.len()).zip(ports).map(plan).collect()
}

/// The stack of each port that is to have one.
fn make_stacks<R, T>(
    ports: &[PortParts<R, T>],
    config: &Config,
    pool: &'static Pool,
    clock: Clock,
) -> Result<Vec<Option<Stack>>, Refusal> {
    if let Some(entry) = config.stack.entries().iter().find(|entry| entry.port.index() >= ports.len()) {
        return Err(config.refuse_stack(entry.port, format_args!("there are {} ports", ports.len())));
    }
    let make = |(id, port): (PortId, &PortParts<R, T>)| {
        let addresses: Vec<IpCidr> = config.stack.addresses(id).collect();
        if addresses.is_empty() {
            return Ok(None);
        }
        let seed = (clock.now)();
        let stack = StackConfig { mac: port.mac, mtu: port.mtu, addresses: &addresses, seed };
        Stack::new(&stack, pool, Instant::from_micros(clock.micros()))
            .map(Some)
            .map_err(|error| config.refuse_stack(id, error))
    };
    port_ids(ports.len()).zip(ports).map(make).collect()
}

/// Says at boot what will be slow, or will not work at all.
fn warn_of_limits(plans: &[Plan], config: &Config) {
    for (port, plan) in (0..).map(PortId).zip(plans) {
        match plan.mode() {
            Mode::Dedicated => {}
            Mode::Shared => warn!("port {port}: cores take turns at the TX queues: {plan}"),
            Mode::Borrowed => warn!("port {port}: cores borrow the stack's TX queue: {plan}"),
            Mode::Unavailable => warn!("port {port} has no TX queue: what is sent to it is dropped"),
        }
        if !config.program.serves(port, plans.len() as u16) {
            warn!("port {port} has no partner: what it receives is dropped");
        }
    }
}

/// Gives every RX queue to its worker.
fn hand_out_rx<R: RxQueue>(rx: Vec<Vec<R>>, interrupts: &[usize], workers: usize) -> Vec<Vec<Input<R>>> {
    let counts: Vec<usize> = rx.iter().map(Vec::len).collect();
    let mut queues: Vec<_> = rx.into_iter().map(|queues| queues.into_iter().enumerate()).collect();
    let mut inputs: Vec<Vec<Input<R>>> = (0..workers).map(|_| Vec::new()).collect();
    for (port, worker) in txmap::assign_rx(workers, &counts) {
        inputs[worker].extend(
            queues[port]
                .next()
                .map(|(number, queue)| Input::new(PortId(port as u16), queue, number < interrupts[port])),
        );
    }
    inputs
}

/// What became of a port's TX queues besides the workers' ways out.
struct HandedOut<T> {
    /// The stack's way out.
    stack: TxPath<T>,
    /// Queues that nobody uses.
    spare: Vec<T>,
    /// The locks of the queues that workers take turns at.
    locks: Vec<Arc<LockStats>>,
}

/// Gives each worker, and the stack, its way out of one port.
fn hand_out_tx<T: TxQueue>(
    mut queues: Vec<T>,
    plan: &Plan,
    when_taken: WhenTaken,
    outputs: &mut [Vec<TxPath<T>>],
) -> HandedOut<T> {
    let mut spare = queues.split_off(plan.queues());
    let mut locks = Vec::new();
    let mut stack = TxPath::Unavailable;
    match plan.mode() {
        Mode::Dedicated => {
            outputs.iter_mut().zip(queues).for_each(|(paths, queue)| paths.push(TxPath::Dedicated(queue)));
        }
        Mode::Shared | Mode::Borrowed => {
            locks.extend(queues.iter().map(|_| Arc::<LockStats>::default()));
            let share = |(queue, lock): (T, &Arc<LockStats>)| SharedTx::new(queue, when_taken, lock.clone());
            let shared: Vec<_> = queues.into_iter().zip(&locks).map(share).collect();
            let way = match plan.mode() {
                Mode::Borrowed => TxPath::Borrowed,
                _ => TxPath::Shared,
            };
            for (worker, paths) in outputs.iter_mut().enumerate() {
                let queue = plan.queue_of(worker).expect("workers have a queue to share");
                paths.push(way(shared[queue].sender()));
            }
            if plan.mode() == Mode::Borrowed {
                // The owner sends without regard to the reserve, which is there for it.
                stack = TxPath::Shared(shared[0].sender());
            }
        }
        Mode::Unavailable => outputs.iter_mut().for_each(|paths| paths.push(TxPath::Unavailable)),
    }
    if plan.stack_queue() == Some(plan.queues()) {
        stack = TxPath::Dedicated(spare.remove(0));
    }
    HandedOut { stack, spare, locks }
}

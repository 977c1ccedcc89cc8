//! What set-up will take: known before it begins, so that a machine that is too small is told so.

use crate::config::Config;
use crate::local;
use crate::stack::Stack;
use crate::steer::{self, RxMode};
use crate::verdict::PortId;
use netdrv::packet::MAX_BURST;
use netdrv::pool::CACHE_CAPACITY;

/// Bytes of a worker beside its rings, and of its counters and ways out at each port: both are less, as measured.
const WORKER: usize = 16 << 10;
const PORT_OF_WORKER: usize = 4 << 10;

/// The most buffers that are outside of the devices' rings, with `workers` workers over `rx_queues` RX queues of `ports`
/// ports. Each worker that has work holds a full cache, a burst in its hands, and one that waits at every port; then come
/// those that are on their way between workers, the stacks, and what waits for them.
pub fn buffers_outside_rings(config: &Config, workers: usize, rx_queues: usize, ports: usize) -> usize {
    let (busy, steering) = busy(config, workers, rx_queues);
    let between = steering.map_or(0, |shape| shape.buffers());
    busy * (CACHE_CAPACITY + MAX_BURST * (1 + ports)) + between + local::buffers(stacks(config, ports), busy)
}

/// The most bytes of the heap that [`assemble`](crate::assemble) takes for the same.
pub fn heap(config: &Config, workers: usize, rx_queues: usize, ports: usize) -> usize {
    let (busy, steering) = busy(config, workers, rx_queues);
    let between = steering.map_or(0, |shape| shape.heap(workers));
    let stacks = stacks(config, ports) * (Stack::HEAP + busy * local::HEAP_OF_QUEUE);
    workers * (WORKER + ports * PORT_OF_WORKER) + between + stacks
}

/// How many workers have work, and the rings between them.
fn busy(config: &Config, workers: usize, rx_queues: usize) -> (usize, Option<steer::Shape>) {
    let receivers = workers.min(rx_queues);
    match config.rx {
        RxMode::Hardware => (receivers, None),
        RxMode::Software => (workers, Some(steer::Shape::new(workers, receivers))),
    }
}

fn stacks(config: &Config, ports: usize) -> usize {
    let has_stack = |&port: &PortId| config.stack.addresses(port).next().is_some();
    (0..).map(PortId).take(ports).filter(has_stack).count()
}

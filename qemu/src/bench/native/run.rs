//! One set-up from its cards to its end.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use forwarder::config::Config;
use forwarder::stats::Counter;
use forwarder::verdict::PortId;
use forwarder::{Assembly, Clock, Control, Cpu, PortParts, assemble, buffers_outside_rings};
use netdrv::device::{Mac, NetDevice, QueueWish, Queues};
use netdrv::pool::Pool;
use netdrv::virtio::{VirtioNet, VirtioTx};
use nix::time::{ClockId, clock_getcpuclockid};

use super::frames::{Expected, Seen};
use super::frontend::VhostNet;
use super::memory::SharedHal;
use super::opposite::{Opposite, Whose};
use super::source::{Input, Source};
use super::testpmd::{Flags, Testpmd};
use super::{Format, Work};
use crate::bench::cpu;
use crate::bench::measure::{Sampler, Window};
use crate::interrupt;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Where buffers come from: as many as two ports need.
    pub(super) pool: &'static Pool,
    pub(super) work: Work,
    /// Descriptors in a ring.
    pub(super) ring: usize,
    /// Packets received at a time.
    pub(super) batch: usize,
    /// Bytes of a frame.
    pub(super) length: usize,
    /// How long it goes on.
    pub(super) time: Duration,
}

/// A pool for set-ups with rings of `ring` descriptors, one after the other.
///
/// # Errors
/// When there is no memory.
pub(super) fn pool(ring: usize) -> Result<&'static Pool> {
    const PORTS: usize = 2;
    let in_rings = PORTS * 2 * ring;
    let outside = buffers_outside_rings(&Config::default(), 1, PORTS, PORTS);
    Pool::new::<SharedHal>(in_rings + outside).map_err(|error| anyhow!("{error}"))
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Windows in which worker and backend both had their cores.
    pub(super) windows: Vec<Window>,
    /// Packets that the worker did what it should with.
    pub(super) moved: u64,
    /// Packets that the devices were given and are done with.
    pub(super) sent: u64,
    /// Received packets of which the counters do not say where they ended.
    pub(super) unaccounted: u64,
    /// What came out of each card, where our own backend looked at it.
    pub(super) seen: Vec<Seen>,
}

/// Our own worker, with rings of that format, before that backend; ours looks at every frame that comes out.
///
/// # Errors
/// When something can't be set up.
pub(super) fn check(setup: Setup, format: Format, whose: &Whose) -> Result<Outcome> {
    let expected = match setup.work {
        Work::Reflect => Expected::Swapped,
        Work::Rxdrop | Work::Rxfilter | Work::Txonly | Work::Redirect => Expected::Same,
    };
    ours(setup, format, whose, Some(expected))
}

/// The same without a look, for figures.
///
/// # Errors
/// As [`check`].
pub(super) fn measure(setup: Setup, format: Format, whose: &Whose) -> Result<Outcome> {
    ours(setup, format, whose, None)
}

/// DPDK before that backend: its windows.
///
/// # Errors
/// When something can't be set up.
pub(super) fn peer(setup: Setup, flags: Flags, whose: &Whose) -> Result<Vec<Window>> {
    let [core, _] = cpu::two_cores()?;
    let opposite = Opposite::start(whose, setup, None)?;
    let testpmd = Testpmd::frontend(&opposite.sockets(), core, flags, setup)?;
    let backend = opposite.clock()?.context("nobody knows whose that backend is")?;
    let mut watch = Watch::new([testpmd.clock()?, backend], setup.time);
    while !watch.is_over(testpmd.moved(setup.work)?) {
        thread::sleep(LOOK);
    }
    Ok(watch.sampler.windows())
}

/// Between two looks at what a peer has moved.
const LOOK: Duration = Duration::from_millis(10);

/// How long nothing may move.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it moves before that counts: both sides still get acquainted with their memory.
const WARM_UP: Duration = Duration::from_millis(50);

/// Notes what a frontend moves, once it does, for so long.
struct Watch {
    sampler: Sampler,
    time: Duration,
    start: Instant,
    first: Option<Instant>,
}

impl Watch {
    fn new(clocks: [ClockId; 2], time: Duration) -> Watch {
        Watch { sampler: Sampler::new(clocks), time, start: Instant::now(), first: None }
    }

    /// So many packets have moved by now. Returns whether that is all that is to be known.
    fn is_over(&mut self, moved: u64) -> bool {
        if moved > 0 && self.first.is_none() {
            self.first = Some(Instant::now());
        }
        let is_over = match self.first.map(|first| first.elapsed()) {
            Some(moving) => {
                if moving > WARM_UP {
                    self.sampler.note(moved);
                }
                moving > WARM_UP + self.time
            }
            None => self.start.elapsed() > PATIENCE,
        };
        is_over || interrupt::happened()
    }
}

fn ours(setup: Setup, format: Format, whose: &Whose, checks: Option<Expected>) -> Result<Outcome> {
    let opposite = Opposite::start(whose, setup, checks)?;
    let cards = opposite.sockets().into_iter().map(|socket| VhostNet::connect(socket, format.features()));
    let cards = cards.collect::<Result<Vec<_>>>()?;
    let clock = match opposite.clock()? {
        Some(clock) => clock,
        None => clock_getcpuclockid(cards[0].backend()).context("the backend's CPU time can't be read")?,
    };
    let outcome = run(cards, clock, setup)?;
    Ok(Outcome { seen: opposite.seen(), ..outcome })
}

/// The worker at work before these cards, on the first core, beside a backend with that clock of CPU time.
fn run(cards: Vec<VhostNet>, backend: ClockId, setup: Setup) -> Result<Outcome> {
    let [core, _] = cpu::two_cores()?;
    let wish = QueueWish { pairs: 1, tx_needed: 1, ring: setup.ring, interrupts: 0 };
    let devices = cards.into_iter().map(|card| VirtioNet::new::<SharedHal>(card, wish));
    let mut devices: Vec<_> = devices.collect::<Result<_, _>>().map_err(|error| anyhow!("{error}"))?;
    let words = match setup.work {
        Work::Rxdrop => "program=drop",
        Work::Rxfilter => "program=drop stack=192.0.2.1/24",
        Work::Reflect => "program=reflect",
        Work::Txonly | Work::Redirect => "program=forward",
    };
    let words = format!("{words} idle=poll batch={}", setup.batch);
    let config = Config::read(&words, None).map_err(|refused| anyhow!("{}", refused.refusal))?;
    let pool = setup.pool;
    let (ports, unused) = ports(&mut devices, setup)?;
    let count = ports.len();
    let cpu = Cpu { clock: Clock { now: cpu::ticks, hz: cpu::hz() }, sleep: |_, _| {}, wake: |_| {} };
    let assembly = assemble(ports, &config, 1, pool, cpu).map_err(|refusal| anyhow!("{refusal}"))?;
    let Assembly { control, mut workers } = assembly;
    let worker = workers.pop().context("there is a worker")?;

    // The worker's chores look at the counters that it publishes.
    let windows = thread::scope(|scope| {
        let work = || -> Result<Vec<Window>> {
            cpu::pin(core)?;
            let mut watch = Watch::new([cpu::this_thread(), backend], setup.time);
            let mut look = || {
                if watch.is_over(moved(&control, setup.work, count)) {
                    control.stop();
                }
            };
            worker.run(&control, Some(&mut look));
            Ok(watch.sampler.windows())
        };
        scope.spawn(work).join().map_err(|_| anyhow!("the worker has panicked"))?
    })?;
    let (moved, sent) = (moved(&control, setup.work, count), sent(&control, count));
    let unaccounted = (0..count).map(|port| unaccounted(&control, PortId(port as u16))).sum();
    let queues = control.wait_stopped();
    devices.iter_mut().for_each(NetDevice::stop);
    drop((queues, unused));
    ensure!(pool.in_depot() == pool.count(), "buffers have not come home: {pool:?}");
    Ok(Outcome { windows, moved, sent, unaccounted, seen: Vec::new() })
}

type Parts = PortParts<Input, VirtioTx>;

/// The ports of the forwarder, and receive queues that it does not use. To send only, frames come in at a port of their own
/// that `forward` takes to the card's.
fn ports(devices: &mut [VirtioNet<VhostNet>], setup: Setup) -> Result<(Vec<Parts>, Vec<Input>)> {
    let parts = |rx, tx| {
        let queues = Queues { rx, tx };
        PortParts { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: 1500, rx_interrupts: 0, queues }
    };
    let (mut ports, mut unused) = (Vec::new(), Vec::new());
    for device in devices {
        let Queues { rx, tx } = device.take_queues(setup.pool).context("the queues are taken once")?;
        let rx: Vec<_> = rx.into_iter().map(Input::Virtio).collect();
        if setup.work == Work::Txonly {
            ports.push(parts(vec![Input::Source(Source::new(setup.length))], Vec::new()));
            ports.push(parts(Vec::new(), tx));
            unused.extend(rx);
        } else {
            ports.push(parts(rx, tx));
        }
    }
    Ok((ports, unused))
}

type Controlled = Control<Input, VirtioTx>;

/// Packets that the worker did what it should with.
fn moved(control: &Controlled, work: Work, ports: usize) -> u64 {
    match work {
        Work::Rxdrop | Work::Rxfilter => control.counts(PortId(0))[Counter::RxPackets],
        Work::Txonly | Work::Reflect | Work::Redirect => sent(control, ports),
    }
}

fn sent(control: &Controlled, ports: usize) -> u64 {
    (0..ports).map(|port| control.counts(PortId(port as u16))[Counter::TxPackets]).sum()
}

/// Received = dropped + passed + forwarded + waiting.
fn unaccounted(control: &Controlled, port: PortId) -> u64 {
    let counts = control.counts(port);
    let ended = counts.dropped() + counts[Counter::Passed] + counts[Counter::Forwarded];
    counts[Counter::RxPackets].abs_diff(ended + counts[Counter::Waiting])
}

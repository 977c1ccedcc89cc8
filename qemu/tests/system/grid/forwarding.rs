//! A cell that forwards.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use etherparse::{ArpEthIpv4Packet, ArpOperation, PacketBuilder};
use forwarder::steer::RxMode;
use forwarder::txmap::{Plan, StackNeed};
use qemu::ports::mac_octets;
use qemu::vhost::{Sink, Source, TrafficConfig, TrafficPort};
use qemu::{Guest, Machine, Metrics, Transform};
use tempfile::TempDir;

use super::cell::{Cell, PORTS, STACK};
use super::lane::{Lane, Route};
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{check_stopped, wait_until};

/// The host that asks the stacks.
const HOST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x99];

/// Flows cross the image both ways, as the plan says; then the stacks, if there are any, answer from their queue.
pub(super) fn forwards(cell: Cell, plan: &Plan) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let routes = [0, 1].map(|port| Route { cell, plan: plan.clone(), port });
    let lanes = Lane::several(routes, Transform::Unchanged);
    let [left, right] = &lanes;
    let ports = [Port::listen(&folder, 0, cell, left, right)?, Port::listen(&folder, 1, cell, right, left)?];
    let machine = cell.describe(Machine::new(image()?));
    let guest = ports.iter().fold(machine, |machine, port| machine.port(port.traffic.spec())).start()?;
    guest.wait_ready(PATIENCE).with_context(|| guest.log())?;
    cell.check_boot_lines(&guest, plan)?;

    for port in &ports {
        port.traffic.wait_running(cell.given(), PATIENCE).with_context(|| guest.log())?;
    }
    ports[0].start(left.source(), right.sink());
    ports[1].start(right.source(), left.sink());
    let shares = [
        left.wait_for_all(&guest).context("from port 0")?,
        right.wait_for_all(&guest).context("from port 1")?,
    ];
    if cell.stack == StackNeed::Queue {
        ports.iter().try_for_each(|port| port.ask_stack(plan, &guest))?;
    }

    let report = guest.stop()?;
    check_stopped(&report, PORTS)?;
    check_shares(&report.metrics, cell, &shares)?;
    for port in ports {
        let report = port.traffic.stop();
        ensure!(report.faults.total() == 0, "{report}");
    }
    Ok(())
}

/// Each core has forwarded what came in at any port and was its own; where the cores spread the flows, all have.
pub(crate) fn check_shares(metrics: &Metrics, cell: Cell, shares: &[Vec<u64>]) -> Result<()> {
    for core in 0..cell.workers {
        let expected: u64 = shares.iter().map(|of_port| of_port[core]).sum();
        let labels = [("core", &*core.to_string())];
        let forwarded = metrics.count("sluice_core_forwarded_packets_total", &labels);
        ensure!(forwarded == expected, "core {core} forwarded {forwarded} of {expected} frames");
        ensure!(cell.rx == RxMode::Hardware || forwarded > 0, "core {core} forwarded nothing");
    }
    Ok(())
}

/// One traffic port.
struct Port {
    traffic: TrafficPort,
    number: usize,
    /// The queues that the stack's frames came out of.
    from_stack: Arc<Mutex<Vec<u16>>>,
}

impl Port {
    /// A port that lane `enters` goes in at, and lane `leaves` comes out of.
    fn listen(folder: &TempDir, number: usize, cell: Cell, enters: &Lane, leaves: &Lane) -> Result<Self> {
        let config = TrafficConfig {
            queue_pairs: cell.pairs,
            takes: Some(enters.window()),
            gives: Some(leaves.window()),
            ..Default::default()
        };
        let traffic = TrafficPort::listen(folder.path().join(format!("port{number}")), config)?;
        Ok(Self { traffic, number, from_stack: Arc::default() })
    }

    fn start(&self, source: impl Source, forwarded: impl Sink) {
        self.traffic.start(source, self.sort(forwarded));
    }

    /// Notes the frames of the stack, and gives `forwarded` all others.
    fn sort(&self, mut forwarded: impl Sink) -> impl Sink {
        let (mac, from_stack) = (mac_octets(self.number), Arc::clone(&self.from_stack));
        move |queue: u16, frame: &[u8]| match frame.get(6..12) {
            Some(source) if source == mac => {
                from_stack.lock().expect("no thread panics while it notes a queue").push(queue);
            }
            _ => forwarded.frame(queue, frame),
        }
    }

    /// Asks the stack for its address; the answer comes out of the queue that the plan gives to it.
    fn ask_stack(&self, plan: &Plan, guest: &Guest) -> Result<()> {
        let queues = || self.from_stack.lock().expect("no thread panics while it notes a queue").clone();
        self.traffic.inject(who_has_the_stacks_address(self.number));
        wait_until(guest, "the stack answers", || !queues().is_empty())?;
        let (queues, planned) = (queues(), plan.stack_queue());
        let as_planned = queues.iter().all(|&queue| Some(queue.into()) == planned);
        ensure!(as_planned, "the stack's frames came out of queues {queues:?}; planned is {planned:?}");
        Ok(())
    }
}

/// An ARP request to the station alone (RFC 1122, 2.3.2.1), so that it is forwarded nowhere.
fn who_has_the_stacks_address(port: usize) -> Vec<u8> {
    let request = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: HOST_MAC,
        sender_ipv4: [192, 0, 2, 99],
        target_mac: [0; 6],
        target_ipv4: STACK.octets(),
    };
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(HOST_MAC, mac_octets(port))
        .arp(request.into())
        .write(&mut frame)
        .expect("a vector takes every frame");
    frame
}

//! A flood through the stack's own queue.
//!
//! All workers borrow the one queue that there is, more is offered to them than it takes, and still the stack is reached
//! and answers, and no worker is left out.

mod peer;

use std::fmt;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::flows::Source;
use qemu::ports::mac_octets;
use qemu::vhost::{Offer, TrafficConfig, TrafficPort};
use qemu::{Flows, Machine, Metrics};

use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{check_stopped, describe, wait_until};

use peer::{Peer, STACK};

const WORKERS: usize = 4;
/// Frames a second that the wire takes: fewer than the cores can forward.
const LINE_RATE: u32 = 10_000;
/// Frames that have to come out before shares are compared.
const FRAMES: u64 = 20_000;
const PINGS: u16 = 200;
const STREAM: usize = 100_000;

pub(crate) fn trials() -> Vec<Trial> {
    let setups = [
        // One receive queue for each worker; they borrow by wish.
        Setup { pairs: WORKERS as u16, words: "tx=borrowed rx=hardware" },
        // One for all; they borrow because the only transmit queue is the stack's.
        Setup { pairs: 1, words: "tx=auto rx=software" },
    ];
    setups.map(|setup| test(format!("flood::{setup}"), move || withstands(setup))).into()
}

#[derive(Clone, Copy)]
struct Setup {
    pairs: u16,
    words: &'static str,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pairs={} {}", self.pairs, self.words)
    }
}

fn withstands(setup: Setup) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let config = TrafficConfig {
        queue_pairs: setup.pairs,
        offer: Offer::Flood,
        line_rate: Some(LINE_RATE),
        ..Default::default()
    };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let guest = Machine::new(image()?)
        .cpus(WORKERS)
        .memory_mib(128)
        .words(format!("program=reflect stack={STACK}/24 on-panic=exit {}", setup.words))
        .port(port.spec())
        .start()?;
    guest.wait_ready(PATIENCE)?;
    port.wait_running(setup.pairs.into(), PATIENCE)?;

    let (wire, from_stack) = std::sync::mpsc::channel();
    let mut flows = Flows::new(0, 1000, u64::from(u32::MAX));
    port.start(
        move |frame: &mut Vec<u8>| flows.next(frame),
        move |_: u16, frame: &[u8]| {
            if frame.get(6..12) == Some(&mac_octets(0)) {
                // Nobody listens any more when the test has failed.
                drop(wire.send(frame.to_vec()));
            }
        },
    );
    let mut peer = Peer::new(&port, from_stack);
    peer.ping(PINGS).with_context(|| describe(&guest))?;
    peer.echo(STREAM).with_context(|| describe(&guest))?;
    wait_until(&guest, "the flood goes on", || port.counts().total().frames_out >= FRAMES)?;

    let metrics = guest.metrics()?;
    check_overload(&metrics)?;
    check_shares(&metrics)?;
    check_stopped(&guest.stop()?, 1)?;
    let report = port.stop();
    ensure!(report.faults.total() == 0, "{report}");
    Ok(())
}

/// More was offered than the queue took: borrowers found nothing left but what is the stack's.
fn check_overload(metrics: &Metrics) -> Result<()> {
    let reserved = metrics.count("sluice_drops_total", &[("reason", "tx_ring_reserved")]);
    ensure!(metrics.count("sluice_tx_mode", &[("mode", "borrowed")]) == 1, "the queue is not borrowed");
    ensure!(reserved > 0, "nothing was refused: this was no overload");
    Ok(())
}

/// Each worker had at least half of what it would have if all had the same.
fn check_shares(metrics: &Metrics) -> Result<()> {
    let share =
        |core: usize| metrics.count("sluice_core_forwarded_packets_total", &[("core", &core.to_string())]);
    let shares: Vec<_> = (0..WORKERS).map(share).collect();
    let mean = shares.iter().sum::<u64>() / WORKERS as u64;
    ensure!(shares.iter().all(|&share| share >= mean / 2), "a core is left out: {shares:?}");
    Ok(())
}

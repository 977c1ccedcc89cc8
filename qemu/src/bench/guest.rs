//! The image in QEMU before a traffic port: how much it reflects in each mode of TX queues, alone and while its local
//! stack answers a flood of pings on the same port.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etherparse::PacketBuilder;

use super::measure::{Spread, Timing};
use super::sheet::{Entry, Sheet};
use crate::vhost::{Drive, Offer, TrafficConfig, TrafficPort};
use crate::{Artefact, Guest, Machine};

/// Cores of the image: enough for eight at one queue.
const CORES: usize = 8;
/// Flows of the flood, and the length of its frames in bytes without CRC.
pub(super) const FLOWS: u16 = 1000;
const FRAME_LEN: usize = 64;
/// One frame in so many is a ping to the stack, where there are pings.
const PING_EVERY: u64 = 8;
/// Who floods, and whom.
const STRANGER: ([u8; 6], Ipv4Addr) = ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 99, 0, 2));
const STACK: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The protocol number of ICMP, and its place in a frame.
const ICMP: u8 = 1;
const PROTOCOL: usize = 14 + 9;

const TIMING: Timing =
    Timing { warm_up: Duration::from_secs(1), windows: 7, window: Duration::from_millis(600) };
/// How long the image may take to boot on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One way to set the port up.
struct Mode {
    name: &'static str,
    queue_pairs: u16,
    words: &'static str,
}

/// The stack has a queue of its own but where it is borrowed.
const MODES: [Mode; 6] = [
    Mode { name: "dedicated", queue_pairs: 9, words: "tx=dedicated" },
    Mode { name: "shared, 1 core a queue", queue_pairs: 9, words: "tx=shared:1" },
    Mode { name: "shared, 2 cores a queue", queue_pairs: 9, words: "tx=shared:2" },
    Mode { name: "shared, 8 cores a queue", queue_pairs: 9, words: "tx=shared:8" },
    Mode { name: "borrowed, 8 cores", queue_pairs: 9, words: "tx=borrowed" },
    Mode { name: "rx=software, 1 queue pair, borrowed", queue_pairs: 1, words: "rx=software tx=borrowed" },
];

/// What comes in beside the flood.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    Nobody,
    Pings,
}

/// The table.
///
/// # Errors
/// When the image does not boot, or forwards nothing.
pub(super) fn table(image: &Artefact) -> Result<Sheet> {
    let mut sheet = Sheet::new(
        format!(
            "The image in QEMU, {CORES} cores, vhost-user, reflect, {FLOWS} flows, {FRAME_LEN} B, in kpps"
        ),
        ["TX queues", "alone", "beside pings", "pings answered", "lock contended %"],
    );
    for mode in &MODES {
        let alone = run(image, mode, Company::Nobody)?;
        let beside = run(image, mode, Company::Pings)?;
        sheet.row([
            Entry::text(mode.name),
            Entry::Spread(alone.forwarded, 0),
            Entry::Spread(beside.forwarded, 0),
            Entry::Spread(beside.answered, 1),
            Entry::Number(beside.contended, 1),
        ]);
    }
    Ok(sheet)
}

/// What came out.
struct Outcome {
    /// Frames of the flood, in thousands a second.
    forwarded: Spread,
    /// Answers of the stack, likewise.
    answered: Spread,
    /// Bursts that found a lock taken, of a hundred.
    contended: f64,
}

fn run(image: &Artefact, mode: &Mode, company: Company) -> Result<Outcome> {
    let folder = tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
    let config = TrafficConfig {
        queue_pairs: mode.queue_pairs,
        drive: Drive::Poll,
        offer: Offer::Flood,
        ..Default::default()
    };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let guest = Machine::new(image)
        .cpus(CORES)
        .memory_mib(128)
        .words(format!("program=reflect stack={STACK}/24 on-panic=exit {}", mode.words))
        .port(port.spec())
        .start()?;
    guest.wait_ready(PATIENCE)?;
    port.wait_running(usize::from(mode.queue_pairs), PATIENCE)?;
    let seen = Arc::new(Seen::default());
    let (source, sink) = (source(station(&guest)?, company), Arc::clone(&seen));
    port.start(source, move |_: u16, frame: &[u8]| sink.count(frame));
    let outcome = watch(&guest, &seen).with_context(|| guest.tail());
    drop(port.stop());
    outcome.with_context(|| mode.name)
}

fn watch(guest: &Guest, seen: &Seen) -> Result<Outcome> {
    let [forwarded, answered] = TIMING.rates(|| seen.now())?;
    ensure!(seen.now()[0] > 0, "nothing came back");
    let metrics = guest.metrics()?;
    let count = |name| metrics.count(name, &[]) as f64;
    let acquired = count("sluice_tx_lock_acquired_total").max(1.0);
    Ok(Outcome { forwarded, answered, contended: 100.0 * count("sluice_tx_lock_contended_total") / acquired })
}

/// What came out of the guest: written by the port's thread, read by another.
#[derive(Default)]
struct Seen {
    forwarded: AtomicU64,
    answered: AtomicU64,
}

impl Seen {
    fn count(&self, frame: &[u8]) {
        let is_answer = frame.get(PROTOCOL) == Some(&ICMP);
        let counter = if is_answer { &self.answered } else { &self.forwarded };
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn now(&self) -> [u64; 2] {
        [&self.forwarded, &self.answered].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The station address of port 0, as the image has said it.
fn station(guest: &Guest) -> Result<[u8; 6]> {
    let line = guest.wait_for_line(|line| line.contains("port 0 "), PATIENCE)?.text;
    let text = line.split_once(" mac=").and_then(|(_, rest)| rest.get(..17));
    let bytes = text.and_then(|text| text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect());
    let bytes: Vec<u8> = bytes.with_context(|| format!("no address in \"{line}\""))?;
    Ok(*bytes.first_chunk().with_context(|| format!("no address in \"{line}\""))?)
}

/// The flood, made beforehand so that it costs the port nothing but copies.
fn source(stack: [u8; 6], company: Company) -> impl FnMut(&mut Vec<u8>) -> bool + Send + 'static {
    let flood: Vec<Vec<u8>> = (0..FLOWS).map(flow).collect();
    let (ping, who) = (ping(stack), request());
    let mut number: u64 = 0;
    move |frame: &mut Vec<u8>| {
        let next = match (company, number % PING_EVERY) {
            // The stack answers those who have asked it, and forgets them after a while.
            (Company::Pings, 0) if number.is_multiple_of(1 << 16) => &who,
            (Company::Pings, 0) => &ping,
            _ => &flood[(number % u64::from(FLOWS)) as usize],
        };
        frame.extend_from_slice(next);
        number += 1;
        true
    }
}

/// A frame of flow `number`.
pub(super) fn flow(number: u16) -> Vec<u8> {
    flow_of_length(number, FRAME_LEN)
}

/// The same in `len` bytes without CRC, at least 42.
pub(super) fn flow_of_length(number: u16, len: usize) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let builder = PacketBuilder::ethernet2(STRANGER.0, [2, 0, 0, 0, 0, 3]);
    let mut frame = Vec::new();
    builder
        .ipv4([10, 1, high, low], [10, 2, high, low], 64)
        .udp(1024 + number, 9)
        .write(&mut frame, &vec![0; len - 42])
        .expect("a vector takes every frame");
    frame
}

/// A ping to the stack.
fn ping(stack: [u8; 6]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(STRANGER.0, stack).ipv4(STRANGER.1.octets(), STACK.octets(), 64);
    let mut frame = Vec::new();
    builder
        .icmpv4_echo_request(7, 7)
        .write(&mut frame, &[0; FRAME_LEN - 42])
        .expect("a vector takes every frame");
    frame
}

/// An ARP request for the stack's address, by which it learns ours (RFC 826).
fn request() -> Vec<u8> {
    let mut frame =
        [&[0xff; 6][..], &STRANGER.0, &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1], &STRANGER.0].concat();
    frame.extend([&STRANGER.1.octets()[..], &[0; 6], &STACK.octets()].concat());
    frame.resize(60, 0);
    frame
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_flood_has_its_flows_and_the_pings_their_share() {
        let mut next = source([6; 6], Company::Pings);
        let mut frames = Vec::new();
        for _ in 0..u64::from(FLOWS) * PING_EVERY {
            let mut frame = Vec::new();
            assert!(next(&mut frame));
            frames.push(frame);
        }
        let pings = frames.iter().filter(|frame| frame[PROTOCOL] == ICMP && frame[..6] == [6; 6]).count();
        assert_eq!(pings, usize::from(FLOWS) - 1, "all in turn but one, which asks for the address");
        let flows: HashSet<_> = frames.iter().filter(|frame| frame[PROTOCOL] == 17).collect();
        assert_eq!(
            flows.len(),
            usize::from(FLOWS) * 7 / 8,
            "1,000 is a multiple of 8: pings stand in for the same ones"
        );
        assert!(frames.iter().all(|frame| frame.len() == FRAME_LEN || frame.len() == 60));
    }

    #[test]
    fn what_comes_out_is_told_apart() {
        let seen = Seen::default();
        seen.count(&flow(1));
        seen.count(&ping([6; 6]));
        seen.count(&ping([6; 6]));
        assert_eq!(seen.now(), [1, 2]);
    }
}

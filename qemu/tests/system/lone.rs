//! Lone frames: each finds its core asleep, or about to be, and comes back all the same.
//!
//! How long a core may sleep on is bounded (`forwarder/src/idle.rs`). What that comes to for a frame is printed, not tested:
//! it depends on what else the machine has to do.

use std::fmt;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::vhost::{TrafficConfig, TrafficPort};
use qemu::{Guest, Machine, Rings};

use crate::frames::{frame, noise, reflected};
use crate::harness::test;
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{Rig, check_stopped};

/// Frames of a test, and the ports that they come in at, each with a core of its own.
const FRAMES: usize = 10_000;
const PORTS: usize = 8;
/// The longest pause before a frame: from nothing, in the midst of an empty spell, to long asleep.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How long the machine may run: a few times as long as on a busy machine with one core. Were two wake-ups of three lost, it
/// would take longer: a core that nothing wakes sleeps on for 100 ms.
const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(90));
/// How the image is to work.
const WORDS: &str = "program=reflect idle=adaptive";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("idle::lone_frames_wake_cores_by_msix", || with_interrupts(Rings::Split)),
        test("idle::lone_frames_wake_cores_by_msix_of_packed_rings", || with_interrupts(Rings::Packed)),
        test("idle::lone_frames_are_found_without_msix", without_interrupts),
    ]
}

/// QEMU's own backends interrupt.
fn with_interrupts(rings: Rings) -> Result<()> {
    let rig =
        Rig::boot(PORTS, |machine| machine.words(WORDS).cpus(PORTS).rings(rings).time_limit(TIME_LIMIT))?;
    let times = on_every_port(|port| {
        send_lone_frames(port, |frame| {
            rig.send(port, frame)?;
            rig.receive(port)
        })
    })?;
    println!("lone frames, with MSI-X: {times}");
    check_every_core_slept(&rig.guest)?;
    check_stopped(&rig.stop()?, PORTS)
}

/// A vhost-user card under TCG has no vectors.
fn without_interrupts() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let listen =
        |port| TrafficPort::listen(folder.path().join(format!("port{port}")), TrafficConfig::default());
    let ports = (0..PORTS).map(listen).collect::<Result<Vec<_>>>()?;
    let machine = Machine::new(image()?).words("on-panic=exit").words(WORDS).cpus(PORTS).memory_mib(128);
    let machine = ports.iter().fold(machine, |machine, port| machine.port(port.spec()));
    let guest = machine.time_limit(TIME_LIMIT).start()?;
    guest.wait_ready(PATIENCE)?;
    let times = on_every_port(|port| {
        let (sender, receiver) = channel();
        ports[port].wait_running(1, PATIENCE)?;
        ports[port].start(
            |_: &mut Vec<u8>| false,
            // Nobody listens any more when the test has failed.
            move |_: u16, frame: &[u8]| drop(sender.send(frame.to_vec())),
        );
        send_lone_frames(port, |frame| {
            ports[port].inject(frame);
            receiver.recv_timeout(PATIENCE).with_context(|| format!("it does not come back\n{}", guest.log()))
        })
    })?;
    println!("lone frames, without MSI-X: {times}");
    check_every_core_slept(&guest)?;
    check_stopped(&guest.stop()?, PORTS)
}

/// Does the same on all ports at the same time; puts their times together.
fn on_every_port(work: impl Fn(usize) -> Result<Vec<Duration>> + Sync) -> Result<Times> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PORTS).map(|port| scope.spawn(move || work(port))).collect();
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().expect("it reports what goes wrong")?);
        }
        Ok(Times::new(times))
    })
}

/// Sends one port's share of the frames, each after a pause and when the one before has come back; `cross` sends one in
/// and takes what comes out. Returns how long each was under way.
fn send_lone_frames(port: usize, cross: impl Fn(&[u8]) -> Result<Vec<u8>>) -> Result<Vec<Duration>> {
    let pauses = noise(port).map(|byte| LONGEST_PAUSE * u32::from(byte) / 255);
    let mut times = Vec::new();
    for (number, pause) in pauses.take(FRAMES / PORTS).enumerate() {
        thread::sleep(pause);
        let frame = frame(60 + number, number);
        let sent = Instant::now();
        let back = cross(&frame).with_context(|| format!("port {port}, frame {number}"))?;
        times.push(sent.elapsed());
        ensure!(back == reflected(&frame), "port {port}: frame {number} came back changed");
    }
    Ok(times)
}

fn check_every_core_slept(guest: &Guest) -> Result<()> {
    let metrics = guest.metrics()?;
    for core in 0..PORTS {
        let labels = [("core", &*core.to_string()), ("state", "asleep")];
        let asleep = metrics.count("sluice_core_cycles_total", &labels);
        ensure!(asleep > 0, "core {core} never slept");
    }
    Ok(())
}

/// How long frames were under way, the shortest time first.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(times) = self;
        let (Some(slowest), median) = (times.last(), times.len() / 2) else { return f.write_str("none") };
        write!(f, "{} came back, median {:?}, slowest {slowest:?}", times.len(), times[median])
    }
}

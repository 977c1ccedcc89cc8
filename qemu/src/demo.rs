//! `sluice demo`: checked traffic through the booted image, in both directions at once.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::HumanCount;

use crate::capture::Skipped;
use crate::cli::DemoOptions;
use crate::frames;
use crate::progress::Display;
use crate::report::Report;
use crate::{
    Accel, Artefact, Capture, Endpoint, Exchange, Flows, Guest, Machine, Outcome, Ready, Source, StopReport,
};

/// How long the image may take from the start of QEMU until it forwards; generous, since the host may be busy.
const BOOT_PATIENCE: Duration = Duration::from_secs(60);
/// How often a probe is sent until one comes out.
const PROBE_EVERY: Duration = Duration::from_millis(2);
/// The slowest traffic that QEMU is given time for, in frames per second.
const SLOWEST_RATE: u64 = 500;

/// Frames to send, one source for each direction.
type Sources = Vec<Box<dyn Source>>;

/// What happened while the image ran.
struct Course {
    ready: Ready,
    /// From the start of QEMU to the first frame that came out.
    first_frame: Duration,
    outcome: Outcome,
    stop: StopReport,
}

/// Boots the image with two ports, sends frames in at both (or a capture in at port 0), and checks what comes out.
///
/// # Errors
/// When anything was lost, changed, reordered, duplicated or miscounted, when a buffer did not come home, and when the
/// image does not boot, forward or stop at all.
pub fn demo(image: &Artefact, options: &DemoOptions) -> Result<()> {
    let mut sources = sources(options)?;
    let planned: Vec<_> = sources.iter().map(|source| source.total()).collect();
    let sockets = tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
    let endpoints = [Endpoint::bind(sockets.path(), 0)?, Endpoint::bind(sockets.path(), 1)?];
    let guest = start(image, options, &endpoints, planned.iter().sum())?;
    let course = run(&guest, &endpoints, &mut sources, options.lose);
    if let Some(path) = &options.keep_log {
        fs::write(path, guest.log()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let course = course?;
    let report = Report {
        entries: (0..planned.len()).collect(),
        planned,
        outcome: course.outcome,
        ready: course.ready.at - guest.spawned(),
        boot: Duration::from_micros(course.ready.boot_us),
        first_frame: course.first_frame,
        image_bytes: image.size()?,
        memory_mib: options.machine.memory,
        stop: course.stop,
    };
    println!("{}", report.render());
    let faults = report.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    println!("nothing was lost, changed or reordered");
    Ok(())
}

fn sources(options: &DemoOptions) -> Result<Sources> {
    let Some(path) = &options.pcap else {
        let flows =
            |direction| Box::new(Flows::new(direction, options.flows, options.frames)) as Box<dyn Source>;
        return Ok(vec![flows(0), flows(1)]);
    };
    let capture = Capture::read(path)?;
    announce(&capture, path);
    Ok(vec![Box::new(capture)])
}

/// Says what will be replayed, and what will not.
fn announce(capture: &Capture, path: &Path) {
    let Skipped { short, long, cut } = capture.skipped;
    println!("capture {}: {} frames", path.display(), HumanCount(capture.total()));
    for (count, what) in [
        (short, "shorter than an Ethernet header: left out"),
        (long, "longer than an MTU of 1500 allows: left out"),
        (cut, "cut when they were captured: sent as far as the capture goes"),
    ] {
        if count > 0 {
            println!("  {} {what}", HumanCount(count));
        }
    }
}

fn start(image: &Artefact, options: &DemoOptions, endpoints: &[Endpoint], frames: u64) -> Result<Guest> {
    let vm = &options.machine;
    let machine = Machine::new(image)
        .cpus(vm.cpus.unwrap_or(2).into())
        .memory_mib(vm.memory as usize)
        .chipset(vm.machine)
        .rings(vm.rings)
        .accel(vm.accel.unwrap_or_else(Accel::detect))
        .time_limit(Some(2 * BOOT_PATIENCE + Duration::from_secs(frames / SLOWEST_RATE)))
        .words("on-panic=exit")
        .words(vm.words.join(" "));
    endpoints.iter().fold(machine, |machine, endpoint| machine.port(endpoint.spec())).start()
}

/// Waits for the image, lets the traffic through, and stops the image.
fn run(guest: &Guest, endpoints: &[Endpoint], sources: &mut Sources, lose: Option<u64>) -> Result<Course> {
    let first_frame = first_frame(guest, endpoints)?;
    let ready = guest.wait_ready(BOOT_PATIENCE)?;
    let mut display = Display::start(sources.iter().map(|source| source.total()).sum());
    let mut exchange = Exchange::new(endpoints).lose(lose);
    for (from, source) in sources.iter_mut().enumerate() {
        exchange = exchange.lane(source.as_mut(), from, from ^ 1);
    }
    let outcome = exchange.run(|progress| display.show(progress));
    display.finish();
    let mut outcome = outcome.with_context(|| guest.tail())?;
    outcome.probes += 1; // The one that came out first.
    Ok(Course { ready, first_frame, outcome, stop: guest.stop()? })
}

/// Sends probes in at port 0 until one comes out of port 1; returns when that was, from the start of QEMU.
fn first_frame(guest: &Guest, endpoints: &[Endpoint]) -> Result<Duration> {
    let deadline = guest.spawned() + BOOT_PATIENCE;
    while endpoints.iter().any(|endpoint| endpoint.connect(Duration::ZERO).is_err()) {
        check_alive(guest, deadline)?;
        std::thread::sleep(PROBE_EVERY);
    }
    loop {
        endpoints[0].try_send(&frames::probe()).with_context(|| guest.tail())?;
        if endpoints[1].receive(PROBE_EVERY)?.is_some_and(|frame| frames::is_probe(&frame)) {
            return Ok(guest.spawned().elapsed());
        }
        check_alive(guest, deadline)?;
    }
}

/// Whether there is still hope that the image will forward.
fn check_alive(guest: &Guest, deadline: Instant) -> Result<()> {
    let refusal = guest.lines().into_iter().find(|line| line.text.starts_with("sluice refused: "));
    if let Some(line) = refusal {
        bail!("{}", line.text);
    }
    if guest.exited().is_some() || Instant::now() >= deadline {
        bail!("the image did not forward its first frame; {}", guest.tail());
    }
    Ok(())
}

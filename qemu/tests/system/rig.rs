//! A booted image with its ports in the test's hands.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qemu::metrics::Sample;
use qemu::{Endpoint, Guest, Machine, Metrics, Ready, StopReport};
use tempfile::TempDir;

use crate::image::image;
use crate::process::{PATIENCE, PAUSE};

/// How long a port must stay silent before the test believes that nothing more comes out.
/// Used only when the image has already said that it sent nothing more.
const SILENCE: Duration = Duration::from_millis(50);

/// An image that forwards, and our ends of its ports.
pub(crate) struct Rig {
    pub(crate) guest: Guest,
    pub(crate) ready: Ready,
    pub(crate) ports: Vec<Endpoint>,
    _sockets: TempDir,
}

impl Rig {
    /// Boots the image with so many ports; `describe` adds what the test is about.
    pub(crate) fn boot(ports: usize, describe: impl FnOnce(Machine) -> Machine) -> Result<Self> {
        let sockets = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
        let ports: Vec<_> =
            (0..ports).map(|port| Endpoint::bind(sockets.path(), port)).collect::<Result<_>>()?;
        let mut machine = Machine::new(image()?).words("on-panic=exit");
        for port in &ports {
            machine = machine.port(port.spec());
        }
        let guest = describe(machine).start()?;
        let ready = guest.wait_ready(PATIENCE)?;
        for port in &ports {
            port.connect(PATIENCE)?;
        }
        ensure!(ready.ports == ports.len(), "{} of {} ports: {}", ready.ports, ports.len(), guest.log());
        Ok(Self { guest, ready, ports, _sockets: sockets })
    }

    /// Sends a frame in at a port.
    pub(crate) fn send(&self, port: usize, frame: &[u8]) -> Result<()> {
        self.ports[port].send(frame, PATIENCE)
    }

    /// The next frame that comes out of a port.
    pub(crate) fn receive(&self, port: usize) -> Result<Vec<u8>> {
        let frame = self.ports[port].receive(PATIENCE)?;
        frame.with_context(|| format!("no frame came out of port {port}\n{}", self.guest.log()))
    }

    /// Waits until the image has received this many frames at all ports together, and has decided on each.
    pub(crate) fn settle(&self, received: u64) -> Result<Metrics> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.guest.metrics()?;
            let settled = metrics.count("sluice_port_rx_packets_total", &[]) >= received
                && metrics.count("sluice_waiting_packets", &[]) == 0
                && metrics.count("sluice_tx_waiting_packets", &[]) == 0;
            if settled || Instant::now() > deadline {
                ensure!(settled, "the image never settled on {received} frames: {metrics:?}");
                return Ok(metrics);
            }
        }
    }

    /// Stops the image in good order; every buffer must be home, and nothing may come out of any port any more.
    pub(crate) fn stop(self) -> Result<StopReport> {
        let report = self.guest.stop()?;
        ensure!(report.exit_code == Some(qemu::guest::EXIT_STOPPED), "exit code {:?}", report.exit_code);
        ensure!(
            report.pool > 0 && report.home == report.pool,
            "{} of {} buffers home",
            report.home,
            report.pool
        );
        for (port, endpoint) in self.ports.iter().enumerate() {
            let frame = endpoint.receive(SILENCE)?;
            ensure!(frame.is_none(), "a frame that nobody sent came out of port {port}: {frame:02x?}");
        }
        Ok(report)
    }
}

/// Waits until the outside sees that the image has done something.
pub(crate) fn wait_until(guest: &Guest, what: &str, reached: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        ensure!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}\n{}", describe(guest));
        ensure!(guest.exited().is_none(), "{what}: not before the machine's end\n{}", guest.log());
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// What there is to know of an image that does not do what it should: every counter that is not 0, and the console.
pub(crate) fn describe(guest: &Guest) -> String {
    let log = guest.log();
    let counters: String = match guest.metrics() {
        Ok(metrics) => metrics.samples().iter().filter(|sample| sample.value != 0.0).map(line).collect(),
        Err(error) => format!("{error:#}\n"),
    };
    counters + &log
}

fn line(Sample { name, labels, value }: &Sample) -> String {
    format!("{name} {labels:?} {value}\n")
}

/// What holds when the image has stopped: every buffer is home, and every packet has come to an end that is counted.
pub(crate) fn check_stopped(report: &StopReport, ports: usize) -> Result<()> {
    ensure!(report.pool > 0 && report.home == report.pool, "{} of {} buffers home", report.home, report.pool);
    check_balance(&report.metrics, ports)?;
    let sum = |name| report.metrics.count(name, &[]);
    ensure!(sum("sluice_waiting_packets") == 0, "packets still wait: {:?}", report.metrics);
    let from_ports = sum("sluice_forwarded_packets_total");
    let from_stacks = sum("sluice_stack_sent_packets_total");
    let sent = sum("sluice_port_tx_packets_total");
    ensure!(from_ports + from_stacks == sent, "{from_ports} + {from_stacks} forwarded, but {sent} sent");
    ensure!(sum("sluice_pool_packets") == report.pool, "the metrics and the last line tell different pools");
    Ok(())
}

/// Nothing is lost unaccounted: what a port received was dropped, passed or sent on, or is still waiting. And each had
/// a verdict, but for those refused before the program and those that are on their way to it.
pub(crate) fn check_balance(metrics: &Metrics, ports: usize) -> Result<()> {
    const BEFORE_THE_PROGRAM: [&str; 7] =
        ["runt", "oversize", "truncated", "unknown_descriptor", "damaged", "device_reset", "steer_ring_full"];
    for port in 0..ports {
        let port = port.to_string();
        let count = |name| metrics.count(name, &[("port", &port)]);
        let refused = |reason| metrics.count("sluice_drops_total", &[("port", &port), ("reason", reason)]);
        let received = count("sluice_port_rx_packets_total");
        let dropped = count("sluice_drops_total");
        let passed = count("sluice_passed_packets_total");
        let sent = count("sluice_forwarded_packets_total");
        let waiting = count("sluice_waiting_packets");
        ensure!(
            received == dropped + passed + sent + waiting,
            "port {port}: {received} received, but {dropped} dropped, {passed} passed, {sent} sent, {waiting} waiting"
        );
        let verdicts = count("sluice_verdicts_total");
        let refused: u64 = BEFORE_THE_PROGRAM.map(refused).iter().sum();
        let steered = count("sluice_steering_waiting_packets");
        ensure!(
            received == verdicts + refused + steered,
            "port {port}: {received} received, but {verdicts} verdicts, {refused} refused before, {steered} on their way"
        );
    }
    Ok(())
}

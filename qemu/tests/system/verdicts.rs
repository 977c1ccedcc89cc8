//! What each program does with each kind of frame: what comes out, byte for byte, and what the counters say.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::Metrics;

use crate::frames::{frame, reflected, runts, specimens};
use crate::harness::test;
use crate::rig::Rig;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("verdicts::reflect", reflect),
        test("verdicts::forward", forward),
        test("verdicts::forward_pairs_four_ports", forward_pairs_four_ports),
        test("verdicts::drop", || swallows("drop")),
        test("verdicts::pass", || swallows("pass")),
        test("verdicts::too_long", too_long),
    ]
}

/// Out of the port that it came in by, with the addresses swapped.
fn reflect() -> Result<()> {
    let rig = Rig::boot(2, |machine| machine.words("program=reflect").cpus(2))?;
    for port in 0..2 {
        for (name, frame) in specimens() {
            rig.send(port, &frame)?;
            ensure!(
                rig.receive(port)? == reflected(&frame),
                "port {port}, {name}: not reflected byte for byte"
            );
        }
    }
    let metrics = after_runts(rig)?;
    for port in ["0", "1"] {
        check_verdicts(&metrics, port, "tx", specimens().len())?;
    }
    Ok(())
}

/// Out of the other port of the pair, unchanged.
fn forward() -> Result<()> {
    let rig = Rig::boot(2, |machine| machine.words("program=forward").cpus(2))?;
    for (from, to) in [(0, 1), (1, 0)] {
        check_forwarded(&rig, from, to)?;
    }
    let metrics = after_runts(rig)?;
    for port in ["0", "1"] {
        check_verdicts(&metrics, port, "redirect", specimens().len())?;
    }
    Ok(())
}

fn forward_pairs_four_ports() -> Result<()> {
    let rig = Rig::boot(4, |machine| machine.words("program=forward").cpus(2))?;
    for (from, to) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        check_forwarded(&rig, from, to)?;
    }
    rig.stop()?;
    Ok(())
}

/// Nowhere: `drop` and `pass` differ in what is counted.
fn swallows(program: &str) -> Result<()> {
    let rig = Rig::boot(2, |machine| machine.words(format!("program={program}")))?;
    for (_, frame) in specimens() {
        rig.send(0, &frame)?;
    }
    rig.settle(specimens().len() as u64)?;
    let metrics = after_runts(rig)?;
    check_verdicts(&metrics, "0", program, specimens().len())?;
    let (dropped, passed) = if program == "drop" { (specimens().len(), 0) } else { (0, specimens().len()) };
    ensure!(metrics.count("sluice_drops_total", &[("port", "0"), ("reason", "verdict")]) == dropped as u64);
    ensure!(metrics.count("sluice_passed_packets_total", &[("port", "0")]) == passed as u64);
    Ok(())
}

/// Longer than the network's MTU, and longer than a buffer: what the device lets in comes out whole, or is dropped and
/// counted; nothing is cut.
fn too_long() -> Result<()> {
    let rig = Rig::boot(1, |machine| machine.words("program=reflect"))?;
    let sent = [1515, 1600, 1792, 1793, 2048, 4000, 9000].map(|length| frame(length, length));
    for frame in &sent {
        rig.send(0, frame)?;
    }
    let last = frame(60, 0);
    rig.send(0, &last)?;

    let mut expected = sent.iter().map(|frame| reflected(frame));
    let mut came_out = 0;
    loop {
        let frame = rig.receive(0)?;
        came_out += 1;
        if frame == reflected(&last) {
            break;
        }
        ensure!(
            expected.any(|whole| whole == frame),
            "a frame of {} bytes came out that nobody sent",
            frame.len()
        );
    }
    let metrics = rig.stop()?.metrics;
    let received = metrics.count("sluice_port_rx_packets_total", &[]);
    let dropped = metrics.count("sluice_drops_total", &[]);
    ensure!(received == came_out + dropped, "{received} received, {came_out} came out, {dropped} dropped");
    Ok(())
}

fn check_forwarded(rig: &Rig, from: usize, to: usize) -> Result<()> {
    for (name, frame) in specimens() {
        rig.send(from, &frame)?;
        ensure!(
            rig.receive(to)? == frame,
            "from port {from} to port {to}, {name}: not forwarded byte for byte"
        );
    }
    Ok(())
}

/// Sends frames without a header in at every port, then stops the image; they are dropped and counted as runts,
/// whatever the program. Returns the final metrics.
fn after_runts(rig: Rig) -> Result<Metrics> {
    let before = rig.guest.metrics()?.count("sluice_port_rx_packets_total", &[]);
    let ports = rig.ports.len();
    for port in 0..ports {
        for runt in runts() {
            rig.send(port, &runt)?;
        }
    }
    rig.settle(before + (ports * runts().len()) as u64)?;
    let metrics = rig.stop()?.metrics;
    for port in 0..ports {
        let labels = [("port", &*port.to_string()), ("reason", "runt")];
        let dropped = metrics.count("sluice_drops_total", &labels);
        ensure!(dropped == runts().len() as u64, "port {port}: {dropped} of {} runts dropped", runts().len());
    }
    Ok(metrics)
}

/// The port's frames got this verdict and no other.
fn check_verdicts(metrics: &Metrics, port: &str, verdict: &str, expected: usize) -> Result<()> {
    let counted = metrics.count("sluice_verdicts_total", &[("port", port), ("verdict", verdict)]);
    let all = metrics.count("sluice_verdicts_total", &[("port", port)]);
    ensure!(
        counted == expected as u64,
        "port {port}: {counted} of {expected} frames got the verdict {verdict}"
    );
    ensure!(all == counted, "port {port}: {} frames got other verdicts than {verdict}", all - counted);
    Ok(())
}

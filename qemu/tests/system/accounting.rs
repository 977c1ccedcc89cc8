//! Nothing is lost, and nothing is lost unaccounted, when many frames are under way.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use libtest_mimic::Trial;
use qemu::Rings;

use crate::frames::{frame, reflected};
use crate::harness::test;
use crate::process::PATIENCE;
use crate::rig::{Rig, check_balance, check_stopped};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("accounting::queue_indices_wrap_three_times", || {
            reflects_in_batches(200_000, Rings::Split, "ring=256")
        }),
        test("accounting::short_rings", || reflects_in_batches(20_000, Rings::Split, "ring=64 batch=64")),
        test("accounting::long_rings", || reflects_in_batches(20_000, Rings::Split, "ring=4096 batch=1")),
        test("accounting::overload_is_counted", overload_is_counted),
    ]
}

/// Frames under way at a time: more than a batch, fewer than the shortest ring, so that the device drops none.
const WINDOW: usize = 60;

/// So many frames through one queue, in bursts, each of which comes back once, whole and in order.
///
/// The ring indices have 16 bits (virtio 1.2, 2.7): 200,000 frames take them past three wraps.
pub(crate) fn reflects_in_batches(total: usize, rings: Rings, words: &str) -> Result<()> {
    let rig = Rig::boot(1, |machine| machine.words("program=reflect").words(words).rings(rings))?;
    let port = &rig.ports[0];
    let numbered = |number: usize| frame(60 + number % 3, number);
    let (mut sent, mut received) = (0, 0);
    let mut buffer = [0; 2048];
    let mut last_progress = Instant::now();
    while received < total {
        while sent < total.min(received + WINDOW) && port.try_send(&numbered(sent))? {
            sent += 1;
        }
        match port.try_receive(&mut buffer)? {
            Some(length) => {
                ensure!(
                    buffer[..length] == reflected(&numbered(received)),
                    "frame {received} is lost or changed"
                );
                received += 1;
                last_progress = Instant::now();
            }
            None if last_progress.elapsed() > PATIENCE => bail!("stuck at frame {received} of {total}"),
            // QEMU needs the processor more than this loop does.
            None => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    let report = rig.stop()?;
    for name in
        ["sluice_port_rx_packets_total", "sluice_port_tx_packets_total", "sluice_forwarded_packets_total"]
    {
        let counted = report.metrics.count(name, &[]);
        ensure!(counted == total as u64, "{name} is {counted}, not {total}");
    }
    let bytes: usize = (0..total).map(|number| numbered(number).len()).sum();
    for name in ["sluice_port_rx_bytes_total", "sluice_port_tx_bytes_total"] {
        let counted = report.metrics.count(name, &[]);
        ensure!(counted == bytes as u64, "{name} is {counted}, not {bytes}");
    }
    Ok(())
}

/// Both ports take frames as fast as they can and nobody fetches what comes out: whatever the image does with
/// them, the counters add up while it works and when it has stopped, and every buffer is home.
fn overload_is_counted() -> Result<()> {
    const FRAMES: usize = 10_000;
    let rig = Rig::boot(2, |machine| machine.words("program=forward").cpus(2))?;
    for number in 0..FRAMES {
        for port in 0..2 {
            rig.send(port, &frame(60 + number % 1455, number))?;
        }
        if number % 2_500 == 0 {
            check_balance(&rig.guest.metrics()?, 2)?;
        }
    }
    for port in &rig.ports {
        while port.receive(Duration::ZERO)?.is_some() {}
    }
    let report = rig.guest.stop()?;
    check_stopped(&report, 2)?;
    let received = report.metrics.count("sluice_port_rx_packets_total", &[]);
    ensure!(received <= 2 * FRAMES as u64, "{received} frames received, {FRAMES} sent to each port");
    let unsent = report.metrics.count("sluice_drops_total", &[("reason", "tx_ring_full")]);
    ensure!(unsent > 0, "every frame could be sent: this was no overload");
    Ok(())
}

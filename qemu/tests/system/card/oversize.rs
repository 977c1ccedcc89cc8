//! Frames that are longer than a buffer: the card drops and counts them, and what comes behind them is forwarded.

use anyhow::{Result, ensure};
use netdrv::packet::FRAME_CAPACITY;

use super::Mirror;
use crate::frames::{frame, reflected};
use crate::rig::wait_until;

/// The longest frame that is taken: a VLAN tag would still fit behind it.
const LONGEST: usize = FRAME_CAPACITY - 4;
/// Of each frame that fits, one is sent between two that don't.
const TOO_LONG: [usize; 5] = [LONGEST + 1, LONGEST + 5, 4096, 9014, 9216];

/// Every frame that fits comes back, in order; every other one is in the device's count, and in no other.
pub(super) fn is_counted_and_others_flow() -> Result<()> {
    let fitting = |turn: usize| frame([60, 1514, LONGEST][turn % 3], turn);
    let frames = TOO_LONG.iter().enumerate().flat_map(|(turn, &length)| [frame(length, turn), fitting(turn)]);
    let mirror = Mirror::before(frames.collect())?;
    for turn in 0..TOO_LONG.len() {
        let back = mirror.next()?;
        ensure!(back == reflected(&fitting(turn)), "frame {turn} came back changed: {} bytes", back.len());
    }

    let refused =
        || mirror.guest.metrics().map(|metrics| metrics.count("sluice_device_error_packets_total", &[]));
    wait_until(&mirror.guest, "every frame that is too long is counted", || {
        refused().is_ok_and(|refused| refused >= TOO_LONG.len() as u64)
    })?;
    let report = mirror.stop()?;
    let count = |name| report.metrics.count(name, &[]);
    let counts =
        ["sluice_device_error_packets_total", "sluice_port_rx_packets_total", "sluice_port_tx_packets_total"];
    let counts = counts.map(count);
    ensure!(counts == [TOO_LONG.len() as u64; 3], "too long, received, sent: {counts:?}");
    Ok(())
}

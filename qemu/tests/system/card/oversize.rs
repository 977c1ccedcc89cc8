//! Frames that are longer than a buffer: the card drops and counts them, and what comes behind them is forwarded.

use std::io::Write;
use std::sync::mpsc::channel;

use anyhow::{Context, Result, ensure};
use netdrv::packet::FRAME_CAPACITY;
use qemu::vfio::{Cable, CardOptions, CardPort};

use super::{PATIENCE, Port, boot, nothing_is_wrong};
use crate::frames::{frame, reflected};
use crate::rig::{check_stopped, wait_until};

/// The longest frame that is taken: a VLAN tag would still fit behind it.
const LONGEST: usize = FRAME_CAPACITY - 4;
/// Of each frame that fits, one is sent between two that don't.
const TOO_LONG: [usize; 5] = [LONGEST + 1, LONGEST + 5, 4096, 9014, 9216];

/// Every frame that fits comes back, in order; every other one is in the device's count, and in no other.
pub(super) fn is_counted_and_others_flow() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let cable = Cable::Traffic { takes: None, gives: None };
    let card = CardPort::listen(folder.path().join("card"), CardOptions::default(), cable)?;
    let port = [Port::Card(card)];
    let guest = boot(&port, 1, "program=reflect")?;
    let [Port::Card(card)] = port else { unreachable!("it was made above") };

    let fitting = |turn: usize| frame([60, 1514, LONGEST][turn % 3], turn);
    let frames = TOO_LONG.iter().enumerate().flat_map(|(turn, &length)| [frame(length, turn), fitting(turn)]);
    let mut frames = frames.collect::<Vec<_>>().into_iter();
    let (sender, came_back) = channel();
    let source = move |frame: &mut Vec<u8>| frames.next().is_some_and(|next| frame.write_all(&next).is_ok());
    card.start(source, move |_: u16, frame: &[u8]| drop(sender.send(frame.to_vec())));
    for turn in 0..TOO_LONG.len() {
        let back =
            came_back.recv_timeout(PATIENCE).with_context(|| format!("frame {turn} did not come back"))?;
        ensure!(back == reflected(&fitting(turn)), "frame {turn} came back changed: {} bytes", back.len());
    }

    let refused = || guest.metrics().map(|metrics| metrics.count("sluice_device_error_packets_total", &[]));
    wait_until(&guest, "every frame that is too long is counted", || {
        refused().is_ok_and(|refused| refused >= TOO_LONG.len() as u64)
    })?;
    let report = guest.stop()?;
    check_stopped(&report, 1)?;
    let count = |name| report.metrics.count(name, &[]);
    let counts =
        ["sluice_device_error_packets_total", "sluice_port_rx_packets_total", "sluice_port_tx_packets_total"];
    let counts = counts.map(count);
    ensure!(counts == [TOO_LONG.len() as u64; 3], "too long, received, sent: {counts:?}");
    nothing_is_wrong(&card.stop())
}

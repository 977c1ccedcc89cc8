//! A traffic port whose machine is reset again and again.

use std::io::Write;
use std::os::unix::net::UnixStream;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::flows::Source;
use qemu::vhost::{TrafficConfig, TrafficPort};
use qemu::{Flows, Machine, Reset};

use crate::harness::test;
use crate::image::image;
use crate::rig::wait_until;

pub(crate) fn trials() -> Vec<Trial> {
    vec![test("traffic::a_machine_that_is_reset_goes_on", reset)]
}

/// A reset of the machine amid traffic takes the rings away from under the port, which finds those of the next boot.
fn reset() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let config = TrafficConfig { queue_pairs: 2, ..Default::default() };
    let port = TrafficPort::listen(folder.path().join("port0"), config)?;
    let monitor_path = folder.path().join("monitor");
    let guest = Machine::new(image()?)
        .cpus(2)
        .words("program=reflect")
        .on_reset(Reset::Reboots)
        .port(port.spec())
        .extra_args(["-monitor", &format!("unix:{},server=on,wait=off", monitor_path.display())])
        .start()?;
    let mut flows = Flows::new(0, 1000, u64::from(u32::MAX));
    port.start(move |frame: &mut Vec<u8>| flows.next(frame), |_: u16, _: &[u8]| {});
    let reflects_after_boot = |boot| {
        let boots = || guest.lines().iter().filter(|line| line.text.starts_with("sluice ready")).count();
        wait_until(&guest, "the image is ready", || boots() == boot)?;
        let before = port.counts().total().frames_out;
        wait_until(&guest, "frames come out", || port.counts().total().frames_out >= before + 2_000)
    };
    reflects_after_boot(1)?;
    let mut monitor = UnixStream::connect(&monitor_path)?;
    for boot in 2..=3 {
        monitor.write_all(b"system_reset\n")?;
        reflects_after_boot(boot)?;
    }
    let report = port.stop();
    ensure!(report.faults.total() == 0, "{report}");
    Ok(())
}

//! What people read and type on the serial console.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::Guest;

use crate::harness::test;
use crate::process::PATIENCE;
use crate::rig::Rig;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("console::one_line_tells_all_of_a_port", port_line),
        test("console::port_line_tells_of_shared_queues", port_line_of_shared_queues),
        test("console::log_level_leaves_events_alone", log_level_leaves_events_alone),
        test("console::log_lines_have_time_level_and_target", log_lines),
        test("console::unknown_command_is_answered", unknown_command_is_answered),
    ]
}

fn port_line() -> Result<()> {
    let rig = Rig::boot(2, |machine| machine)?;
    let expected = "port 0 virtio-net 0000:00:02.0 mac=52:54:00:12:34:56 link=up rx-queues=1 tx-queues=1 \
                    rx-ring=256 tx-ring=256 mtu=1500 tx=dedicated";
    ensure!(line(&rig.guest, "port 0 ")? == expected, "{}", rig.guest.log());
    let second = line(&rig.guest, "port 1 ")?;
    ensure!(second.starts_with("port 1 virtio-net 0000:00:03.0 mac=52:54:00:12:34:57 link=up "), "{second}");
    rig.stop()?;
    Ok(())
}

/// Two cores transmit on the one queue of each port.
fn port_line_of_shared_queues() -> Result<()> {
    let rig = Rig::boot(2, |machine| machine.cpus(2))?;
    let port = line(&rig.guest, "port 0 ")?;
    ensure!(port.ends_with(" tx=shared(2 cores/queue)"), "{port}");
    let metrics = rig.stop()?.metrics;
    ensure!(metrics.get("sluice_tx_mode", &[("port", "0"), ("mode", "shared")]) == Some(1.0));
    ensure!(metrics.get("sluice_tx_queue_cores", &[("port", "0"), ("queue", "0")]) == Some(2.0));
    Ok(())
}

/// With `log=error` only the events are left, and what was said before the word could be read.
fn log_level_leaves_events_alone() -> Result<()> {
    let rig = Rig::boot(1, |machine| machine.words("log=error"))?;
    line(&rig.guest, "port 0 ")?;
    let log = rig.guest.log();
    let (_, after) = log.split_once("INFO  kernel::boot: entered through ").unwrap_or(("", &log));
    ensure!(!after.contains(" INFO ") && !after.contains(" WARN "), "log=error lets others through:\n{log}");
    rig.stop()?;
    Ok(())
}

/// `[   0.012345] INFO  kernel::smp: text`
fn log_lines() -> Result<()> {
    let rig = Rig::boot(1, |machine| machine.words("log=debug"))?;
    let lines = rig.guest.lines();
    let logged: Vec<_> = lines.iter().filter_map(|line| line.text.strip_prefix('[')).collect();
    ensure!(!logged.is_empty(), "nothing was logged:\n{}", rig.guest.log());
    for line in logged {
        let (time, rest) = line.split_once("] ").with_context(|| format!("no time: [{line}"))?;
        time.trim().parse::<f64>().with_context(|| format!("no time: [{line}"))?;
        let level = rest.get(..6).unwrap_or("").trim_end();
        ensure!(["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level), "no level: [{line}");
        ensure!(rest[6..].contains(": "), "no target: [{line}");
    }
    rig.stop()?;
    Ok(())
}

fn unknown_command_is_answered() -> Result<()> {
    let rig = Rig::boot(1, |machine| machine)?;
    rig.guest.send_command("mterics")?;
    let answer = "unknown command \"mterics\"; commands: metrics stop";
    rig.guest.wait_for_line(|line| line == answer, PATIENCE)?;
    rig.stop()?;
    Ok(())
}

/// The one line that begins so.
fn line(guest: &Guest, start: &str) -> Result<String> {
    let lines = guest.lines();
    let mut matching = lines.iter().filter(|line| line.text.starts_with(start));
    let line = matching.next().with_context(|| format!("no line begins with {start:?}:\n{}", guest.log()))?;
    ensure!(matching.next().is_none(), "several lines begin with {start:?}:\n{}", guest.log());
    Ok(line.text.clone())
}

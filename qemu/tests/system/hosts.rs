//! Linux hosts, and what two of them do that reach each other only through the image.
//!
//! A host is a network namespace without a name: a process that waits holds it, and it is gone with that process.
//! QEMU makes the taps, and they are gone with QEMU. So nothing stays behind, however a test ends.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::{Machine, PortSpec, Rings};

use crate::frames::noise;
use crate::harness::{Need, test_with};
use crate::image::image;
use crate::process::{Background, PATIENCE, run};
use crate::rig::check_stopped;

/// A Linux host of its own: one network namespace with one interface.
pub(crate) struct Host {
    holder: Background,
    /// The IPv4 address of the interface.
    pub(crate) address: String,
}

impl Host {
    /// Makes a host and moves the interface `tap` of this machine into it, as its only one, with `address`/24.
    pub(crate) fn with_interface(tap: &str, address: &str) -> Result<Self> {
        let mut holder = Background::start(&["unshare", "--net", "sh", "-c", "echo holding; exec cat"])?;
        holder.wait_for_line("holding")?;
        run(&["ip", "link", "set", "dev", tap, "netns", &holder.pid().to_string()])?;
        let host = Self { holder, address: address.to_owned() };
        host.run(&["ip", "link", "set", "dev", "lo", "up"])?;
        host.run(&["ip", "address", "add", &format!("{address}/24"), "dev", tap])?;
        host.run(&["ip", "link", "set", "dev", tap, "up"])?;
        Ok(host)
    }

    /// Runs `program` on this host to its successful end; returns what it printed.
    pub(crate) fn run(&self, program: &[&str]) -> Result<String> {
        run(&self.on_this_host(program).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts `program` on this host beside the test.
    pub(crate) fn start(&self, program: &[&str]) -> Result<Background> {
        Background::start(&self.on_this_host(program).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn on_this_host(&self, program: &[&str]) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.pid());
        ["nsenter", &namespace, "--"].iter().chain(program).map(|word| (*word).to_owned()).collect()
    }
}

/// What these tests need beside QEMU.
pub(crate) const NEEDS: [Need; 8] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("ip"),
    Need::Program("nsenter"),
    Need::Program("ping"),
    Need::Program("iperf3"),
    Need::Program("curl"),
    Need::Program("python3"),
];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_with(&NEEDS, "hosts::one_queue", || hosts_talk(1, 1, Rings::Split)),
        test_with(&NEEDS, "hosts::two_queues_two_cores", || hosts_talk(2, 2, Rings::Split)),
        test_with(&NEEDS, "hosts::two_packed_queues_two_cores", || hosts_talk(2, 2, Rings::Packed)),
    ]
}

/// Everything that two hosts on a cable can do, through an image with so many queues a port, and cores.
fn hosts_talk(queues: u16, cores: usize, rings: Rings) -> Result<()> {
    let taps = [tap_name('a'), tap_name('b')];
    let ports = taps.clone().map(|name| PortSpec::Tap { name, queues });
    let [left, right] = ports;
    let guest = Machine::new(image()?)
        .words("program=forward on-panic=exit")
        .cpus(cores)
        .rings(rings)
        .port(left)
        .port(right)
        .time_limit(Some(Duration::from_secs(300)))
        .start()?;
    guest.wait_ready(PATIENCE)?;
    let a = Host::with_interface(&taps[0], "10.77.0.1")?;
    let b = Host::with_interface(&taps[1], "10.77.0.2")?;

    ping(&a, &b.address)?;
    ping(&b, &a.address)?;
    let dropped = guest.metrics()?.count("sluice_drops_total", &[]);
    ensure!(dropped == 0, "the image dropped {dropped} frames of the pings");
    send_over_tcp(&a, &b)?;
    fetch_over_http(&a, &b)?;

    check_stopped(&guest.stop()?, 2)
}

/// A name of its own for each tap of each run on this machine; Linux allows 15 bytes.
pub(crate) fn tap_name(side: char) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("sl{:x}{side}{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Single pings, the largest that one frame carries, and many small ones, one on the heels of the other.
///
/// With a deadline (`-w`) ping ends when it has so many answers. Without, it waits for the last ones no longer than
/// twice the slowest so far, which is too short on a busy machine; `-W` does not change that.
pub(crate) fn ping(from: &Host, to: &str) -> Result<()> {
    for (count, options) in [(3, "-i 0.2"), (50, "-i 0.01 -s 1472 -M do"), (1000, "-i 0.001 -s 8")] {
        let options = format!("-q -w 60 -c {count} {options} {to}");
        let report = from.run(&["ping"].into_iter().chain(options.split(' ')).collect::<Vec<_>>())?;
        ensure!(answers(&report)? >= count, "{options}: {report}");
        ensure!(!report.contains("duplicates") && !report.contains("errors"), "{options}: {report}");
    }
    Ok(())
}

/// `1000 packets transmitted, 1000 received, 0% packet loss, time 1234ms`
fn answers(report: &str) -> Result<usize> {
    let counted = report.split(", ").find_map(|part| part.strip_suffix(" received")?.parse().ok());
    counted.with_context(|| format!("ping does not count: {report}"))
}

/// iperf3 both ways, two seconds each: bytes arrive, and iperf3 is content.
fn send_over_tcp(client: &Host, server: &Host) -> Result<()> {
    for direction in [&[][..], &["--reverse"]] {
        let mut listener = server.start(&["iperf3", "--server", "--one-off", "--forceflush"])?;
        listener.wait_for_line("Server listening")?;
        let command = [&["iperf3", "--client", &server.address, "--time", "2", "--json"], direction].concat();
        let report: serde_json::Value = serde_json::from_str(&client.run(&command)?)?;
        let bytes = report["end"]["sum_received"]["bytes"].as_u64().context("iperf3 reports no bytes")?;
        ensure!(bytes > 1_000_000, "{bytes} bytes {direction:?}");
    }
    Ok(())
}

/// A file of 50 MB arrives as it was sent.
fn fetch_over_http(client: &Host, server: &Host) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (sent, received) = (folder.path().join("sent"), folder.path().join("received"));
    let content: Vec<u8> = noise(50).take(50_000_000).collect();
    fs::write(&sent, &content)?;
    let path = folder.path().display().to_string();
    let mut web_server =
        server.start(&["python3", "-u", "-m", "http.server", "8080", "--directory", &path])?;
    web_server.wait_for_line("Serving HTTP")?;

    let url = format!("http://{}:8080/sent", server.address);
    client.run(&[
        "curl",
        "--silent",
        "--show-error",
        "--fail",
        "--output",
        &received.display().to_string(),
        &url,
    ])?;
    ensure!(sha256(&received)? == sha256(&sent)?, "the file has changed under way");
    Ok(())
}

fn sha256(file: &Path) -> Result<String> {
    let line = run(&["sha256sum", &file.display().to_string()])?;
    Ok(line.split_whitespace().next().context("sha256sum prints no hash")?.to_owned())
}

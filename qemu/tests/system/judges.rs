//! Is the model an 82599? Those judge who know the card: Linux's driver, and DPDK's. Neither was written here.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::vfio::{Cable, CardOptions, CardPort, CardReport};
use tempfile::TempDir;

use crate::harness::{Need, test_with};
use crate::hosts::{Host, NEEDS as HOST_NEEDS, tap_name};
use crate::linux::{LinuxGuest, Programs};

pub(crate) fn trials() -> Vec<Trial> {
    let needs: Vec<_> = HOST_NEEDS.into_iter().chain([Need::CardsFromOutside, Need::LinuxGuest]).collect();
    vec![test_with(&needs, "judges::linux", linux)]
}

/// Linux's `ixgbe` finds nothing to complain about, and the model nothing in what the driver does.
fn linux() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let tap = tap_name('l');
    let card = card(&folder, Cable::Tap { name: tap.clone() })?;
    let host = Host::with_interface(&tap, "10.78.0.1")?;
    let guest = LinuxGuest::boot(Programs::Linux, 4, &[card.spec()])?;

    guest.run("modprobe ixgbe")?;
    guest.run("ip address add 10.78.0.2/24 dev eth0 && ip link set eth0 up")?;
    guest.wait_for("grep -q 1 /sys/class/net/eth0/carrier")?;
    let link = guest.run("ethtool eth0")?;
    ensure!(link.contains("Speed: 10000Mb/s") && link.contains("Duplex: Full"), "{link}");

    ping(&host, &guest)?;
    send_over_tcp(&host, &guest)?;
    uses_four_queues(&guest)?;
    let complaints = guest.run("dmesg -r | grep -E '^<[0-4]>' | grep -i -E 'ixgbe|eth0|0000:01' || true")?;
    ensure!(complaints.is_empty(), "Linux warns: {complaints}");
    nothing_is_wrong(&card.report())?;
    // From here on it is done wrong on purpose: patterns are written into registers, and hundreds of them are read.
    passes_the_self_test(&guest)
}

fn card(folder: &TempDir, cable: Cable) -> Result<CardPort> {
    CardPort::listen(folder.path().join("card"), CardOptions::default(), cable)
}

/// Small and large pings from both sides.
fn ping(host: &Host, guest: &LinuxGuest) -> Result<()> {
    for size in ["8", "1472"] {
        let report =
            host.run(&["ping", "-q", "-w", "60", "-c", "20", "-i", "0.05", "-s", size, "10.78.0.2"])?;
        ensure!(report.contains(" 20 received"), "{report}");
        let report = guest.run(&format!("ping -q -w 60 -c 20 -i 0.05 -s {size} 10.78.0.1"))?;
        ensure!(report.contains("20 packets received"), "{report}");
    }
    Ok(())
}

/// Eight streams into the guest and eight out of it.
fn send_over_tcp(host: &Host, guest: &LinuxGuest) -> Result<()> {
    guest.run("iperf3 --server --daemon")?;
    for direction in [&[][..], &["--reverse"]] {
        let command = ["iperf3", "--client", "10.78.0.2", "--parallel", "8", "--time", "3", "--json"];
        let report: serde_json::Value = serde_json::from_str(&host.run(&[&command, direction].concat())?)?;
        let bytes = report["end"]["sum_received"]["bytes"].as_u64().context("iperf3 reports no bytes")?;
        ensure!(bytes > 1_000_000, "{bytes} bytes {direction:?}");
    }
    Ok(())
}

/// Each core has a queue with an interrupt of its own, and the hash has given each something to do.
fn uses_four_queues(guest: &LinuxGuest) -> Result<()> {
    let statistics = guest.run("ethtool -S eth0")?;
    for queue in 0..4 {
        for direction in ["rx", "tx"] {
            let packets = statistic(&statistics, &format!("{direction}_queue_{queue}_packets"))?;
            ensure!(packets > 0, "{direction} queue {queue} is idle: {statistics}");
        }
    }
    for name in [
        "rx_crc_errors",
        "rx_missed_errors",
        "rx_length_errors",
        "tx_timeout_count",
        "rx_csum_offload_errors",
    ] {
        ensure!(statistic(&statistics, name)? == 0, "{name}: {statistics}");
    }
    let frames = statistic(&statistics, "rx_pkts_nic")?;
    ensure!(frames >= statistic(&statistics, "rx_packets")?, "{statistics}");
    let interrupts = guest.run("grep -c 'PCI-MSIX.*eth0-TxRx' /proc/interrupts")?;
    ensure!(interrupts.trim() == "4", "{interrupts} vectors of queues");
    Ok(())
}

/// `     rx_packets: 1234`
fn statistic(statistics: &str, name: &str) -> Result<u64> {
    let line = |line: &str| line.trim().strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
    statistics.lines().find_map(line).with_context(|| format!("no {name} in {statistics}"))
}

/// The driver's own tests of registers, EEPROM, interrupts, loopback and link; and a dump of the registers.
fn passes_the_self_test(guest: &LinuxGuest) -> Result<()> {
    let dump = guest.run("ethtool -d eth0")?;
    ensure!(
        dump.contains("LINKS (Link Status register)")
            && dump.contains("Link Speed:                                    10G"),
        "{dump}"
    );
    let verdict = guest.run("ethtool -t eth0 offline")?;
    ensure!(verdict.contains("The test result is PASS"), "{verdict}");
    Ok(())
}

/// What real silicon punishes was not done, and nothing was done that the model does not know.
fn nothing_is_wrong(report: &CardReport) -> Result<()> {
    ensure!(report.violations.is_empty() && report.unknown.is_empty(), "{report}");
    Ok(())
}

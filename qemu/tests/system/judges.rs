//! Is the model an 82599? Those judge who know the card: Linux's driver, and DPDK's. Neither was written here.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use qemu::Transform;
use qemu::vfio::{Cable, CardOptions, CardPort, Notice, Policy};

use crate::card::nothing_is_wrong;
use crate::harness::{Need, test_with};
use crate::hosts::{Host, NEEDS as HOST_NEEDS, tap_name};
use crate::lane::Lane;
use crate::linux::{LinuxGuest, Programs};

pub(crate) fn trials() -> Vec<Trial> {
    let needs: Vec<_> = HOST_NEEDS.into_iter().chain([Need::CardsFromOutside, Need::LinuxGuest]).collect();
    vec![
        test_with(&needs, "judges::linux", linux),
        test_with(&needs, "judges::linux_on_a_virtual_function", linux_on_a_virtual_function),
        test_with(&[Need::CardsFromOutside, Need::LinuxGuest], "judges::dpdk", dpdk),
    ]
}

/// Linux's `ixgbe` finds nothing to complain about, and the model nothing in what the driver does.
fn linux() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let tap = tap_name('l');
    let cable = Cable::Tap { name: tap.clone() };
    let card = CardPort::listen(folder.path().join("card"), CardOptions::default(), cable)?;
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

/// Linux's `ixgbevf` finds nothing to complain about in a virtual function, nor in the host that the model plays; it lives through
/// a reset of that host.
fn linux_on_a_virtual_function() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let tap = tap_name('v');
    let cable = Cable::Tap { name: tap.clone() };
    let path = folder.path().join("card");
    let card = CardPort::listen_virtual(path, CardOptions::default(), Policy::default(), cable)?;
    let host = Host::with_interface(&tap, "10.78.0.1")?;
    let guest = LinuxGuest::boot(Programs::Linux, 2, &[card.spec()])?;

    guest.run("modprobe ixgbevf")?;
    let mac = guest.run("cat /sys/class/net/eth0/address")?;
    ensure!(mac.trim() == "02:82:59:90:00:01", "the host gave another address than {mac}");
    guest.run("ip address add 10.78.0.2/24 dev eth0 && ip link set eth0 up")?;
    guest.wait_for("grep -q 1 /sys/class/net/eth0/carrier")?;
    let link = guest.run("ethtool eth0")?;
    ensure!(link.contains("Speed: 10000Mb/s"), "{link}");
    ping(&host, &guest)?;
    send_over_tcp(&host, &guest)?;
    let complaints = guest.run("dmesg -r | grep -E '^<[0-4]>' | grep -i -E 'ixgbe|eth0|0000:01' || true")?;
    ensure!(complaints.is_empty(), "Linux warns: {complaints}");
    nothing_is_wrong(&card.report())?;

    card.with_host(|host, card| host.reset(card, Notice::Given));
    // The rings are gone: nothing gets through before the driver has noticed.
    guest.wait_for("ping -q -c 1 -w 2 10.78.0.1")?;
    ping(&host, &guest)
}

/// DPDK's driver forwards both ways between two cards over four queues, without a loss.
fn dpdk() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let lanes = Lane::several(2, 10_000, Transform::Unchanged);
    let cards: Vec<_> = (0..2)
        .map(|port| {
            let (takes, gives) = (Some(lanes[port].window()), Some(lanes[port ^ 1].window()));
            let path = folder.path().join(format!("card{port}"));
            CardPort::listen(path, CardOptions::default(), Cable::Traffic { takes, gives })
        })
        .collect::<Result<_>>()?;
    let guest = LinuxGuest::boot(Programs::Dpdk, 2, &[cards[0].spec(), cards[1].spec()])?;

    guest.run("modprobe uio_pci_generic")?;
    for card in ["0000:01:00.0", "0000:02:00.0"] {
        let folder = format!("/sys/bus/pci/devices/{card}");
        guest.run(&format!("echo uio_pci_generic >{folder}/driver_override"))?;
        guest.run(&format!("echo {card} >/sys/bus/pci/drivers_probe && test -e {folder}/driver"))?;
    }
    guest.run("echo 96 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")?;
    guest.run("mkdir -p /tmp/huge && mount -t hugetlbfs none /tmp/huge")?;
    guest.run(&format!("dpdk-testpmd {TESTPMD} >/tmp/testpmd 2>&1 & echo $! >/tmp/pid"))?;
    guest.wait_for("grep -q 'io packet forwarding packets' /tmp/testpmd")?;
    for (port, card) in cards.iter().enumerate() {
        card.start(lanes[port].source(), lanes[port ^ 1].sink());
    }
    let come_out = lanes.iter().try_for_each(Lane::wait_for_all);
    guest.run("kill -INT $(cat /tmp/pid); n=0; while kill -0 $(cat /tmp/pid) && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.2; done")?;
    let log = guest.run("cat /tmp/testpmd")?;
    come_out.with_context(|| log.clone())?;
    ensure!(log.contains("TX-dropped: 0 "), "{log}");
    for card in cards {
        let report = card.stop();
        ensure!(report.cable.queues_out() == 4, "{report}");
        nothing_is_wrong(&report)?;
    }
    Ok(())
}

/// Each frame goes out of the other card, from the queue of the number that it came in at; addresses of UDP count.
const TESTPMD: &str = "-l 0,1 -n 1 --iova-mode=pa -d librte_mempool_ring.so -- --forward-mode=io --auto-start \
    --stats-period 1 --rxq=4 --txq=4 --rss-udp --nb-cores=1 --total-num-mbufs=16384";

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
    for direction in [&[][..], &["--reverse"]] {
        guest.run("iperf3 --server --one-off --daemon")?;
        guest.wait_for("netstat -ltn | grep -q :5201")?;
        let command = ["iperf3", "--client", "10.78.0.2", "--parallel", "8", "--time", "3", "--json"];
        let report: serde_json::Value = serde_json::from_str(&host.run(&[&command, direction].concat())?)?;
        let bytes = report["end"]["sum_received"]["bytes"].as_u64();
        ensure!(bytes.is_some_and(|bytes| bytes > 1_000_000), "{direction:?}: {}", report["error"]);
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

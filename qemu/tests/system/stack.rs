//! The local stack, as a Linux host on the port sees it.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use etherparse::{ArpEthIpv4Packet, ArpOperation, PacketBuilder};
use libtest_mimic::Trial;
use qemu::{Machine, PortSpec};

use crate::frames::{self, noise};
use crate::harness::{test, test_with};
use crate::hosts::{Host, NEEDS, ping, tap_name};
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{Rig, check_balance, check_stopped};

const STACK: &str = "10.77.0.9";

/// Sends a file to the TCP echo service, reads it back and compares.
const TCP_ECHO: &str = "\
import os, socket, threading
sent = os.urandom(2_000_000)
echo = socket.create_connection(('10.77.0.9', 7), timeout=60)
def send():
    echo.sendall(sent)
    echo.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
received = b''.join(iter(lambda: echo.recv(65536), b''))
assert received == sent, (len(received), len(sent))
";

/// Sends datagrams to the UDP echo service one at a time.
const UDP_ECHO: &str = "\
import socket
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.settimeout(60)
for size in (0, 1, 100, 1472, 5000):
    sent = bytes(size)
    echo.sendto(sent, ('10.77.0.9', 7))
    assert echo.recv(65536) == sent, size
";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_with(&NEEDS, "stack::answers_when_all_is_passed", || answers("program=pass", 1, 1)),
        test_with(&NEEDS, "stack::answers_when_all_else_is_dropped", || answers("program=drop", 1, 2)),
        test_with(&NEEDS, "stack::answers_from_a_queue_of_its_own", || answers("program=pass", 4, 2)),
        test("stack::sleeps_until_another_core_passes_something", wakes_for_what_another_core_passes),
    ]
}

/// The first core runs the stack of port 1, whose frames the second core receives: it is woken for them.
fn wakes_for_what_another_core_passes() -> Result<()> {
    const REQUESTS: usize = 200;
    let words = format!("program=drop stack=1@{STACK}/24");
    let rig = Rig::boot(2, |machine| machine.words(words).cpus(2))?;
    for (number, pause) in noise(3).take(REQUESTS).enumerate() {
        sleep(Duration::from_micros(10_000 * u64::from(pause) / 255));
        rig.send(1, &arp_request())?;
        let reply = loop {
            let frame = rig.receive(1)?;
            // The stack also asks whether anybody else has its address.
            if frame.starts_with(&frames::A) {
                break frame;
            }
        };
        ensure!(reply[12..14] == [0x08, 0x06] && reply[21] == 2, "answer {number} is none: {reply:02x?}");
    }
    let report = rig.stop()?;
    let count = |name, labels: &[(&str, &str)]| report.metrics.count(name, labels);
    let handled = count("sluice_stack_handled_packets_total", &[("port", "1")]);
    ensure!(handled >= REQUESTS as u64, "the stack handled {handled} frames");
    let wakeups = count("sluice_core_wakeups_total", &[("core", "0")]);
    ensure!(wakeups > 0, "the stack's core was never woken");
    check_stopped(&report, 2)
}

/// Who has the stack's address (RFC 826)?
fn arp_request() -> Vec<u8> {
    let mut frame = Vec::new();
    let request = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: frames::A,
        sender_ipv4: [10, 77, 0, 1],
        target_mac: [0; 6],
        target_ipv4: [10, 77, 0, 9],
    };
    PacketBuilder::ethernet2(frames::A, [0xff; 6])
        .arp(request.into())
        .write(&mut frame)
        .expect("a vector takes every frame");
    frame
}

/// ARP, pings, a stream and datagrams, over a port with so many queues, and cores.
fn answers(program: &str, queues: u16, cores: usize) -> Result<()> {
    let tap = tap_name('s');
    let guest = Machine::new(image()?)
        .words(format!("{program} stack={STACK}/24 on-panic=exit"))
        .cpus(cores)
        .port(PortSpec::Tap { name: tap.clone(), queues })
        .time_limit(Some(Duration::from_secs(300)))
        .start()?;
    guest.wait_ready(PATIENCE)?;
    let host = Host::with_interface(&tap, "10.77.0.1")?;

    ping(&host, STACK)?;
    host.run(&["python3", "-c", TCP_ECHO])?;
    host.run(&["python3", "-c", UDP_ECHO])?;

    let metrics = guest.metrics()?;
    check_balance(&metrics, 1)?;
    let sent = metrics.count("sluice_stack_sent_packets_total", &[]);
    ensure!(sent > 1_000, "the stack sent {sent} frames");
    check_stopped(&guest.stop()?, 1)
}

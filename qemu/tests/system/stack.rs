//! The local stack, as a Linux host on the port sees it.

use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use qemu::{Machine, PortSpec};

use crate::harness::test_with;
use crate::hosts::{Host, NEEDS, ping, tap_name};
use crate::image::image;
use crate::process::PATIENCE;
use crate::rig::{check_balance, check_stopped};

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
    ]
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

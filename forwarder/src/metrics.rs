//! Counters as OpenMetrics text.
//!
//! # What the packet counters mean
//!
//! Every packet that a port `p` receives is, in every reading, in exactly one of these places:
//!
//! | counter, label `port` = the *receiving* port | counts a packet when |
//! |---|---|
//! | `sluice_port_rx_packets_total` | the RX ring brought it, also if the driver refused it there |
//! | `sluice_drops_total{reason}` | it ended; one reason each |
//! | `sluice_passed_packets_total` | it was passed to the local stack |
//! | `sluice_forwarded_packets_total` | a TX ring took it (of whichever port) |
//! | `sluice_waiting_packets` (a gauge) | it is in a worker, and no TX ring has had room for it yet, or on its way to one |
//!
//! So, for each port, exactly: **rx_packets = Σ drops + passed + forwarded + waiting**.
//!
//! What leaves is counted by the *transmitting* port: `sluice_port_tx_packets_total` when the TX ring takes it, and
//! `sluice_tx_waiting_packets` (a gauge) is how many of these are in the rings because the device is not done with them. The
//! two sides meet in the sum over all ports: **Σ forwarded + Σ stack_sent = Σ tx_packets**. This one is exact when no worker is in the midst of a
//! batch; for a single port the two differ, since what port 0 receives leaves by port 1.
//!
//! With `rx=software`, `sluice_steered_packets_total` counts packets received here that were handed to another worker, and
//! `sluice_steering_waiting_packets` (a gauge) is how many of these it has not taken: they are part of waiting.
//!
//! When traffic has stopped, all three gauges go to 0 by themselves.
//!
//! Verdicts are counted by receiving port as well. A program sees every packet but those refused before it and those that
//! have not come to it yet: **Σ verdicts = rx_packets − drops of the reasons runt, oversize, truncated, unknown_descriptor,
//! damaged, device_reset and steer_ring_full − steering_waiting**. A verdict `drop` or `aborted` is the drop reason `verdict` or `aborted`. A `tx`
//! or `redirect` can end as a drop (`no_such_port`, `tx_unavailable`, `tx_ring_full`, `tx_refused`).
//!
//! What `sluice_device_…` counts stands beside all that: a packet that the device missed or found in error came to no ring, and one
//! that was lost in a reset is among those that a TX ring took.
//!
//! Bytes are those of whole frames without CRC. A frame that the driver refused has packets but no bytes on the receiving side
//! (its length is not known), and bytes but no packets on the transmitting side (the ring had to take it to see that).
//!
//! A port with a local stack has its counters as well: **stack_taken = Σ stack_drops + stack_handled**, in every reading. The
//! stack takes what was passed, a little later, and copies of what is for every station. What it has made and not handed out
//! waits in it; what it has handed out and `sluice_stack_sent_packets_total` does not count waits for room in a TX ring.
//!
//! `core` is a worker's number. `sluice_core_cycles_total` counts ticks of the time-stamp counter;
//! `sluice_core_forwarded_packets_total` is each core's share of Σ forwarded, read a moment later;
//! `sluice_core_wakeups_total` counts the wake-ups (interrupts) that others sent to a core that slept.

use alloc::vec::Vec;
use core::fmt::{self, Display, Write};

use netdrv::device::DeviceCounters;

use crate::control::{PortTelemetry, Telemetry};
use crate::stack::{StackCounters, StackDrop};
use crate::stats::{Counter, Counts};
use crate::verdict::{DropReason, PortId, VerdictKind};

/// The kinds of metric families that occur.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// The counters of each port.
const PORT_COUNTERS: [(&str, &str, Counter); 8] = [
    ("sluice_port_rx_packets", "Packets received, with those refused at the ring.", Counter::RxPackets),
    ("sluice_port_rx_bytes", "Bytes received.", Counter::RxBytes),
    ("sluice_port_tx_packets", "Packets that the TX rings of this port took.", Counter::TxPackets),
    ("sluice_port_tx_bytes", "Bytes that the TX rings of this port took.", Counter::TxBytes),
    ("sluice_passed_packets", "Packets received here and passed to the local stack.", Counter::Passed),
    ("sluice_stack_sent_packets", "Packets of the local stack that the TX rings took.", Counter::StackSent),
    ("sluice_forwarded_packets", "Packets received here that a TX ring took.", Counter::Forwarded),
    ("sluice_steered_packets", "Packets received here that were handed to another core.", Counter::Steered),
];

/// A name, what it means, and where the number is.
type DeviceCounter = (&'static str, &'static str, fn(&DeviceCounters) -> u64);

/// What a port's device counts by itself.
const DEVICE_COUNTERS: [DeviceCounter; 5] = [
    ("sluice_device_missed_packets", "Packets that the device had no buffer for.", |device| device.missed),
    ("sluice_device_error_packets", "Packets that came damaged, too short or too long.", |device| {
        device.errors
    }),
    ("sluice_device_lost_packets", "Packets in a TX ring when the device was reset.", |device| device.lost),
    ("sluice_device_resets", "Resets of the device since boot.", |device| device.resets),
    ("sluice_device_link_changes", "Times that the link went up or down.", |device| device.link_changes),
];

/// A name, what it means, and where the number is.
type StackCounter = (&'static str, &'static str, fn(&StackCounters) -> u64);

/// The counters of a port's local stack.
const STACK_COUNTERS: [StackCounter; 7] = [
    ("sluice_stack_taken_packets", "Packets that the stack took.", |stack| stack.frames_in),
    ("sluice_stack_handled_packets", "Packets taken that were sound and for the stack.", |stack| {
        stack.handled
    }),
    ("sluice_stack_made_packets", "Packets that the stack made.", |stack| stack.frames_made),
    ("sluice_stack_handed_out_packets", "Packets made that were handed out.", |stack| stack.frames_out),
    ("sluice_stack_oversize_packets", "Packets not made, as no buffer holds them.", |stack| stack.oversize),
    ("sluice_stack_unresolved_datagrams", "Echoes given up, as their target is not found.", |stack| {
        stack.unresolved
    }),
    ("sluice_stack_conflicts", "Addresses given up, as another station has them.", |stack| stack.conflicts),
];

/// Writes everything, ending with a line `# EOF`.
pub(crate) fn write(telemetry: &Telemetry, devices: &[DeviceCounters], out: &mut impl Write) -> fmt::Result {
    // One reading for the whole text, so that its numbers agree.
    let ports: Vec<Counts> =
        (0..).map(PortId).take(telemetry.ports.len()).map(|port| telemetry.counts(port)).collect();
    write_packets(&ports, out)?;
    family(out, "sluice_rx_mode", Kind::Gauge, "1 for who spreads flows over the cores.")?;
    writeln!(out, "sluice_rx_mode{{mode=\"{}\"}} 1", telemetry.rx.label())?;
    write_stacks(telemetry, out)?;
    write_devices(devices, out)?;
    write_tx_map(telemetry, out)?;
    write_cores(telemetry, out)?;
    write_shares(telemetry, out)?;
    write_pool(telemetry, out)?;
    out.write_str("# EOF\n")
}

fn write_packets(ports: &[Counts], out: &mut impl Write) -> fmt::Result {
    for (name, help, counter) in PORT_COUNTERS {
        family(out, name, Kind::Counter, help)?;
        for (port, counts) in ports.iter().enumerate() {
            writeln!(out, "{name}_total{{port=\"{port}\"}} {}", counts[counter])?;
        }
    }
    family(
        out,
        "sluice_waiting_packets",
        Kind::Gauge,
        "Packets received here that wait for another core or for room in a TX ring.",
    )?;
    for (port, counts) in ports.iter().enumerate() {
        writeln!(out, "sluice_waiting_packets{{port=\"{port}\"}} {}", counts[Counter::Waiting])?;
    }
    family(
        out,
        "sluice_steering_waiting_packets",
        Kind::Gauge,
        "Packets received here that another core has not taken yet.",
    )?;
    for (port, counts) in ports.iter().enumerate() {
        writeln!(out, "sluice_steering_waiting_packets{{port=\"{port}\"}} {}", counts.in_steering())?;
    }
    family(
        out,
        "sluice_tx_waiting_packets",
        Kind::Gauge,
        "Packets in the TX rings that the device is not done with.",
    )?;
    for (port, counts) in ports.iter().enumerate() {
        // Rows of different workers are read one after the other, and one may complete what another sent.
        let waiting = counts[Counter::TxPackets].saturating_sub(counts[Counter::TxCompleted]);
        writeln!(out, "sluice_tx_waiting_packets{{port=\"{port}\"}} {waiting}")?;
    }
    family(out, "sluice_verdicts", Kind::Counter, "Verdicts on packets received here.")?;
    for (port, counts) in ports.iter().enumerate() {
        for kind in VerdictKind::ALL {
            let (label, count) = (kind.label(), counts[Counter::Verdict(kind)]);
            writeln!(out, "sluice_verdicts_total{{port=\"{port}\",verdict=\"{label}\"}} {count}")?;
        }
    }
    family(out, "sluice_drops", Kind::Counter, "Packets received here that ended, by reason.")?;
    for (port, counts) in ports.iter().enumerate() {
        for reason in DropReason::ALL {
            let (label, count) = (reason.label(), counts[Counter::Drop(reason)]);
            writeln!(out, "sluice_drops_total{{port=\"{port}\",reason=\"{label}\"}} {count}")?;
        }
    }
    Ok(())
}

/// The counters of the stacks, where there are any.
fn write_stacks(telemetry: &Telemetry, out: &mut impl Write) -> fmt::Result {
    let read = |(port, entry): (usize, &PortTelemetry)| Some((port, entry.stack.as_ref()?.read()));
    let stacks: Vec<(usize, StackCounters)> = telemetry.ports.iter().enumerate().filter_map(read).collect();
    if stacks.is_empty() {
        return Ok(());
    }
    for (name, help, counter) in STACK_COUNTERS {
        family(out, name, Kind::Counter, help)?;
        for (port, counters) in &stacks {
            writeln!(out, "{name}_total{{port=\"{port}\"}} {}", counter(counters))?;
        }
    }
    family(out, "sluice_stack_drops", Kind::Counter, "Packets that the stack took and dropped, by reason.")?;
    for (port, counters) in &stacks {
        for reason in StackDrop::ALL {
            let count = counters.drops[reason];
            writeln!(out, "sluice_stack_drops_total{{port=\"{port}\",reason=\"{reason}\"}} {count}")?;
        }
    }
    Ok(())
}

fn write_tx_map(telemetry: &Telemetry, out: &mut impl Write) -> fmt::Result {
    family(out, "sluice_tx_mode", Kind::Gauge, "1 for the way that cores reach the TX queues of the port.")?;
    for (port, entry) in telemetry.ports.iter().enumerate() {
        writeln!(out, "sluice_tx_mode{{port=\"{port}\",mode=\"{}\"}} 1", entry.plan.mode().label())?;
    }
    family(out, "sluice_tx_queue_cores", Kind::Gauge, "Cores that use the TX queue.")?;
    for (port, entry) in telemetry.ports.iter().enumerate() {
        for queue in 0..entry.plan.queues() {
            let cores = entry.plan.cores_of(queue);
            writeln!(out, "sluice_tx_queue_cores{{port=\"{port}\",queue=\"{queue}\"}} {cores}")?;
        }
    }
    family(out, "sluice_tx_lock_acquired", Kind::Counter, "Bursts sent under the lock of the TX queue.")?;
    for (port, queue, lock) in locks(telemetry) {
        let count = lock.acquired();
        writeln!(out, "sluice_tx_lock_acquired_total{{port=\"{port}\",queue=\"{queue}\"}} {count}")?;
    }
    family(out, "sluice_tx_lock_contended", Kind::Counter, "Bursts that found the lock taken.")?;
    for (port, queue, lock) in locks(telemetry) {
        let count = lock.contended();
        writeln!(out, "sluice_tx_lock_contended_total{{port=\"{port}\",queue=\"{queue}\"}} {count}")?;
    }
    Ok(())
}

fn locks(telemetry: &Telemetry) -> impl Iterator<Item = (usize, usize, &crate::stats::LockStats)> {
    let ports = telemetry.ports.iter().enumerate();
    ports.flat_map(|(port, entry)| {
        entry.locks.iter().enumerate().map(move |(queue, lock)| (port, queue, &**lock))
    })
}

fn write_cores(telemetry: &Telemetry, out: &mut impl Write) -> fmt::Result {
    family(
        out,
        "sluice_core_cycles",
        Kind::Counter,
        "Clock ticks in which packets moved, none did, or the core slept.",
    )?;
    for (core, worker) in telemetry.workers.iter().enumerate() {
        writeln!(out, "sluice_core_cycles_total{{core=\"{core}\",state=\"busy\"}} {}", worker.busy.get())?;
        writeln!(out, "sluice_core_cycles_total{{core=\"{core}\",state=\"idle\"}} {}", worker.idle.get())?;
        writeln!(
            out,
            "sluice_core_cycles_total{{core=\"{core}\",state=\"asleep\"}} {}",
            worker.asleep.get()
        )?;
    }
    family(
        out,
        "sluice_core_wakeups",
        Kind::Counter,
        "Wake-ups that other cores sent to this sleeping one.",
    )?;
    for (core, worker) in telemetry.workers.iter().enumerate() {
        writeln!(out, "sluice_core_wakeups_total{{core=\"{core}\"}} {}", worker.wakeups.get())?;
    }
    Ok(())
}

/// Each core's share of what is forwarded: it shows a core that is left out.
fn write_shares(telemetry: &Telemetry, out: &mut impl Write) -> fmt::Result {
    let name = "sluice_core_forwarded_packets";
    family(out, name, Kind::Counter, "Packets received anywhere that this core put in a TX ring.")?;
    let ports = (0..).map(PortId).take(telemetry.ports.len());
    for (core, worker) in telemetry.workers.iter().enumerate() {
        let count: u64 = ports.clone().map(|port| worker.read(port)[Counter::Forwarded]).sum();
        writeln!(out, "{name}_total{{core=\"{core}\"}} {count}")?;
    }
    Ok(())
}

fn write_pool(telemetry: &Telemetry, out: &mut impl Write) -> fmt::Result {
    single(out, "sluice_pool_packets", "Buffers that there are.", telemetry.pool.count())?;
    single(out, "sluice_pool_free_packets", "Buffers without a packet.", telemetry.free_buffers())
}

fn single(out: &mut impl Write, name: &str, help: &str, value: impl Display) -> fmt::Result {
    family(out, name, Kind::Gauge, help)?;
    writeln!(out, "{name} {value}")
}

fn write_devices(devices: &[DeviceCounters], out: &mut impl Write) -> fmt::Result {
    for (name, help, count) in DEVICE_COUNTERS {
        family(out, name, Kind::Counter, help)?;
        for (port, device) in devices.iter().enumerate() {
            writeln!(out, "{name}_total{{port=\"{port}\"}} {}", count(device))?;
        }
    }
    Ok(())
}

fn family(out: &mut impl Write, name: &str, kind: Kind, help: &str) -> fmt::Result {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    writeln!(out, "# TYPE {name} {kind}\n# HELP {name} {help}")
}

#[cfg(test)]
mod tests;

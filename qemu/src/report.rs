//! What a demonstration led to: the table that it shows, and the faults that it finds.

use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::HumanCount;

use crate::guest::EXIT_STOPPED;
use crate::{Counts, Metrics, Outcome, StopReport};

/// Everything that was measured.
pub(crate) struct Report {
    /// The port at which each lane of the outcome goes in; it comes out of the other.
    pub(crate) entries: Vec<usize>,
    /// Frames that each lane was to send.
    pub(crate) planned: Vec<u64>,
    pub(crate) outcome: Outcome,
    /// From the start of QEMU to the line `sluice ready`.
    pub(crate) ready: Duration,
    /// The image's own part of that.
    pub(crate) boot: Duration,
    /// From the start of QEMU to the first frame that came out.
    pub(crate) first_frame: Duration,
    pub(crate) image_bytes: u64,
    pub(crate) memory_mib: u32,
    pub(crate) stop: StopReport,
}

/// A port of the image as its own counters have it, and as it must be.
struct Agreement {
    port: usize,
    what: &'static str,
    counted: u64,
    expected: u64,
}

impl Report {
    /// The tables for the terminal.
    pub(crate) fn render(&self) -> String {
        format!("{}\n{}", self.traffic_table(), self.figures_table())
    }

    /// Everything that is not as it should be, each as a clause without a full stop.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (index, counts) in self.outcome.lanes.iter().enumerate() {
            let lane = self.lane_name(index);
            faults.extend(counts.fault().map(|fault| format!("{fault} ({lane})")));
            let unsent = self.planned[index] - counts.sent;
            if unsent > 0 {
                faults.push(format!("{unsent} of the frames were never taken ({lane})"));
            }
        }
        if self.outcome.strays > 0 {
            faults.push(format!("{} frames came out where none was expected", self.outcome.strays));
        }
        for Agreement { port, what, counted, expected } in self.agreements() {
            if counted != expected {
                faults.push(format!(
                    "the image counts {counted} frames {what} port {port}, but they are {expected}"
                ));
            }
        }
        let StopReport { pool, home, exit_code, .. } = &self.stop;
        if home != pool {
            faults.push(format!("{home} of {pool} buffers came home"));
        }
        if *exit_code != Some(EXIT_STOPPED) {
            faults.push(format!("QEMU did not exit in good order ({exit_code:?})"));
        }
        faults
    }

    fn traffic_table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header([
            "direction",
            "sent",
            "received",
            "lost",
            "changed",
            "reordered",
            "duplicated",
            "foreign",
        ]);
        for (index, counts) in self.outcome.lanes.iter().enumerate() {
            let Counts { sent, received, lost, changed, reordered, duplicated, foreign } = *counts;
            let numbers = [sent, received, lost, changed, reordered, duplicated, foreign];
            let cells = std::iter::once(self.lane_name(index)).chain(numbers.map(count));
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn figures_table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let boot = self.boot.as_secs_f64() * 1e3;
        let rows = [
            (
                "QEMU start → sluice ready",
                format!("{} ms, of which the image {boot:.1} ms", milliseconds(self.ready)),
            ),
            ("QEMU start → first forwarded frame", format!("{} ms", milliseconds(self.first_frame))),
            ("image size", format!("{} KB", self.image_bytes.div_ceil(1000))),
            ("guest memory", format!("{} MiB", self.memory_mib)),
            ("forwarded", format!("{} frames/s, checked byte for byte", count(self.rate()))),
            ("the image's own counters", self.describe_agreement()),
            (
                "packet buffers home after the stop",
                format!("{} of {}", count(self.stop.home), count(self.stop.pool)),
            ),
        ];
        for (what, value) in rows {
            table.add_row([what, &value]);
        }
        table
    }

    fn describe_agreement(&self) -> String {
        let differing =
            self.agreements().iter().filter(|agreement| agreement.counted != agreement.expected).count();
        match differing {
            0 => "agree with what was sent and received".into(),
            _ => "DIFFER from what was sent and received".into(),
        }
    }

    fn rate(&self) -> u64 {
        let received: u64 = self.outcome.lanes.iter().map(|counts| counts.received).sum();
        (received as f64 / self.outcome.duration.as_secs_f64().max(1e-9)) as u64
    }

    fn lane_name(&self, index: usize) -> String {
        let from = self.entries[index];
        format!("port {from} → {}", from ^ 1)
    }

    /// What went in at each port and came out of it, by the image's counters and by ours.
    fn agreements(&self) -> Vec<Agreement> {
        let metrics = &self.stop.metrics;
        let mut agreements = Vec::new();
        for (counts, entry) in self.outcome.lanes.iter().zip(&self.entries) {
            // Probes go in at port 0 only. One that came out has gone in; QEMU may have thrown others away when the
            // image reset the device.
            let probes = if *entry == 0 { self.outcome.probes } else { 0 };
            let (port, out) = (*entry, *entry ^ 1);
            let expected = counts.sent + probes;
            agreements.push(Agreement { port, what: "into", counted: received_by(metrics, port), expected });
            let expected = counts.received + probes;
            agreements.push(Agreement {
                port: out,
                what: "out of",
                counted: sent_by(metrics, out),
                expected,
            });
        }
        agreements
    }
}

fn received_by(metrics: &Metrics, port: usize) -> u64 {
    metrics.count("sluice_port_rx_packets_total", &[("port", &port.to_string())])
}

fn sent_by(metrics: &Metrics, port: usize) -> u64 {
    metrics.count("sluice_port_tx_packets_total", &[("port", &port.to_string())])
}

fn milliseconds(duration: Duration) -> u128 {
    duration.as_millis()
}

fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(rx: [u64; 2], tx: [u64; 2]) -> Metrics {
        let line = |name, port: usize, value| {
            format!("sluice_port_{name}_packets_total{{port=\"{port}\"}} {value}\n")
        };
        let lines = (0..2).map(|port| line("rx", port, rx[port]) + &line("tx", port, tx[port]));
        Metrics::parse(&(lines.collect::<String>() + "# EOF\n")).unwrap()
    }

    /// 100 frames each way and 3 probes, with nothing wrong.
    fn clean() -> Report {
        let counts = Counts { sent: 100, received: 100, ..Counts::default() };
        Report {
            entries: vec![0, 1],
            planned: vec![100, 100],
            outcome: Outcome {
                lanes: vec![counts; 2],
                strays: 0,
                probes: 3,
                duration: Duration::from_secs(2),
            },
            ready: Duration::from_millis(150),
            boot: Duration::from_micros(12_300),
            first_frame: Duration::from_millis(151),
            image_bytes: 412_345,
            memory_mib: 64,
            stop: StopReport {
                pool: 4096,
                home: 4096,
                metrics: metrics([103, 100], [100, 103]),
                exit_code: Some(EXIT_STOPPED),
            },
        }
    }

    #[test]
    fn a_clean_report_has_no_fault_and_shows_its_figures() {
        let report = clean();
        assert_eq!(report.faults(), [""; 0]);
        let text = report.render();
        for part in [
            "port 0 → 1",
            "port 1 → 0",
            "150 ms, of which the image 12.3 ms",
            "151 ms",
            "413 KB",
            "100 frames/s",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.contains("4,096 of 4,096") && text.contains("agree with"), "{text}");
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        let fault = |spoil: fn(&mut Report)| {
            let mut report = clean();
            spoil(&mut report);
            report.faults().join("; ")
        };
        assert_eq!(
            fault(|report| {
                report.outcome.lanes[0].lost = 1;
                report.outcome.lanes[0].received = 99;
                report.stop.metrics = metrics([103, 100], [100, 102]);
            }),
            "1 frame lost (port 0 → 1)"
        );
        assert!(
            fault(|report| report.planned[1] = 150)
                .contains("50 of the frames were never taken (port 1 → 0)")
        );
        assert!(fault(|report| report.outcome.strays = 2).contains("2 frames came out where none"));
        assert!(
            fault(|report| report.stop.metrics = metrics([103, 99], [100, 103]))
                .contains("99 frames into port 1")
        );
        assert!(fault(|report| report.stop.home = 4095).contains("4095 of 4096 buffers"));
        assert!(fault(|report| report.stop.exit_code = None).contains("good order"));
    }
}

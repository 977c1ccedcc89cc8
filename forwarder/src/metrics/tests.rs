use std::collections::{HashMap, HashSet};
use std::string::{String, ToString};
use std::vec::Vec;

use netdrv::device::DeviceCounters;

use crate::config::Config;
use crate::stack::StackDrop;
use crate::testing::{FakeRx, FakeTx, cpu, fake_ports, pool};
use crate::verdict::{DropReason, VerdictKind};
use crate::{Assembly, assemble};

/// Metric families and samples of a text that keeps the rules of OpenMetrics 1.0, or a panic that names the line.
struct Exposition {
    kinds: HashMap<String, String>,
    samples: HashMap<String, u64>,
}

impl Exposition {
    fn parse(text: &str) -> Exposition {
        let mut found = Exposition { kinds: HashMap::new(), samples: HashMap::new() };
        let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
        let mut family = String::new();
        let mut helped = HashSet::new();
        for line in body.split_terminator('\n') {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(is_name(name), "{line}");
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                assert!(!name.ends_with("_total"), "the suffix is the sample's: {line}");
                family = name.to_string();
                let twice = found.kinds.insert(family.clone(), kind.to_string());
                assert!(twice.is_none(), "a family stays together: {line}");
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert_eq!(name, family, "{line}");
                assert!(!help.contains(['\\', '"']) && helped.insert(name), "{line}");
            } else {
                found.sample(line, &family);
            }
        }
        assert_eq!(helped.len(), found.kinds.len());
        found
    }

    fn sample(&mut self, line: &str, family: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffix = if self.kinds[family] == "counter" { "_total" } else { "" };
        assert_eq!(name, std::format!("{family}{suffix}"), "{line}");
        if let Some(labels) = series[name.len()..].strip_prefix('{') {
            let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}"));
            let mut names = HashSet::new();
            for label in labels.split(',') {
                let (name, value) = label.split_once('=').unwrap();
                assert!(is_name(name) && names.insert(name), "{line}");
                let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap();
                assert!(!value.contains(['"', '\\', '\n']), "{line}");
            }
        }
        let twice = self.samples.insert(series.to_string(), value.parse().unwrap());
        assert!(twice.is_none(), "{line}");
    }

    fn get(&self, series: &str) -> u64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series}"))
    }

    fn count(&self, name: &str) -> usize {
        self.samples.keys().filter(|series| series.split('{').next() == Some(name)).count()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Two ports, the second without TX queue, over two workers.
fn assembly() -> (Assembly<FakeRx, FakeTx>, Vec<crate::testing::Wire>) {
    let (ports, wires) = fake_ports(1, &[1, 0], 64);
    let config = Config::read("program=forward", None).unwrap();
    (assemble(ports, &config, 2, pool(256), cpu()).unwrap(), wires)
}

fn metrics(assembly: &Assembly<FakeRx, FakeTx>) -> Exposition {
    let mut text = String::new();
    assembly.control.write_metrics(&[], &mut text).unwrap();
    Exposition::parse(&text)
}

#[test]
fn a_device_s_own_counters_are_there_for_each_port() {
    let counted = DeviceCounters { missed: 1, errors: 2, lost: 3, resets: 4, link_changes: 5 };
    let mut text = String::new();
    let assembly = assembly().0;
    assembly.control.write_metrics(&[DeviceCounters::default(), counted], &mut text).unwrap();
    let metrics = Exposition::parse(&text);
    for (count, name) in
        (1..).zip(["missed_packets", "error_packets", "lost_packets", "resets", "link_changes"])
    {
        let of = |port| metrics.get(&std::format!("sluice_device_{name}_total{{port=\"{port}\"}}"));
        assert_eq!((of(0), of(1)), (0, count), "{name}");
    }
}

#[test]
fn every_name_of_the_contract_is_there_from_the_start() {
    let metrics = metrics(&assembly().0);
    for name in [
        "sluice_port_rx_packets_total",
        "sluice_port_rx_bytes_total",
        "sluice_port_tx_packets_total",
        "sluice_port_tx_bytes_total",
        "sluice_passed_packets_total",
        "sluice_stack_sent_packets_total",
        "sluice_forwarded_packets_total",
        "sluice_steered_packets_total",
        "sluice_waiting_packets",
        "sluice_steering_waiting_packets",
        "sluice_tx_waiting_packets",
    ] {
        for port in 0..2 {
            assert_eq!(metrics.get(&std::format!("{name}{{port=\"{port}\"}}")), 0);
        }
        assert_eq!(metrics.count(name), 2);
    }
    for reason in DropReason::ALL {
        let label = reason.label();
        assert_eq!(metrics.get(&std::format!("sluice_drops_total{{port=\"1\",reason=\"{label}\"}}")), 0);
    }
    for kind in VerdictKind::ALL {
        let label = kind.label();
        assert_eq!(metrics.get(&std::format!("sluice_verdicts_total{{port=\"1\",verdict=\"{label}\"}}")), 0);
    }
    assert_eq!(metrics.count("sluice_drops_total"), 2 * DropReason::ALL.len());
    assert_eq!(metrics.count("sluice_verdicts_total"), 2 * VerdictKind::ALL.len());
    assert_eq!(metrics.get("sluice_tx_mode{port=\"0\",mode=\"shared\"}"), 1);
    assert_eq!(metrics.get("sluice_tx_mode{port=\"1\",mode=\"unavailable\"}"), 1);
    assert_eq!(metrics.count("sluice_tx_mode"), 2);
    assert_eq!(metrics.get("sluice_tx_queue_cores{port=\"0\",queue=\"0\"}"), 2);
    assert_eq!(metrics.count("sluice_tx_queue_cores"), 1);
    assert_eq!(metrics.get("sluice_tx_lock_acquired_total{port=\"0\",queue=\"0\"}"), 0);
    assert_eq!(metrics.get("sluice_tx_lock_contended_total{port=\"0\",queue=\"0\"}"), 0);
    for core in 0..2 {
        metrics.get(&std::format!("sluice_core_cycles_total{{core=\"{core}\",state=\"busy\"}}"));
        metrics.get(&std::format!("sluice_core_cycles_total{{core=\"{core}\",state=\"idle\"}}"));
        assert_eq!(metrics.get(&std::format!("sluice_core_forwarded_packets_total{{core=\"{core}\"}}")), 0);
    }
    assert_eq!(metrics.get("sluice_pool_packets"), 256);
    assert_eq!(metrics.get("sluice_pool_free_packets"), 256);
    assert_eq!(metrics.get("sluice_rx_mode{mode=\"hardware\"}"), 1);
    assert_eq!(metrics.kinds.len(), 28);
}

#[test]
fn a_port_with_a_stack_has_counters_of_it() {
    let (ports, _wires) = fake_ports(1, &[2, 2], 64);
    let config = Config::read("stack=1@192.0.2.1/24", None).unwrap();
    let metrics = metrics(&assemble(ports, &config, 1, pool(256), cpu()).unwrap());
    let stack: Vec<&String> = metrics.samples.keys().filter(|series| series.contains("_stack_")).collect();
    let of_port_0 = stack.iter().filter(|series| series.contains("port=\"0\"")).count();
    assert_eq!(of_port_0, 1, "sluice_stack_sent_packets_total alone: {stack:?}");
    assert_eq!(metrics.count("sluice_stack_drops_total"), StackDrop::ALL.len());
    assert_eq!(metrics.get("sluice_stack_taken_packets_total{port=\"1\"}"), 0);
    assert_eq!(metrics.kinds.len(), 28 + 8);
}

#[test]
fn what_happens_shows_under_the_right_labels() {
    let (mut assembly, wires) = assembly();
    let frames = |lens: &[usize]| lens.iter().map(|&len| std::vec![0; len]).collect::<Vec<Vec<u8>>>();
    wires[1].rx[0].state().arriving.extend(frames(&[60, 100, 13]));
    wires[0].rx[0].state().arriving.extend(frames(&[60]));
    assembly.workers.iter_mut().for_each(|worker| {
        worker.round();
    });

    let metrics = metrics(&assembly);
    assert_eq!(metrics.get("sluice_port_rx_packets_total{port=\"1\"}"), 3);
    assert_eq!(metrics.get("sluice_port_rx_bytes_total{port=\"1\"}"), 173);
    assert_eq!(metrics.get("sluice_verdicts_total{port=\"1\",verdict=\"redirect\"}"), 2);
    assert_eq!(metrics.get("sluice_forwarded_packets_total{port=\"1\"}"), 2);
    assert_eq!(metrics.get("sluice_port_tx_packets_total{port=\"0\"}"), 2);
    assert_eq!(metrics.get("sluice_port_tx_bytes_total{port=\"0\"}"), 160);
    assert_eq!(metrics.get("sluice_tx_waiting_packets{port=\"0\"}"), 2);
    assert_eq!(metrics.get("sluice_drops_total{port=\"1\",reason=\"runt\"}"), 1);
    assert_eq!(metrics.get("sluice_drops_total{port=\"0\",reason=\"tx_unavailable\"}"), 1);
    assert_eq!(metrics.get("sluice_tx_lock_acquired_total{port=\"0\",queue=\"0\"}"), 1);
    assert_eq!(metrics.get("sluice_core_forwarded_packets_total{core=\"0\"}"), 0);
    assert_eq!(metrics.get("sluice_core_forwarded_packets_total{core=\"1\"}"), 2);
    assert_eq!(metrics.get("sluice_pool_free_packets"), 254);
}

#[test]
fn a_core_is_busy_or_idle() {
    let (mut assembly, wires) = assembly();
    wires[0].rx[0].state().arriving.extend([std::vec![0; 60]]);
    let worker = assembly.workers.remove(0);
    let mut looks = 0;
    worker.run(
        &assembly.control,
        Some(&mut || {
            looks += 1;
            if looks == 3 {
                assembly.control.stop();
            }
        }),
    );
    let metrics = metrics(&assembly);
    let cycles = |core, state| {
        metrics.get(&std::format!("sluice_core_cycles_total{{core=\"{core}\",state=\"{state}\"}}"))
    };
    assert!(cycles(0, "busy") > 0);
    assert!(cycles(0, "idle") > cycles(0, "busy"));
    assert_eq!((cycles(1, "busy"), cycles(1, "idle")), (0, 0));
}

//! What a benchmark has to say: tables for people, JSON for programs, and what it was measured on.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use super::cpu;
use super::measure::Spread;
use crate::artefact;

/// One entry of a table.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Text(String),
    /// A number with so many digits behind the point.
    Number(f64, usize),
    /// A median, and how far the quarters around it reach; nothing where all three are zero, since nothing was measured.
    Spread(Spread, usize),
}

impl Entry {
    pub(super) fn text(text: impl Into<String>) -> Entry {
        Entry::Text(text.into())
    }

    fn show(&self) -> String {
        match self {
            Entry::Text(text) => text.clone(),
            Entry::Number(value, digits) => format!("{value:.digits$}"),
            Entry::Spread(spread, _) if *spread == Spread::default() => "–".into(),
            Entry::Spread(Spread { low, median, high }, digits) => {
                format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Entry::Text(text) => json!(text),
            Entry::Number(value, _) => json!(value),
            Entry::Spread(spread, _) if *spread == Spread::default() => Value::Null,
            Entry::Spread(Spread { low, median, high }, _) => {
                json!({"low": low, "median": median, "high": high})
            }
        }
    }
}

/// One table.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) title: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Entry>>,
}

impl Sheet {
    pub(super) fn new(title: impl Into<String>, columns: impl Into<Vec<&'static str>>) -> Sheet {
        Sheet { title: title.into(), columns: columns.into(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, entries: impl Into<Vec<Entry>>) {
        self.rows.push(entries.into());
    }

    fn render(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row.iter().map(Entry::show));
        }
        let is_text =
            |column: usize| self.rows.iter().any(|row| matches!(row.get(column), Some(Entry::Text(_))));
        for index in (0..self.columns.len()).filter(|&column| !is_text(column)) {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        format!("{}\n{table}", self.title)
    }

    fn json(&self) -> Value {
        let object = |row: &Vec<Entry>| -> Value {
            self.columns
                .iter()
                .zip(row)
                .map(|(name, entry)| ((*name).into(), entry.json()))
                .collect::<Map<_, _>>()
                .into()
        };
        json!({"title": self.title, "rows": self.rows.iter().map(object).collect::<Vec<_>>()})
    }
}

/// Shows the tables, and writes them to `target/sluice/bench-NAME.json`.
///
/// # Errors
/// When that file can't be written.
pub(super) fn publish(name: &str, sheets: &[Sheet]) -> Result<()> {
    let (machine, commit) = (machine(), commit());
    for sheet in sheets {
        println!("\n{}", sheet.render());
    }
    println!("\n{machine}; commit {commit}");
    let tables: Vec<Value> = sheets.iter().map(Sheet::json).collect();
    let report = json!({"bench": name, "machine": machine, "commit": commit, "tables": tables});
    let path: PathBuf = artefact::output_directory()?.join(format!("bench-{name}.json"));
    fs::write(&path, format!("{report:#}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    println!("as JSON: {}", path.display());
    Ok(())
}

/// Processor, cores and clock of this machine.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown processor", |(_, model)| model.trim());
    let cores = cpu::cores().map_or(0, |cores| cores.len());
    format!("{model}, {cores} cores, clock {:.2} GHz", cpu::hz() as f64 / 1e9)
}

/// The commit that was measured, with a `+` where files have changed since.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".into() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|files| !files.is_empty());
    if changed { commit + "+" } else { commit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_says_the_same_to_people_and_programs() {
        let mut sheet = Sheet::new("Speed", ["mode", "kpps", "spread"]);
        let spread = Spread { low: 1.0, median: 2.04, high: 3.0 };
        sheet.row([Entry::text("shared"), Entry::Number(1234.56, 1), Entry::Spread(spread, 1)]);
        let text = sheet.render();
        assert!(
            text.starts_with("Speed\n") && text.contains("1234.6") && text.contains("2.0 (1.0–3.0)"),
            "{text}"
        );
        let row = &sheet.json()["rows"][0];
        assert_eq!((&row["mode"], &row["kpps"]), (&json!("shared"), &json!(1234.56)));
        assert_eq!(row["spread"]["median"], json!(2.04));
        let nothing = Entry::Spread(Spread::default(), 1);
        assert_eq!((nothing.show().as_str(), nothing.json()), ("–", Value::Null));
    }
}

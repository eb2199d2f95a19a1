//! The table for people, and the file for programs.
//!
//! Must not: judge what it writes.

use std::{fs, process::Command};

use serde_json::{Map, Value, json};

use crate::{parts::Setting, run::Outcome};

/// What a part has found out.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) json: Map<String, Value>,
    pub(crate) tables: Vec<Table>,
    /// What a reader has to know: first of all, what was left out.
    pub(crate) notes: Vec<String>,
}

impl Findings {
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(title: &str, head: &[&str]) -> Self {
        let head = head.iter().map(|text| (*text).to_owned()).collect();
        Self { title: title.to_owned(), rows: vec![head] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a cell to the last row.
    pub(crate) fn amend(&mut self, cell: String) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        println!("\n{}", self.title);
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let cell = if column == 0 {
                    format!("  {cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
                line.push_str(&cell);
            }
            println!("{}", line.trim_end());
        }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    parts: Map<String, Value>,
    broken: Vec<String>,
    machine: Value,
}

impl Report {
    pub(crate) fn new(setting: &Setting) -> Self {
        let machine = machine();
        println!(
            "{} cores, {}, Linux {}",
            machine["cores"],
            machine["cpu"].as_str().unwrap_or_default(),
            machine["kernel"].as_str().unwrap_or_default()
        );
        if setting.arguments.short {
            println!("--short: this shows that the parts work. Its figures mean nothing.");
        }
        Self { parts: Map::new(), broken: Vec::new(), machine }
    }

    /// Takes what a part has found, and what it broke of.
    pub(crate) fn take(
        &mut self,
        part: &str,
        seconds: f64,
        found: Findings,
        broken: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) {
        for table in &found.tables {
            table.print();
        }
        if !found.notes.is_empty() {
            println!();
        }
        for note in &found.notes {
            println!("  * {note}");
        }
        println!("  ({seconds:.0} s)");
        let mut json = found.json;
        if let Some(error) = broken {
            println!("\n  BROKEN: {error}");
            json.insert("broken".into(), json!(error.to_string()));
            self.broken.push(part.to_owned());
        }
        json.insert("seconds".into(), json!(seconds));
        json.insert("notes".into(), json!(found.notes));
        self.parts.insert(part.to_owned(), json.into());
    }

    /// Writes the file. An error if a part has broken.
    pub(crate) fn finish(self, setting: &Setting) -> Outcome<()> {
        let whole = json!({
            "machine": self.machine,
            "commit": said("git", &["rev-parse", "HEAD"]),
            "changed": !said("git", &["status", "--porcelain"]).is_empty(),
            "short": setting.arguments.short,
            "parts": self.parts,
        });
        let path = setting.dir.join("bridge.json");
        fs::write(&path, serde_json::to_vec_pretty(&whole)?)?;
        println!("\nAll of it: {}", path.display());
        if self.broken.is_empty() {
            return Ok(());
        }
        Err(format!("these parts broke: {}", self.broken.join(", ")).into())
    }
}

fn machine() -> Value {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cores": cores, "kernel": kernel.trim(), "cpu": cpu.map_or("unknown", |(_, name)| name.trim()),
    })
}

/// What a program prints, or nothing.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

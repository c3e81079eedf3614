//! `cargo xtask fleet --scale`: measures idle sessions and the cost of the store, prints the tables of docs/SCALE.md, and draws the plot.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use pico_args::Arguments;
use serde_json::Value;

use super::PROGRAM;
use crate::bench::Rounds;
use crate::bench::plot::{self, Mark, Panel, Row};
use crate::step::{self, cargo, cargo_in, shell, target, write_page};

const PLOT: &str = "docs/benchmarks/scale.svg";

/// The columns of the tables.
const SESSIONS: [&str; 8] = [
    "who",
    "sessions",
    "bytes",
    "redis bytes",
    "idle cpu, percent",
    "idle commands per second",
    "p50",
    "p99",
];
const STORE: [&str; 5] = [
    "store",
    "calls per second",
    "p50",
    "p99",
    "commands per call",
];

/// What is plotted: the title, the unit, and the name of the figure.
const PANELS: [(&str, &str, &str); 3] = [
    ("Memory of an idle session", "bytes", "bytes"),
    ("A call beside them, p50", "µs", "p50"),
    ("A call beside them, p99", "µs", "p99"),
];

/// Measures, or reads earlier output, prints the tables, and draws the plot.
pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let lines = match arguments.opt_value_from_str::<_, PathBuf>("--from")? {
        None => measure()?,
        Some(file) => step::read(file)?,
    };
    let rows: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
    let rows = rows.context("a line is no row")?;
    let (of_sessions, of_store): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row["who"].is_string());
    println!("{}", table(&of_sessions, &SESSIONS));
    println!("{}", table(&of_store, &STORE));
    write_page(PLOT, &plot(&of_sessions)?)
}

/// Runs the measurement, and keeps its output, so that it can be drawn again.
fn measure() -> Result<String> {
    let directory = target().join("bench-peers");
    cargo(&format!(
        "build --release --manifest-path dev/bench-peers/Cargo.toml --target-dir {}",
        directory.display()
    ))?;
    let peers = directory.join("release/bench-peers");
    let measure = format!("{PROGRAM} -- scale --rmcp {}", peers.display());
    let lines = cargo_in(&shell()?, &measure).read()?;
    let file = target().join("fleet-scale.jsonl");
    step::write(&file, &lines)?;
    eprintln!("kept in {}", file.display());
    Ok(lines)
}

/// A table in Markdown.
fn table(rows: &[&Value], columns: &[&str]) -> String {
    let (head, rule) = (
        columns.join(" | "),
        ["---"].repeat(columns.len()).join(" | "),
    );
    let line = |row: &&Value| {
        let cells: Vec<String> = columns.iter().map(|name| shown(&row[*name])).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let lines: String = rows.iter().map(line).collect();
    format!("| {head} |\n| {rule} |\n{lines}")
}

fn shown(figure: &Value) -> String {
    if let Some(text) = figure.as_str() {
        return text.to_owned();
    }
    match figure.as_f64().filter(|_| figure.is_f64()) {
        Some(number) => format!("{number:.2}"),
        None => figure.to_string(),
    }
}

/// A panel for each figure, in it a row for each server, in it a bar for each number of sessions.
fn plot(rows: &[&Value]) -> Result<String> {
    let counts: Vec<String> = rows
        .iter()
        .map(|row| format!("({} sessions)", row["sessions"]))
        .collect();
    let mut servers: Vec<&str> = rows.iter().filter_map(|row| row["who"].as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    let mark = |row: &Value, count, figure: &str| {
        let rounds = row[figure].as_f64().map(|value| Rounds {
            median: value,
            low: value,
            high: value,
        });
        Mark {
            era: count,
            rounds,
            note: None,
        }
    };
    let panels = PANELS.map(|(title, unit, figure)| {
        let of_server = |who| {
            let marks = rows.iter().zip(&counts);
            let marks = marks.filter(|(row, _)| row["who"] == who);
            Row {
                who,
                marks: marks.map(|(row, count)| mark(row, count, figure)).collect(),
            }
        };
        Panel {
            title: title.to_owned(),
            unit,
            is_more_better: false,
            rows: servers.iter().map(|who| of_server(*who)).collect(),
        }
    });
    plot::draw("scale", &panels)
}

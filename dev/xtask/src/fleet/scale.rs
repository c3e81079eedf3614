//! `cargo xtask fleet --scale`: measures idle sessions and the cost of the store, prints the tables of docs/SCALE.md, and draws the plot.

use serde_json::Value;

use super::PROGRAM;
use crate::bench::Rounds;
use crate::bench::plot::{self, Mark, Panel, Row};
use crate::step::{self, cargo, cargo_output, root, target};

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
pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let lines = match arguments {
        [] => measure()?,
        [option, file] if option == "--from" => step::read(file)?,
        _ => return Err("after --scale may follow --from FILE".into()),
    };
    let rows: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
    let rows = rows.map_err(|error| format!("this is no row: {error}\n{lines}"))?;
    let (of_sessions, of_store): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row["who"].is_string());
    println!("{}", table(&of_sessions, &SESSIONS));
    println!("{}", table(&of_store, &STORE));
    step::write(root().join(PLOT), plot(&of_sessions)?)?;
    eprintln!("written to {PLOT}");
    Ok(())
}

/// Runs the measurement, and keeps its output, so that it can be drawn again.
fn measure() -> Result<String, String> {
    let directory = target().join("bench-peers");
    cargo(&format!(
        "build --release --manifest-path dev/bench-peers/Cargo.toml --target-dir {}",
        directory.display()
    ))?;
    let peers = directory.join("release/bench-peers");
    let lines = cargo_output(&format!("{PROGRAM} -- scale --rmcp {}", peers.display()))?;
    let file = target().join("fleet-scale.jsonl");
    step::write(&file, &lines)?;
    eprintln!("kept in {}", file.display());
    Ok(lines)
}

/// A table in Markdown.
fn table(rows: &[&Value], columns: &[&str]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(columns.iter().map(|name| (*name).to_owned()).collect());
    text += &line(columns.iter().map(|_| "---".to_owned()).collect());
    for row in rows {
        text += &line(columns.iter().map(|name| shown(&row[*name])).collect());
    }
    text
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
fn plot(rows: &[&Value]) -> Result<String, String> {
    let counts: Vec<String> = rows
        .iter()
        .map(|row| format!("({} sessions)", row["sessions"]))
        .collect();
    let mut servers: Vec<&str> = rows.iter().filter_map(|row| row["who"].as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    let panels = PANELS.map(|(title, unit, figure)| {
        let of_server = |who| {
            let marks = rows
                .iter()
                .zip(&counts)
                .filter(|(row, _)| row["who"] == who);
            let marks = marks.map(|(row, count)| {
                let value = row[figure].as_f64();
                Mark {
                    era: count,
                    rounds: value.map(|value| Rounds {
                        median: value,
                        low: value,
                        high: value,
                    }),
                    note: None,
                }
            });
            Row {
                who,
                marks: marks.collect(),
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

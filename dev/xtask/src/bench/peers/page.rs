//! Writes the page of the measured figures. Must not depend on how they are measured or which are good.

use core::fmt::Write;
use std::fs;
use std::process::Command;
use std::thread;

use super::figures::{Figure, Figures, distinct, format_number, format_ratio};
use super::{PLOTS, bars};

/// The works in the order of the page, each with its heading and description.
const WORKS: &[(&str, &str, &str)] = &[
    (
        "in_process",
        "In process",
        "One call of a tool that says what it was told, through a client and a server in one process, over buffers in memory.",
    ),
    (
        "decode",
        "Decoding",
        "One line of a server until its message is there: of `everlink`, the event that the application sees.",
    ),
    (
        "stdio",
        "A child process",
        "Calls of 100 bytes over standard streams. `cpu` is of both ends together.",
    ),
    (
        "http",
        "HTTP",
        "Calls of 100 bytes over loopback. `cpu` is of both ends together.",
    ),
    (
        "proxy",
        "A guard between",
        "What `everlink guard` adds to a call that passes through it.",
    ),
    (
        "idle",
        "Idle",
        "Many connections in one process, in which nothing happens.",
    ),
    (
        "death",
        "Death",
        "A server dies, is cut off or freezes while calls are in flight. A value below zero is an error that was there before the exit could be seen.",
    ),
];

pub(super) fn write(figures: &Figures, findings: &str) -> String {
    let mut page = format!(
        "# Beside its peers\n\n\
         Made by `cargo xtask bench --peers`, which runs [`dev/bench-peers`](../dev/bench-peers) and writes this page: all figures are from one run on {}. \
         Of several rounds the median is given; the whiskers go from the lowest to the highest. Trust instructions and allocations first, \
         ratios second, times last. `raw`, `floor` and `serde_json` speak no protocol: they mark what the same bytes cost with the system calls, or \
         the JSON, that nobody can do without, and ratios (×) are to them. Legacy is the protocol of 2025-11-25, modern that of 2026-07-28.\n\n\
         ## Bars\n\n\
         What everlink is held to. The best of its adapters counts, in both eras.\n\n{}",
        machine(),
        bars::as_markdown(figures),
    );
    for (work, heading, about) in WORKS {
        if figures.has_work(work) {
            let directory = PLOTS.trim_start_matches("docs/");
            let _ = write!(
                page,
                "\n## {heading}\n\n{about}\n\n![{heading}]({directory}/{work}.svg)\n"
            );
            for case in figures.cases(work) {
                let _ = write!(page, "\n**{case}**\n\n{}", table(figures, work, case));
            }
        }
    }
    let findings = findings.trim();
    if !findings.is_empty() {
        let _ = write!(page, "\n{findings}\n");
    }
    page
}

/// The table of a case: a line for each library and era, a column for each metric.
fn table(figures: &Figures, work: &str, case: &str) -> String {
    let case_figures = || figures.of_case(work, case);
    let metrics = figures.metrics(work, case);
    let mut table = String::from("| | era |");
    for metric in &metrics {
        let unit = case_figures().find(|figure| figure.metric == *metric);
        let unit = unit.map_or("", |figure| &*figure.unit);
        let comma = if unit.is_empty() { "" } else { ", " };
        let _ = write!(table, " {metric}{comma}{unit} |");
    }
    let _ = writeln!(table, "\n|---|---|{}", "---:|".repeat(metrics.len()));
    for who in distinct(case_figures().map(|figure| &*figure.who)) {
        let library_figures = || case_figures().filter(|figure| figure.who == who);
        for era in distinct(library_figures().map(|figure| &*figure.era)) {
            let mark = if who.starts_with("everlink") {
                "**"
            } else {
                ""
            };
            let _ = write!(table, "| {mark}{who}{mark} | {era} |");
            for metric in &metrics {
                let is_cell = |figure: &&Figure| figure.era == era && figure.metric == *metric;
                let figure = library_figures().find(is_cell);
                let cell = figure.map(|figure| cell(figures, figure));
                let _ = write!(table, " {} |", cell.unwrap_or_default());
            }
            table.push('\n');
        }
    }
    table
}

fn cell(figures: &Figures, figure: &Figure) -> String {
    let Some(rounds) = figure.rounds else {
        return figure.note.clone().unwrap_or_else(|| "-".into());
    };
    let value = format_number(rounds.median);
    match figures.ratio(figure) {
        Some(ratio) => format!("{value} ({})", format_ratio(ratio)),
        None => value,
    }
}

/// The machine, the system and the compiler.
fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cores = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim())
    });
    let cpu = cpu.unwrap_or(std::env::consts::ARCH);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split(['-', '\n']).next().unwrap_or_default();
    let system = std::env::consts::OS;
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.map_or_else(|_| Vec::new(), |output| output.stdout);
    let rustc = String::from_utf8_lossy(&rustc);
    let rustc: Vec<&str> = rustc.split_whitespace().take(2).collect();
    format!("{cores} ({cpu}), {system} {kernel}, {}", rustc.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::line;
    use super::*;

    #[test]
    fn page_contains_measured_tables_bars_and_findings() {
        let work_case_metric = ["stdio", "one core", "p50"];
        let lines = [
            line(work_case_metric, "raw", "both", "4"),
            line(work_case_metric, "everlink-tokio", "legacy", "15.58"),
        ];
        let figures = Figures::from_lines(&lines.join("\n")).expect("figures");
        let page = write(&figures, "## What was found\n\nMuch.\n");
        for part in [
            "## A child process\n",
            "(benchmarks/stdio.svg)",
            "| | era | p50, µs |\n|---|---|---:|\n| raw | both | 4 |\n| **everlink-tokio** | legacy | 15.6 (×3.9) |\n",
            "| stdio, one core | p50 at most 3 × raw | 12 |",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(page.ends_with("\n## What was found\n\nMuch.\n"), "{page}");
        assert!(!page.contains("## HTTP"), "{page}");
    }
}

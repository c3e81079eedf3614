//! Writes the page of the measured figures. Must not depend on how they are measured or which are good.

use anyhow::Result;
use fs_err as fs;
use xshell::cmd;

use super::figures::{Figure, Figures, distinct, format_number, format_ratio};
use super::{PLOTS, bars};
use crate::step::{cores, shell};

const TEMPLATE: &str = include_str!("page.md");

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

pub(super) fn page(figures: &Figures, findings: &str) -> Result<String> {
    let mut works = String::new();
    let measured = WORKS.iter().filter(|(work, ..)| figures.has_work(work));
    for (work, heading, about) in measured {
        let directory = PLOTS.trim_start_matches("docs/");
        works += &format!("\n## {heading}\n\n{about}\n\n![{heading}]({directory}/{work}.svg)\n");
        for case in figures.cases(work) {
            works += &format!("\n**{case}**\n\n{}", table(figures, work, case));
        }
    }
    let findings = match findings.trim() {
        "" => String::new(),
        findings => format!("\n{findings}\n"),
    };
    Ok(TEMPLATE
        .replace("{machine}", &machine()?)
        .replace("{bars}", &bars::as_markdown(figures))
        .replace("{works}", &works)
        .replace("{findings}", &findings))
}

/// The table of a case: a line for each library and era, a column for each metric.
fn table(figures: &Figures, work: &str, case: &str) -> String {
    let case_figures = || figures.of_case(work, case);
    let metrics = figures.metrics(work, case);
    let column = |metric: &&str| {
        let mut figures = case_figures().filter(|figure| figure.metric == **metric);
        let unit = figures.next().map_or("", |figure| &*figure.unit);
        let column = format!("{metric}, {unit}");
        format!(" {} |", column.trim_end_matches(", "))
    };
    let columns: String = metrics.iter().map(column).collect();
    let mut table = format!(
        "| | era |{columns}\n|---|---|{}\n",
        "---:|".repeat(metrics.len())
    );
    for who in distinct(case_figures().map(|figure| &*figure.who)) {
        let library_figures = || case_figures().filter(|figure| figure.who == who);
        let mark = match who.starts_with("everlink") {
            true => "**",
            false => "",
        };
        for era in distinct(library_figures().map(|figure| &*figure.era)) {
            let cells = metrics.iter().map(|metric| {
                let is_cell = |figure: &&Figure| figure.era == era && figure.metric == *metric;
                let figure = library_figures().find(is_cell);
                figure.map_or_else(
                    || "  |".to_owned(),
                    |figure| format!(" {} |", cell(figures, figure)),
                )
            });
            table += &format!(
                "| {mark}{who}{mark} | {era} |{}\n",
                cells.collect::<String>()
            );
        }
    }
    table
}

fn cell(figures: &Figures, figure: &Figure) -> String {
    let Some(rounds) = figure.rounds() else {
        return figure.note.clone().unwrap_or_else(|| "-".into());
    };
    let value = format_number(rounds.median);
    match figures.ratio(figure) {
        Some(ratio) => format!("{value} ({})", format_ratio(ratio)),
        None => value,
    }
}

/// The machine, the system and the compiler.
fn machine() -> Result<String> {
    let cores = match cores() {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = cpu.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(name, _)| name.trim() == "model name");
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split(['-', '\n']).next().unwrap_or_default();
    let system = std::env::consts::OS;
    let shell = shell()?;
    let rustc = cmd!(shell, "rustc --version").read()?;
    let rustc: Vec<&str> = rustc.split_whitespace().take(2).collect();
    Ok(format!(
        "{cores} ({model}), {system} {kernel}, {}",
        rustc.join(" ")
    ))
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
        let page = page(&figures, "## What was found\n\nMuch.\n").expect("a page");
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

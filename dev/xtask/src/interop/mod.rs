//! `cargo xtask interop`: runs our client with servers of other projects, and our server with their clients, as published.
//!
//! `row` lists the pairs and the expected results, `setup` installs what they need, `runner` runs one row, and `report` shows the results.

mod report;
mod row;
mod runner;
mod setup;

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use crate::install::skip_without;
use crate::step::{self, Done, Outcome, cargo, root};

use report::Report;
use row::{ROWS, Row};
use runner::RowResult;
pub(crate) use setup::PACKAGES;
use setup::Setup;

const NEEDED: &[&str] = &["node", "npm", "python3"];

/// The number of rows that run at the same time. Most of the time is spent waiting for interpreters to start.
const WORKERS: usize = 3;

/// Runs all rows, and writes the page.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if skip_without(NEEDED).is_some() {
        return Err("this needs node, npm and python3".into());
    }
    let report = run_rows(arguments, true)?;
    if arguments.is_empty() {
        let file = page();
        step::write(&file, report.as_markdown())?;
        eprintln!("\nwritten to docs/INTEROP.md");
    }
    report.result()
}

/// The same without writing and without time limits: the page must match the results.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = skip_without(NEEDED) {
        return skipped;
    }
    let report = run_rows(&[], false)?;
    report.result()?;
    if fs::read_to_string(page()).is_ok_and(|committed| committed == report.as_markdown()) {
        Ok(Done::Passed)
    } else {
        Err("docs/INTEROP.md is out of date: run `cargo xtask interop`".into())
    }
}

fn page() -> PathBuf {
    root().join("docs/INTEROP.md")
}

/// Runs all rows, or those whose names contain one of these words.
fn run_rows(words: &[String], checks_time: bool) -> Result<Report, String> {
    cargo("build --package interop")?;
    let setup = Setup::install(checks_time)?;
    let is_requested = |row: &Row| {
        let name = row.name();
        words.is_empty() || words.iter().any(|word| name.contains(word))
    };
    let rows: Vec<&'static Row> = ROWS.iter().filter(|row| is_requested(row)).collect();
    if rows.is_empty() {
        return Err("there are no such rows".into());
    }
    let mut report = Report::default();
    // Measured rows run alone, so that no other row disturbs the time.
    let (measured, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_measured());
    let mut results: Vec<(&Row, RowResult)> = measured
        .into_iter()
        .map(|row| (row, runner::run_row(row, &setup)))
        .collect();
    results.extend(run_parallel(&others, &setup));
    for row in rows {
        let (_, result) = results
            .iter()
            .position(|(row_of_result, _)| core::ptr::eq(*row_of_result, row))
            .map(|at| results.swap_remove(at))
            .ok_or("a row was not gone through")?;
        report.add(row, result);
    }
    eprintln!("\n{}", report.as_table());
    Ok(report)
}

fn run_parallel(rows: &[&'static Row], setup: &Setup) -> Vec<(&'static Row, RowResult)> {
    let (next, results) = (Mutex::new(rows.iter()), Mutex::new(Vec::new()));
    let next_row = || next.lock().ok()?.next().copied();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(row) = next_row() {
                    let outcome = runner::run_row(row, setup);
                    if let Ok(mut results) = results.lock() {
                        results.push((row, outcome));
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_default()
}

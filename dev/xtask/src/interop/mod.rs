//! `cargo xtask interop`: our client with the servers of others, and our server with their clients, as they are published.
//!
//! `row` is who meets whom and what must come of it; `stage` what is installed for that; `meeting` how one row is gone through; `report` what
//! came of it.

mod meeting;
mod report;
mod row;
mod stage;

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use crate::peers::lacks;
use crate::step::{Done, Outcome, cargo, root};

use meeting::Told;
use report::Report;
use row::{ROWS, Row};
pub(crate) use stage::PACKAGES;
use stage::Stage;

const NEEDED: &[&str] = &["node", "npm", "python3"];

/// So many rows are gone through at once. Most of the time is spent waiting for interpreters to start.
const AT_ONCE: usize = 3;

/// Has everybody meet everybody, and writes down what came of it.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if lacks(NEEDED).is_some() {
        return Err("this needs node, npm and python3".into());
    }
    let report = meet(arguments, true)?;
    if arguments.is_empty() {
        let file = page();
        fs::write(&file, report.as_markdown())
            .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        eprintln!("\nwritten to docs/INTEROP.md");
    }
    report.verdict()
}

/// The same without writing, and without a word on how long it takes: what is written down must be what comes of it.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = lacks(NEEDED) {
        return skipped;
    }
    let report = meet(&[], false)?;
    report.verdict()?;
    if fs::read_to_string(page()).is_ok_and(|is| is == report.as_markdown()) {
        Ok(Done::Passed)
    } else {
        Err("docs/INTEROP.md is out of date: run `cargo xtask interop`".into())
    }
}

fn page() -> PathBuf {
    root().join("docs/INTEROP.md")
}

/// Goes through all rows, or those whose names contain one of these words.
fn meet(words: &[String], judges_time: bool) -> Result<Report, String> {
    cargo("build --package interop")?;
    let stage = Stage::install(judges_time)?;
    let is_asked = |row: &Row| {
        let name = row.name();
        words.is_empty() || words.iter().any(|word| name.contains(word))
    };
    let rows: Vec<&'static Row> = ROWS.iter().filter(|row| is_asked(row)).collect();
    if rows.is_empty() {
        return Err("there are no such rows".into());
    }
    let mut report = Report::default();
    // Where time is measured, nothing else happens meanwhile.
    let (measured, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_measured());
    let mut told: Vec<(&Row, Told)> = measured
        .into_iter()
        .map(|row| (row, meeting::go_through(row, &stage)))
        .collect();
    told.extend(side_by_side(&others, &stage));
    for row in rows {
        let (_, told) = told
            .iter()
            .position(|(of, _)| core::ptr::eq(*of, row))
            .map(|at| told.swap_remove(at))
            .ok_or("a row was not gone through")?;
        report.add(row, told);
    }
    eprintln!("\n{}", report.as_table());
    Ok(report)
}

fn side_by_side(rows: &[&'static Row], stage: &Stage) -> Vec<(&'static Row, Told)> {
    let (next, told) = (Mutex::new(rows.iter()), Mutex::new(Vec::new()));
    let take = || next.lock().ok()?.next().copied();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(row) = take() {
                    let outcome = meeting::go_through(row, stage);
                    if let Ok(mut told) = told.lock() {
                        told.push((row, outcome));
                    }
                }
            });
        }
    });
    told.into_inner().unwrap_or_default()
}

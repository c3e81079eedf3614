//! `cargo xtask interop`: runs our client with servers of other projects, and our server with their clients, as published.
//!
//! `row` lists the pairs and the expected results, `setup` installs what they need, `runner` runs one row, and `report` shows the results.

mod report;
mod row;
mod runner;
mod setup;

use anyhow::{Result, ensure};
use pico_args::Arguments;

use crate::install::need_programs;
use crate::step::{cargo, check_page, in_parallel, words, write_page};

use row::Row;
use runner::{RowResult, run_row};
pub(crate) use setup::PACKAGES;
use setup::Setup;

const PAGE: &str = "docs/INTEROP.md";

/// The number of rows that run at the same time. Most of the time is spent waiting for interpreters to start.
const WORKERS: usize = 3;

/// Runs all rows, and writes the page.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let words = words(arguments)?;
    let results = run_rows(&words, true)?;
    let page = report::page(&results);
    eprintln!("\n{page}");
    if words.is_empty() {
        write_page(PAGE, &page)?;
    }
    report::check(&results)
}

/// The same without writing and without time limits: the page must match the results.
pub(crate) fn check() -> Result<()> {
    let results = run_rows(&[], false)?;
    report::check(&results)?;
    check_page(PAGE, &report::page(&results), "interop")
}

/// Runs all rows, or those whose names contain one of these words.
fn run_rows(words: &[String], checks_time: bool) -> Result<Vec<(Row, RowResult)>> {
    need_programs(&["node", "npm", "python3"])?;
    cargo("build --package interop")?;
    let mut rows = Row::all()?;
    let setup = Setup::install(&rows, checks_time)?;
    rows.retain(|row| words.is_empty() || words.iter().any(|word| row.name().contains(word)));
    ensure!(!rows.is_empty(), "there are no such rows");
    // Measured rows run alone, so that no other row disturbs the time.
    let run = |is_measured: bool, workers| {
        let rows = rows.iter().filter(|row| row.is_measured() == is_measured);
        let rows: Vec<&Row> = rows.collect();
        let results = in_parallel(workers, &rows, |row| run_row(row, &setup));
        results.into_iter()
    };
    let (mut measured, mut others) = (run(true, 1), run(false, WORKERS));
    let result = |row: &Row| match row.is_measured() {
        true => measured.next().unwrap_or_default(),
        false => others.next().unwrap_or_default(),
    };
    let results: Vec<RowResult> = rows.iter().map(result).collect();
    Ok(rows.into_iter().zip(results).collect())
}

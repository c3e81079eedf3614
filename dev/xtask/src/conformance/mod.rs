//! `cargo xtask conformance`: runs the public conformance suite with our client and our server.
//!
//! `suite` installs and runs the suite and reads its results, `subject` has our programs, `expected` the expected failures, and `report`
//! the result.

mod expected;
mod report;
mod subject;
mod suite;

use anyhow::Result;
use pico_args::Arguments;

use crate::install::need_programs;
use crate::step::{self, cargo, write_page};

use expected::Expected;
use report::Report;
use subject::{NODES, SUBJECTS, Subject};
use suite::{Scope, Suite};

/// The tested revisions of the specification.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

const NEEDED: &[&str] = &["node", "npm"];

/// Runs the suite as often as requested, and writes the page.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let repeats = arguments.opt_value_from_str("--repeats")?.unwrap_or(1);
    need_programs(NEEDED)?;
    cargo("build --package conformance --package everlink-cli")?;
    let suite = Suite::install()?;
    let mut report = run_required(&suite, SUBJECTS, repeats)?;
    eprintln!("\nall that there is");
    for_each(SUBJECTS, |order, subject, revision| {
        let results = subject.run(&suite, Scope::Suite, revision)?;
        report.add_optional(order, subject, revision, results);
        Ok(())
    })?;
    let page = report.page();
    eprintln!("\n{page}");
    write_page("docs/CONFORMANCE.md", &page)?;
    report.result()
}

/// Runs the required scenarios once.
pub(crate) fn check() -> Result<()> {
    need_programs(NEEDED)?;
    step::build_as_for_tests()?;
    show(&run_required(&Suite::install()?, SUBJECTS, 1)?)
}

/// Runs the required scenarios of a server with three nodes as often as requested.
pub(crate) fn run_on_nodes(repeats: u32) -> Result<()> {
    cargo("build --package conformance --package everlink-fleet")?;
    show(&run_required(&Suite::install()?, &[NODES], repeats)?)
}

fn show(report: &Report) -> Result<()> {
    eprintln!("\n{}", report.page());
    report.result()
}

fn run_required(suite: &Suite, subjects: &'static [Subject], repeats: u32) -> Result<Report> {
    let mut report = Report::new(Expected::read()?, repeats);
    for repeat in 1..=repeats {
        eprintln!("\nwhat is required, {repeat} of {repeats}");
        for_each(subjects, |order, subject, revision| {
            let results = subject.run(suite, Scope::Requirements, revision)?;
            let required = suite.required(subject.side, revision)?;
            report.add(order, subject, revision, &required, results);
            Ok(())
        })?;
    }
    Ok(report)
}

/// Calls the function for every subject at every revision.
fn for_each(
    subjects: &'static [Subject],
    mut run: impl FnMut(usize, &'static Subject, &'static str) -> Result<()>,
) -> Result<()> {
    for (order, subject) in subjects.iter().enumerate() {
        for revision in REVISIONS {
            eprintln!("  {} at {revision}", subject.name);
            run(order, subject, revision)?;
        }
    }
    Ok(())
}

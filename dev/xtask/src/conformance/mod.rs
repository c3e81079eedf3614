//! `cargo xtask conformance`: runs the public conformance suite with our client and our server.
//!
//! `suite` installs and runs the suite and reads its results, `subject` has our programs, `expected` the expected failures, and `report`
//! the result.

mod expected;
mod report;
mod subject;
mod suite;

use crate::install::{number_option, skip_without};
use crate::step::{self, Done, Outcome, cargo, root};

use expected::Expected;
use report::Report;
use subject::{NODES, SUBJECTS, Subject};
use suite::{Scope, Suite};

/// The tested revisions of the specification.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

const NEEDED: &[&str] = &["node", "npm"];

/// Runs the suite as often as requested, and writes the page.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let repeats = number_option(arguments, "--repeats", 1)?;
    if skip_without(NEEDED).is_some() {
        return Err("this needs node and npm".into());
    }
    cargo("build --package conformance --package everlink-cli")?;
    let suite = Suite::install()?;
    let mut report = run_required(&suite, repeats)?;
    run_optional(&suite, &mut report)?;
    eprintln!("\n{}", report.as_table());
    let file = root().join("docs/CONFORMANCE.md");
    step::write(&file, report.as_markdown())?;
    eprintln!("\nwritten to docs/CONFORMANCE.md");
    report.result()
}

/// Runs the required scenarios once.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = skip_without(NEEDED) {
        return skipped;
    }
    step::build_as_for_tests()?;
    let report = run_required(&Suite::install()?, 1)?;
    eprintln!("\n{}", report.as_table());
    report.result()?;
    Ok(Done::Passed)
}

/// Runs the required scenarios of a server with three nodes as often as requested.
pub(crate) fn run_on_nodes(repeats: u32) -> Result<(), String> {
    cargo("build --package conformance --package everlink-fleet")?;
    let suite = Suite::install()?;
    let mut report = Report::new(Expected::read()?, repeats);
    for repeat in 1..=repeats {
        eprintln!("\n{}, {repeat} of {repeats}", NODES.name);
        for revision in REVISIONS {
            let results = NODES.run(&suite, Scope::Requirements, revision)?;
            let required = suite.required(NODES.side, revision)?;
            report.add(0, &NODES, revision, &required, results);
        }
    }
    eprintln!("\n{}", report.as_table());
    report.result()
}

fn run_required(suite: &Suite, repeats: u32) -> Result<Report, String> {
    let mut report = Report::new(Expected::read()?, repeats);
    for repeat in 1..=repeats {
        eprintln!("\nwhat is required, {repeat} of {repeats}");
        for_each_subject(|order, subject, revision| {
            let results = subject.run(suite, Scope::Requirements, revision)?;
            let required = suite.required(subject.side, revision)?;
            report.add(order, subject, revision, &required, results);
            Ok(())
        })?;
    }
    Ok(report)
}

fn run_optional(suite: &Suite, report: &mut Report) -> Result<(), String> {
    eprintln!("\nall that there is");
    for_each_subject(|order, subject, revision| {
        let results = subject.run(suite, Scope::Suite, revision)?;
        report.add_optional(order, subject, revision, results);
        Ok(())
    })
}

/// Calls the function for every subject at every revision.
fn for_each_subject(
    mut run: impl FnMut(usize, &'static Subject, &'static str) -> Result<(), String>,
) -> Result<(), String> {
    for (order, subject) in SUBJECTS.iter().enumerate() {
        for revision in REVISIONS {
            eprintln!("  {} at {revision}", subject.name);
            run(order, subject, revision)?;
        }
    }
    Ok(())
}

//! `cargo xtask conformance`: our client and our server, judged by the public conformance suite.
//!
//! `suite` is how it is installed, called and read; `subject` what it judges; `expected` what is known to fail, and why; `report` what came of it.

mod expected;
mod report;
mod subject;
mod suite;

use std::fs;

use crate::peers::{lacks, number};
use crate::step::{Done, Outcome, cargo, root};

use expected::Expected;
use report::Report;
use subject::{SUBJECTS, Subject};
use suite::{Scope, Suite};

/// The revisions of the specification that are judged.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

const NEEDED: &[&str] = &["node", "npm"];

/// Judges all, as often as is said, and writes down what came of it.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let repeats = number(arguments, "--repeats", 1)?;
    if lacks(NEEDED).is_some() {
        return Err("this needs node and npm".into());
    }
    let suite = prepare()?;
    let mut report = judge(&suite, repeats)?;
    judge_the_rest(&suite, &mut report)?;
    eprintln!("\n{}", report.as_table());
    let file = root().join("docs/CONFORMANCE.md");
    fs::write(&file, report.as_markdown())
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    eprintln!("\nwritten to docs/CONFORMANCE.md");
    report.verdict()
}

/// Judges once what is required.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = lacks(NEEDED) {
        return skipped;
    }
    let report = judge(&prepare()?, 1)?;
    eprintln!("\n{}", report.as_table());
    report.verdict()?;
    Ok(Done::Passed)
}

fn prepare() -> Result<Suite, String> {
    cargo("build --package conformance --package everlink-cli")?;
    Suite::install()
}

fn judge(suite: &Suite, repeats: u32) -> Result<Report, String> {
    let mut report = Report::new(Expected::read()?, repeats);
    for repeat in 1..=repeats {
        eprintln!("\nwhat is required, {repeat} of {repeats}");
        each(|order, subject, revision| {
            let judged = subject.judge(suite, Scope::Requirements, revision)?;
            let required = suite.required(subject.leg, revision)?;
            report.add(order, subject, revision, &required, judged);
            Ok(())
        })?;
    }
    Ok(report)
}

fn judge_the_rest(suite: &Suite, report: &mut Report) -> Result<(), String> {
    eprintln!("\nall that there is");
    each(|order, subject, revision| {
        let judged = subject.judge(suite, Scope::Suite, revision)?;
        report.add_the_rest(order, subject, revision, judged);
        Ok(())
    })
}

/// Every subject, at every revision.
fn each(
    mut judge: impl FnMut(usize, &'static Subject, &'static str) -> Result<(), String>,
) -> Result<(), String> {
    for (order, subject) in SUBJECTS.iter().enumerate() {
        for revision in REVISIONS {
            eprintln!("  {} at {revision}", subject.name);
            judge(order, subject, revision)?;
        }
    }
    Ok(())
}

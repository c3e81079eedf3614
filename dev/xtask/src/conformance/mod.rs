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
use subject::SUBJECTS;
use suite::Suite;

/// The revisions of the specification that are judged.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

const NEEDED: &[&str] = &["node", "npm"];

/// Judges all, as often as is said, and writes down what came of it.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let repeats = number(arguments, "--repeats", 1)?;
    if lacks(NEEDED).is_some() {
        return Err("this needs node and npm".into());
    }
    let report = judge(repeats)?;
    let file = root().join("docs/CONFORMANCE.md");
    fs::write(&file, report.as_markdown())
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    eprintln!("\nwritten to docs/CONFORMANCE.md");
    report.verdict()
}

/// Judges all once.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = lacks(NEEDED) {
        return skipped;
    }
    judge(1)?.verdict()?;
    Ok(Done::Passed)
}

fn judge(repeats: u32) -> Result<Report, String> {
    cargo("build --package conformance --package everlink-cli")?;
    let suite = Suite::install()?;
    let mut report = Report::new(Expected::read()?, repeats);
    for repeat in 1..=repeats {
        for (order, subject) in SUBJECTS.iter().enumerate() {
            for revision in REVISIONS {
                eprintln!("\n{} at {revision}, {repeat} of {repeats}", subject.name);
                let judged = subject.judge(&suite, revision)?;
                let required = suite.required(subject.leg, revision)?;
                report.add(order, subject, revision, &required, judged);
            }
        }
    }
    eprintln!("\n{}", report.as_table());
    Ok(report)
}

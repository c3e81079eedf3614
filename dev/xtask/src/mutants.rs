//! `cargo xtask mutants`: changes the library, and runs the tests that should notice. `dev/mutants` does the work.

use crate::evidence::Run;
use crate::step::{self, Outcome, cargo};

/// Has a row for each file.
const TABLE: &str = "docs/mutants.tsv";

/// Runs mutants. They are evidence when the table is whole.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let words = arguments.join(" ");
    let evidence = Run::begin("mutants", &format!("mutants {words}"))?;
    run_package(&words)?;
    let only_writes = arguments.iter().any(|word| word == "--page");
    if only_writes || check().is_err() {
        return Ok(());
    }
    evidence.end(&result(&step::read(TABLE)?))
}

/// The sums of the table.
fn result(table: &str) -> String {
    let number = |line: &str, at: usize| line.split('\t').nth(at)?.parse::<u64>().ok();
    let sum = |at: usize| -> u64 { table.lines().filter_map(|line| number(line, at)).sum() };
    format!("{} of {} caught", sum(3), sum(2))
}

/// Fails if a file has no row in `docs/mutants.tsv`, or one with too many survivors. Runs no mutant.
pub(crate) fn check_share() -> Outcome {
    run_package("--check-share")
}

/// Also fails if a row is about older code.
pub(crate) fn check() -> Outcome {
    run_package("--check")
}

fn run_package(arguments: &str) -> Outcome {
    cargo(&format!("run --quiet --package mutants -- {arguments}"))
}

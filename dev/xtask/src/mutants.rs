//! `cargo xtask mutants`: changes the library, and runs the tests that should notice. `dev/mutants` does the work.

use anyhow::Result;
use pico_args::Arguments;

use crate::evidence::Run;
use crate::step::{all_words, cargo, read};

/// The results: a row for each file.
const TABLE: &str = "docs/mutants.tsv";

/// Runs mutants. Records the run in `docs/EVIDENCE.md` if afterwards every row of the table is about the present code.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let words = all_words(arguments);
    let command = words.join(" ");
    let evidence = Run::begin("mutants", &format!("mutants {command}"))?;
    run_package(&command)?;
    let only_writes = words.iter().any(|word| word == "--page");
    if only_writes || check().is_err() {
        return Ok(());
    }
    evidence.end(&result(&read(TABLE)?))
}

/// The sum of the caught mutants (column 3) and of all mutants (column 2).
fn result(table: &str) -> String {
    let number = |line: &str, at: usize| line.split('\t').nth(at)?.parse::<u64>().ok();
    let sum = |at: usize| -> u64 { table.lines().filter_map(|line| number(line, at)).sum() };
    format!("{} of {} caught", sum(3), sum(2))
}

/// Fails if a file has no row in `docs/mutants.tsv`, or one with too many survivors. Runs no mutant.
pub(crate) fn check_share() -> Result<()> {
    run_package("--check-share")
}

/// Fails for the same reasons as [`check_share`], and if a row is about older code.
pub(crate) fn check() -> Result<()> {
    run_package("--check")
}

fn run_package(arguments: &str) -> Result<()> {
    cargo(&format!("run --quiet --package mutants -- {arguments}"))
}

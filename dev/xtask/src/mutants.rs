//! `cargo xtask mutants`: changes the library, and runs the tests that should notice. `dev/mutants` does the work.

use crate::step::{Outcome, cargo};

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    run_package(&arguments.join(" ")).map(drop)
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

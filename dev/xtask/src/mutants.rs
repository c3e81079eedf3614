//! `cargo xtask mutants`: changes the library, and runs the tests that should notice. `dev/mutants` does the work.

use crate::step::{Outcome, cargo};

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    run_package(&arguments.join(" ")).map(drop)
}

/// Fails if `docs/mutants.tsv` is about older code. Runs no mutant.
pub(crate) fn check() -> Outcome {
    run_package("--check")
}

fn run_package(arguments: &str) -> Outcome {
    cargo(&format!("run --quiet --package mutants -- {arguments}"))
}

//! How little a program needs that speaks to a child process: packages in its build, bytes of its binary. Knows not what is in them.

use std::collections::BTreeSet;
use std::fs;

use crate::step::{Done, Outcome, cargo, cargo_output, target};

/// A program of a user has fewer packages than this, itself included.
const PACKAGES: usize = 20;
/// The example that stands for such a program has fewer bytes than this.
const BYTES: u64 = 1_000_000;

/// Fails when the adapter for standard streams has become too much for a small program.
pub(crate) fn check() -> Outcome {
    let tree = cargo_output("tree --package everlink-stdio --edges normal,build --prefix none")?;
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let packages = names.len() + 1;
    cargo("build --profile small --package everlink-stdio --example call")?;
    let program = target().join("small/examples/call");
    let program = program.with_extension(std::env::consts::EXE_EXTENSION);
    let bytes = fs::metadata(&program)
        .map_err(|error| format!("{} cannot be looked at: {error}", program.display()))?
        .len();
    eprintln!("a program over standard streams: {packages} packages, {bytes} bytes");
    if packages >= PACKAGES || bytes >= BYTES {
        return Err(format!(
            "{packages} packages of fewer than {PACKAGES} and {bytes} bytes of fewer than {BYTES}"
        ));
    }
    Ok(Done::Passed)
}

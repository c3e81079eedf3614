//! Checks the footprint of a program that uses a child process: the number of packages in its build and the size of its binary.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::step::{cargo, cargo_in, shell, target};

/// The limit for the packages of such a program, itself included.
const MAX_PACKAGES: usize = 21;
/// The limit for the bytes of the example that stands for such a program.
const MAX_BYTES: u64 = 1_000_000;

/// Fails if the adapter for standard streams exceeds a limit.
pub(crate) fn check() -> Result<()> {
    let tree = "tree --package everlink-stdio --edges normal,build --prefix none";
    let tree = cargo_in(&shell()?, tree).read()?;
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let packages = names.len() + 1;
    cargo("build --profile small --package everlink-stdio --example call")?;
    let program = target().join("small/examples/call");
    let program = program.with_extension(std::env::consts::EXE_EXTENSION);
    let bytes = fs::metadata(program)?.len();
    eprintln!("a program over standard streams: {packages} packages, {bytes} bytes");
    ensure!(
        packages < MAX_PACKAGES && bytes < MAX_BYTES,
        "{packages} packages of fewer than {MAX_PACKAGES} and {bytes} bytes of fewer than {MAX_BYTES}"
    );
    Ok(())
}

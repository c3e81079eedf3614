//! Checks the footprint of a program that uses a child process: the number of packages in its build and the size of its binary.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::step::{cargo, cargo_in, shell, target};

/// The maximum number of packages in such a program, itself included.
const MAX_PACKAGES: usize = 20;
/// The maximum size of the example `call` of `everlink-stdio`, in bytes.
const MAX_BYTES: u64 = 1_000_000;

/// Fails if the example `call` of `everlink-stdio` exceeds a limit.
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
        packages <= MAX_PACKAGES && bytes <= MAX_BYTES,
        "the program has {packages} packages (at most {MAX_PACKAGES}) and {bytes} bytes (at most {MAX_BYTES})"
    );
    Ok(())
}

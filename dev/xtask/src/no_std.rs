//! Checks that the core needs no operating system: a program without std runs, and the core compiles for targets that have none.

use anyhow::Result;

use crate::install::need_target;
use crate::step::{cargo, cargo_in, shell};

/// A target that has no `std`, and one that has it without threads and I/O.
const TARGETS: &[&str] = &["thumbv6m-none-eabi", "wasm32-unknown-unknown"];
/// More targets without `std`. They differ little from the others.
const MORE_TARGETS: &[&str] = &["riscv32imc-unknown-none-elf", "thumbv7em-none-eabi"];
/// Those of all without atomic compare-and-swap. There, `Rc` takes the place of `Arc`.
const WITHOUT_SWAP: &[&str] = &["riscv32imc-unknown-none-elf", "thumbv6m-none-eabi"];

pub(crate) fn check() -> Result<()> {
    // It has its own workspace because it needs its own panic handler, and in its own directory cargo finds its configuration.
    let shell = shell()?;
    shell.change_dir("dev/bare");
    cargo_in(&shell, "run").run()?;
    check_targets(TARGETS)
}

pub(crate) fn check_more() -> Result<()> {
    check_targets(MORE_TARGETS)
}

/// Checks all targets that there are, and skips the step if one is missing.
fn check_targets(targets: &[&str]) -> Result<()> {
    let mut missing = Ok(());
    for target in targets {
        match need_target(target) {
            Ok(()) => check_target(target)?,
            Err(skipped) => missing = Err(skipped),
        }
    }
    missing
}

fn check_target(target: &str) -> Result<()> {
    let check = format!("check --package everlink --lib --no-default-features --target {target}");
    cargo(&check)?;
    if WITHOUT_SWAP.contains(&target) {
        // The library asserts that its machines are `Send` with this feature. portable-atomic must be told how to do without
        // compare-and-swap: an application has a critical section for that, and a library has not.
        let flags = "--cfg portable_atomic_unsafe_assume_single_core";
        cargo_in(&shell()?, &format!("{check} --features portable-atomic"))
            .env("RUSTFLAGS", flags)
            .run()?;
    }
    Ok(())
}

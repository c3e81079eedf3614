//! Checks that the core needs no operating system: a program without std runs, and the core compiles for targets that have none.

use crate::install::{rust_target, skipped};
use crate::step::{self, Done, Outcome, cargo, cargo_with};

/// A target that has no `std`, and one that has it without threads and I/O.
const TARGETS: &[&str] = &["thumbv6m-none-eabi", "wasm32-unknown-unknown"];
/// More targets without `std`. They differ little from the others.
const MORE_TARGETS: &[&str] = &["riscv32imc-unknown-none-elf", "thumbv7em-none-eabi"];
/// Those of all without atomic compare-and-swap. There, `Rc` takes the place of `Arc`.
const WITHOUT_SWAP: &[&str] = &["riscv32imc-unknown-none-elf", "thumbv6m-none-eabi"];

pub(crate) fn check() -> Outcome {
    run_program()?;
    check_targets(TARGETS)
}

pub(crate) fn check_more() -> Outcome {
    check_targets(MORE_TARGETS)
}

fn check_targets(targets: &[&str]) -> Outcome {
    let (present, missing): (Vec<_>, Vec<_>) = targets.iter().partition(|name| rust_target(name));
    for target in present {
        check_target(target)?;
    }
    if missing.is_empty() {
        return Ok(Done::Passed);
    }
    skipped(&format!("the target {}", missing.join(", ")))
}

/// Runs a program without std. It has its own workspace because it needs its own panic handler.
fn run_program() -> Outcome {
    // In its own directory, so that cargo finds its configuration.
    cargo_with("run", |command| {
        command.current_dir(step::root().join("dev/bare"));
    })
}

fn check_target(target: &str) -> Outcome {
    let check = format!("check --package everlink --lib --no-default-features --target {target}");
    cargo(&check)?;
    if WITHOUT_SWAP.contains(&target) {
        // The library asserts that its machines are `Send` with this feature. portable-atomic must be told how to do without
        // compare-and-swap: an application has a critical section for that, and a library has not.
        cargo_with(&format!("{check} --features portable-atomic"), |command| {
            command.env(
                "RUSTFLAGS",
                "--cfg portable_atomic_unsafe_assume_single_core",
            );
        })?;
    }
    Ok(Done::Passed)
}

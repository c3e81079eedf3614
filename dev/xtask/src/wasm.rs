//! `cargo xtask wasm`: builds `examples/wasm`, and runs its check in Node. Must not depend on what the script checks.

use std::fs;
use std::process::Command;

use crate::install::{run_command, rust_target, skip_without, skipped};
use crate::step::{Outcome, cargo_with, root, target};

const TARGET: &str = "wasm32-unknown-unknown";
/// The limit for the bytes of the module, so that growth is noticed.
const MAX_BYTES: u64 = 550_000;

/// Fails if the module is too large, or if its link does not survive the death of a server.
pub(crate) fn check() -> Outcome {
    if let Some(without_node) = skip_without(&["node"]) {
        return without_node;
    }
    if !rust_target(TARGET) {
        return skipped(&format!("the target {TARGET}"));
    }
    let directory = root().join("examples/wasm");
    for command in [
        "fmt --check",
        "clippy --locked --release -- --deny warnings",
        "build --locked --release",
    ] {
        cargo_with(command, |command| {
            // cargo finds the target in the configuration of this directory.
            command
                .current_dir(&directory)
                .env("CARGO_TARGET_DIR", target());
        })?;
    }
    let module = target().join(TARGET).join("release/everlink_wasm.wasm");
    let bytes = fs::metadata(&module)
        .map_err(|error| format!("{} cannot be looked at: {error}", module.display()))?
        .len();
    if bytes > MAX_BYTES {
        return Err(format!(
            "the module has {bytes} bytes, of at most {MAX_BYTES}"
        ));
    }
    run_command(
        Command::new("node")
            .arg(directory.join("check.mjs"))
            .arg(&module),
    )
}

//! `cargo xtask wasm`: builds `examples/wasm`, and runs its check in Node. Must not depend on what the script checks.

use anyhow::{Result, ensure};
use fs_err as fs;
use xshell::cmd;

use crate::install::{need_programs, need_target};
use crate::step::{cargo_in, shell, target};

const TARGET: &str = "wasm32-unknown-unknown";
/// The limit for the bytes of the module, so that growth is noticed.
const MAX_BYTES: u64 = 550_000;

/// Fails if the module is too large, or if its link does not survive the death of a server.
pub(crate) fn check() -> Result<()> {
    need_programs(&["node"])?;
    need_target(TARGET)?;
    // cargo finds the target in the configuration of this directory.
    let shell = shell()?;
    shell.change_dir("examples/wasm");
    for command in [
        "fmt --check",
        "clippy --locked --release -- --deny warnings",
        "build --locked --release",
    ] {
        let cargo = cargo_in(&shell, command);
        cargo.env("CARGO_TARGET_DIR", target()).run()?;
    }
    let module = target().join(TARGET).join("release/everlink_wasm.wasm");
    let bytes = fs::metadata(&module)?.len();
    ensure!(
        bytes <= MAX_BYTES,
        "the module has {bytes} bytes, of at most {MAX_BYTES}"
    );
    Ok(cmd!(shell, "node check.mjs {module}").run()?)
}

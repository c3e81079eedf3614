//! `cargo xtask msrv`: builds all published packages with the minimum supported compiler. Installs no compiler.

use std::env;

use anyhow::{Context as _, Result, ensure};
use xshell::cmd;

use crate::step::{self, LIBRARIES, Step, cargo_in, packages, shell};

/// The `rust-version` of the workspace.
const MSRV: &str = env!("CARGO_PKG_RUST_VERSION");

/// The environment variable with the path of the compiler.
const RUSTC_VARIABLE: &str = "EVERLINK_MSRV_RUSTC";

const STEPS: &[Step] = &[
    ("the compiler is the promised one", version),
    ("the library with std", || {
        build("--package everlink --lib --all-features")
    }),
    ("the library without std", || {
        build("--package everlink --lib --no-default-features")
    }),
    ("the adapters", || {
        let adapters = packages(&LIBRARIES[1..]);
        build(&format!("{adapters} --lib --all-features"))
    }),
    ("the program", || build("--package everlink-cli")),
];

pub(crate) fn run() -> Result<()> {
    step::run_all(STEPS)
}

fn version() -> Result<()> {
    let (shell, rustc) = (shell()?, compiler()?);
    let version = cmd!(shell, "{rustc} --version").read()?;
    eprintln!("{version}");
    ensure!(
        is_msrv(&version),
        "{RUSTC_VARIABLE} must name a rustc {MSRV}"
    );
    Ok(())
}

fn build(packages: &str) -> Result<()> {
    let build = format!("build {packages}");
    Ok(cargo_in(&shell()?, &build)
        .env("RUSTC", compiler()?)
        .run()?)
}

fn compiler() -> Result<String> {
    env::var(RUSTC_VARIABLE).with_context(|| {
        format!(
            "set {RUSTC_VARIABLE} to the path of a rustc {MSRV}; with rustup:\n\n  \
             rustup toolchain install {MSRV} --profile minimal\n  \
             {RUSTC_VARIABLE}=$(rustup which --toolchain {MSRV} rustc) cargo xtask msrv\n\n"
        )
    })
}

/// Whether `rustc --version` prints the promised version, with any patch level.
fn is_msrv(version: &str) -> bool {
    version
        .strip_prefix("rustc ")
        .and_then(|rest| rest.strip_prefix(MSRV))
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{MSRV, is_msrv};

    #[test]
    fn only_the_msrv_with_any_patch_level_is_accepted() {
        assert!(is_msrv(&format!("rustc {MSRV}.1 (0123abc 2025-01-01)")));
        assert!(!is_msrv(&format!("rustc {MSRV}0.1 (0123abc 2025-01-01)")));
        assert!(!is_msrv("rustc 1.0.0"));
        assert!(!is_msrv(""));
    }
}

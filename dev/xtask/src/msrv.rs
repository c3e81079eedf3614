//! `cargo xtask msrv`: all that is published builds with the compiler it promises to. Installs no compiler.

use std::env;
use std::process::Command;

use crate::step::{self, Done, Outcome, Step, cargo_with};

/// The `rust-version` of the workspace.
const MSRV: &str = env!("CARGO_PKG_RUST_VERSION");

/// The environment variable that holds the path of the compiler.
const VARIABLE: &str = "EVERLINK_MSRV_RUSTC";

const STEPS: &[Step] = &[
    ("the compiler is the promised one", version),
    ("the library with std", || {
        build("--package everlink --lib --all-features")
    }),
    ("the library without std", || {
        build("--package everlink --lib --no-default-features")
    }),
    ("the adapters", || {
        build(
            "--package everlink-handle --package everlink-stdio --package everlink-http --package everlink-tokio \
             --lib --all-features",
        )
    }),
    ("the program", || build("--package everlink-cli")),
];

pub(crate) fn run() -> Result<(), String> {
    step::run_all(STEPS)
}

fn version() -> Outcome {
    let rustc = compiler()?;
    let output = Command::new(&rustc)
        .arg("--version")
        .output()
        .map_err(|error| format!("`{rustc}` could not start: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout);
    eprintln!("{}", version.trim_end());
    if is_promised(&version) {
        Ok(Done::Passed)
    } else {
        Err(format!("{VARIABLE} must name a rustc {MSRV}"))
    }
}

fn build(what: &str) -> Outcome {
    let rustc = compiler()?;
    let arguments = format!("build {what}");
    cargo_with(&arguments, |command| {
        command.env("RUSTC", rustc);
    })
}

fn compiler() -> Result<String, String> {
    env::var(VARIABLE).map_err(|_| {
        format!(
            "set {VARIABLE} to the path of a rustc {MSRV}; with rustup:\n\n  \
             rustup toolchain install {MSRV} --profile minimal\n  \
             {VARIABLE}=$(rustup which --toolchain {MSRV} rustc) cargo xtask msrv"
        )
    })
}

/// Whether `rustc --version` names the promised version, at any patch level.
fn is_promised(version: &str) -> bool {
    version
        .strip_prefix("rustc ")
        .and_then(|rest| rest.strip_prefix(MSRV))
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{MSRV, is_promised};

    #[test]
    fn only_the_promised_version_is_taken() {
        assert!(is_promised(&format!("rustc {MSRV}.1 (0123abc 2025-01-01)")));
        assert!(!is_promised(&format!(
            "rustc {MSRV}0.1 (0123abc 2025-01-01)"
        )));
        assert!(!is_promised("rustc 1.0.0"));
        assert!(!is_promised(""));
    }
}

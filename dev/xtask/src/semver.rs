//! `cargo xtask semver`: compares the API of all published libraries with the last release. Must not publish anything.

use std::process::Command;

use crate::install::{run_command, rust_program};
use crate::step::{Done, Outcome, root};

/// The program that compares. It is installed if it is missing.
const SEMVER_CHECKS: (&str, &str) = ("cargo-semver-checks", "0.51.0");

/// The published libraries.
const LIBRARIES: &[&str] = &[
    "everlink",
    "everlink-handle",
    "everlink-stdio",
    "everlink-http",
    "everlink-redis",
    "everlink-auth",
    "everlink-tokio",
    "everlink-types",
    "everlink-tools",
    "everlink-driver-tests",
];

/// Fails if a change needs another version number than the manifest has.
pub(crate) fn check() -> Outcome {
    let Some(release) = last_release() else {
        let reason = "there is no release to compare with: no tag begins with `v`";
        return Ok(Done::Skipped(reason.into()));
    };
    let (name, version) = SEMVER_CHECKS;
    let mut command = Command::new(rust_program(name, version)?);
    command.args(["semver-checks", "--baseline-rev", &release]);
    for library in LIBRARIES {
        command.args(["--package", library]);
    }
    run_command(command.current_dir(root()))
}

/// The newest tag of a release before this commit.
fn last_release() -> Option<String> {
    let output = Command::new("git")
        .args(["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD"])
        .current_dir(root())
        .output()
        .ok()?;
    let tag = String::from_utf8(output.stdout).ok()?;
    let tag = tag.trim();
    (output.status.success() && !tag.is_empty()).then(|| tag.to_owned())
}

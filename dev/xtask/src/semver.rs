//! `cargo xtask semver`: compares the API of all published libraries with the last release. Must not publish anything.

use std::process::Command;

use crate::install::missing_program;
use crate::step::{Done, Outcome, cargo, has_cargo, root};

/// The published libraries.
const LIBRARIES: &[&str] = &[
    "everlink",
    "everlink-handle",
    "everlink-stdio",
    "everlink-http",
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
    if !has_cargo("semver-checks") {
        return missing_program("cargo-semver-checks");
    }
    let packages: Vec<String> = LIBRARIES
        .iter()
        .map(|name| format!("--package {name}"))
        .collect();
    let packages = packages.join(" ");
    cargo(&format!(
        "semver-checks {packages} --baseline-rev {release}"
    ))
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

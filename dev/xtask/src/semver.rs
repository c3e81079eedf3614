//! `cargo xtask semver`: compares the API of all published libraries with the last release. Must not publish anything.

use anyhow::Result;
use xshell::cmd;

use crate::install::rust_program;
use crate::step::{LIBRARIES, shell, skip};

/// The program that compares. It is installed if it is missing.
const SEMVER_CHECKS: (&str, &str) = ("cargo-semver-checks", "0.51.0");

/// Fails if the changes since the last release need a higher version number than the manifest has.
pub(crate) fn check() -> Result<()> {
    let shell = shell()?;
    // The newest tag of a release before this commit: a release itself is compared with the one before it.
    let release = cmd!(shell, "git describe --tags --abbrev=0 --match v* HEAD^").read();
    let release =
        release.map_err(|_| skip("there is no release to compare with: no tag begins with `v`"))?;
    let program = rust_program(SEMVER_CHECKS)?;
    let packages = LIBRARIES.iter().flat_map(|library| ["--package", library]);
    Ok(cmd!(
        shell,
        "{program} semver-checks --baseline-rev {release} {packages...}"
    )
    .run()?)
}

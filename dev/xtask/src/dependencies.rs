//! Checks the dependencies of the library and of the published packages. Must not judge the tools and tests of the project.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::Value;
use xshell::cmd;

use crate::install::rust_program;
use crate::step::{self, cargo_in, check_none, shell, skip};

/// Has a note on each package that a published package names.
const NOTES: &str = "docs/DEPENDENCIES.md";

/// Checks licences, sources and advisories.
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// All packages that a build of the library may contain. A new name is a decision, not an accident.
const ALLOWED: &[&str] = &[
    "everlink",
    "itoa",
    "memchr",
    // Only with the feature `portable-atomic`, and only on targets without atomic compare-and-swap.
    "portable-atomic",
    "portable-atomic-util",
    "proc-macro2",
    "quote",
    "ryu",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_json",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "zmij",
];

/// Fails with the name of every unexpected package in the library's dependency tree.
pub(crate) fn check() -> Result<()> {
    let tree =
        "tree --package everlink --edges normal,build --all-features --target all --prefix none";
    let tree = cargo_in(&shell()?, tree).read()?;
    let unexpected = unexpected(&tree);
    ensure!(
        unexpected.is_empty(),
        "the library now depends on {}; if that is meant, add it to ALLOWED in {}",
        unexpected.join(", "),
        file!()
    );
    Ok(())
}

/// Runs all checks. Fails if the database of known defects cannot be reached.
pub(crate) fn run() -> Result<()> {
    let advisories = || deny("check advisories");
    [check, check_notes, check_licences, advisories]
        .into_iter()
        .try_for_each(step::run_one)
}

/// Fails if a dependency of a published package has no note, or if a note is about no dependency.
pub(crate) fn check_notes() -> Result<()> {
    let metadata = cargo_in(&shell()?, "metadata --format-version 1 --no-deps").read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    check_none(&note_flaws(&metadata, &step::read(NOTES)?))
}

/// Fails if a package has a licence or a source that `deny.toml` does not allow.
pub(crate) fn check_licences() -> Result<()> {
    deny("check bans licenses sources")
}

/// Fails if a package has a known defect. Without a network there is no database to compare with, and the step is skipped.
pub(crate) fn check_advisories() -> Result<()> {
    deny("fetch db").map_err(|_| {
        skip("the database of RustSec cannot be reached; `cargo xtask dependencies --check` insists on it")
    })?;
    deny("check advisories")
}

/// Runs `cargo-deny` with these arguments. It is installed if it is missing.
fn deny(arguments: &str) -> Result<()> {
    let (shell, program) = (shell()?, rust_program(CARGO_DENY)?);
    let deny = cmd!(shell, "{program}");
    Ok(deny.args(arguments.split_whitespace()).run()?)
}

/// Compares the dependencies of the published packages, tests aside, with the first column of the tables in the notes.
fn note_flaws(metadata: &Value, notes: &str) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]).into_iter();
    let published = packages.filter(|package| package["publish"].is_null());
    let dependencies = published.flat_map(|package| list(&package["dependencies"]));
    let used: BTreeSet<String> = dependencies
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
        .filter(|name| !name.starts_with("everlink"))
        .collect();
    let cells = notes.lines().filter_map(|line| line.strip_prefix("| `"));
    let noted: BTreeSet<String> = cells
        .filter_map(|line| Some(line.split_once('`')?.0.to_owned()))
        .collect();
    let missing = used.difference(&noted);
    let missing = missing.map(|name| format!("{NOTES} has no note on {name}"));
    let unused = noted.difference(&used);
    let unused =
        unused.map(|name| format!("{NOTES} has a note on {name}, which no package depends on"));
    missing.chain(unused).collect()
}

/// The packages of a `cargo tree` without prefixes that are not allowed.
fn unexpected(tree: &str) -> Vec<&str> {
    let names = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let names: BTreeSet<&str> = names.filter(|name| !ALLOWED.contains(name)).collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{note_flaws, unexpected};

    #[test]
    fn dependency_without_a_note_and_note_without_a_dependency_are_flaws() {
        let metadata = json!({"packages": [
            {"publish": null, "dependencies": [
                {"name": "serde", "kind": null},
                {"name": "cc", "kind": "build"},
                {"name": "proptest", "kind": "dev"},
                {"name": "everlink-handle", "kind": null},
            ]},
            {"publish": [], "dependencies": [{"name": "clap", "kind": null}]},
        ]});
        let notes = "| package | for |\n|---|---|\n| `serde` | values |\n| `rand` | dice |\n";
        let flaws = note_flaws(&metadata, notes);
        assert_eq!(flaws.len(), 2, "{flaws:?}");
        assert!(flaws[0].ends_with("has no note on cc"), "{flaws:?}");
        assert!(flaws[1].contains("a note on rand"), "{flaws:?}");
    }

    #[test]
    fn a_tree_of_allowed_packages_passes() {
        let tree = "everlink v0.1.0 (/src)\nserde v1.0.0\nserde_core v1.0.0\n\nserde v1.0.0 (*)\n";
        assert!(unexpected(tree).is_empty());
    }

    #[test]
    fn each_unexpected_package_is_named_once() {
        let tree = "everlink v0.1.0\ntokio v1.0.0\nserde v1.0.0\nrand v0.9.0\ntokio v1.0.0 (*)\n";
        assert_eq!(unexpected(tree), ["rand", "tokio"]);
    }
}

//! Checks the dependencies of the library. Must not judge the tools and tests of the project.

use crate::step::{Done, Outcome, cargo_output};

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
pub(crate) fn check() -> Outcome {
    let tree = cargo_output(
        "tree --package everlink --edges normal,build --all-features --target all --prefix none",
    )?;
    let unexpected = unexpected(&tree);
    if unexpected.is_empty() {
        return Ok(Done::Passed);
    }
    Err(format!(
        "the library now depends on {}; if that is meant, add it to ALLOWED in {}",
        unexpected.join(", "),
        file!()
    ))
}

/// The packages of a `cargo tree` without prefixes that are not allowed.
fn unexpected(tree: &str) -> Vec<&str> {
    let mut names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| !ALLOWED.contains(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::unexpected;

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

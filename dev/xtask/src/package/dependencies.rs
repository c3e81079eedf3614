//! Lists the packages that are linked into the program for a target, from what cargo says about them. Must not decide what is done with the list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::step::{self, cargo_in, shell};

/// The package of the program.
const PROGRAM: &str = "everlink-cli";

/// A package that is linked into the program.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) name: String,
    pub(super) version: String,
    /// As an SPDX expression.
    pub(super) licence: String,
    pub(super) repository: Option<String>,
    /// The SHA-256 of the published package. `None` for packages of this project.
    pub(super) checksum: Option<String>,
    /// The directory of its source.
    pub(super) directory: PathBuf,
    /// The indices of the packages that it depends on.
    pub(super) dependencies: Vec<usize>,
}

impl Linked {
    /// Whether the package belongs to this project.
    pub(super) fn is_ours(&self) -> bool {
        self.checksum.is_none()
    }

    /// Whether this is the package of the program itself.
    pub(super) fn is_program(&self) -> bool {
        self.name == PROGRAM
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

#[derive(Deserialize)]
struct LockFile {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The packages that are linked into the program for this target, sorted by name and version.
pub(super) fn linked(target: &str) -> Result<Vec<Linked>> {
    let shell = shell()?;
    // Unlike the metadata, the tree has the features of the program alone. Procedural macros run during the build only.
    let tree = format!(
        "tree --locked --quiet --package {PROGRAM} --edges normal,no-proc-macro --target {target} --prefix none --format {{p}}"
    );
    let tree = cargo_in(&shell, &tree).read()?;
    let metadata =
        format!("metadata --locked --quiet --format-version 1 --filter-platform {target}");
    let metadata: Metadata = serde_json::from_str(&cargo_in(&shell, &metadata).read()?)?;
    let lock: LockFile = toml::from_str(&step::read("Cargo.lock")?)?;
    select(&names_in(&tree), metadata, lock)
}

/// The names and versions in a tree without prefixes, whose lines begin with `name v1.2.3`.
fn names_in(tree: &str) -> BTreeSet<(&str, &str)> {
    tree.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            Some((name, words.next()?.strip_prefix('v')?))
        })
        .collect()
}

fn select(
    names: &BTreeSet<(&str, &str)>,
    metadata: Metadata,
    lock: LockFile,
) -> Result<Vec<Linked>> {
    let mut packages = metadata.packages;
    packages.retain(|package| names.contains(&(package.name.as_str(), package.version.as_str())));
    packages.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    ensure!(
        packages.len() == names.len(),
        "the tree of cargo has {} packages, and its metadata describes {} of them",
        names.len(),
        packages.len()
    );
    let places = packages.iter().enumerate();
    let places: BTreeMap<&str, usize> = places
        .map(|(place, package)| (package.id.as_str(), place))
        .collect();
    let linked = packages.iter().map(|package| {
        let Package {
            name,
            version,
            manifest_path,
            ..
        } = package;
        let licence = package.license.as_ref();
        let licence = licence.with_context(|| format!("the package {name} names no licence"))?;
        let mut locked = lock.package.iter();
        let locked = locked.find(|locked| locked.name == *name && locked.version == *version);
        let mut nodes = metadata.resolve.nodes.iter();
        let node = nodes.find(|node| node.id == package.id);
        let ids = node.into_iter().flat_map(|node| &node.dependencies);
        let dependencies = ids.filter_map(|id| places.get(id.as_str()).copied());
        // In their order.
        let dependencies: BTreeSet<usize> = dependencies.collect();
        Ok(Linked {
            name: name.clone(),
            version: version.clone(),
            // The old way to write an alternative.
            licence: licence.replace('/', " OR ").replace("  ", " "),
            repository: package.repository.clone(),
            checksum: locked.and_then(|locked| locked.checksum.clone()),
            directory: manifest_path
                .parent()
                .map(PathBuf::from)
                .unwrap_or_default(),
            dependencies: dependencies.into_iter().collect(),
        })
    });
    linked.collect()
}

#[cfg(test)]
mod tests {
    use super::{LockFile, Metadata, names_in, select};

    const METADATA: &str = r#"{
        "packages": [
            {"id": "b", "name": "beta", "version": "2.0.0", "license": "MIT/Apache-2.0", "repository": null, "manifest_path": "/src/beta/Cargo.toml"},
            {"id": "a", "name": "alpha", "version": "1.0.0", "license": "MIT", "repository": null, "manifest_path": "/src/alpha/Cargo.toml"},
            {"id": "c", "name": "macros", "version": "3.0.0", "license": "MIT", "repository": null, "manifest_path": "/src/c/Cargo.toml"}
        ],
        "resolve": {"nodes": [{"id": "a", "dependencies": ["b", "c"]}, {"id": "b", "dependencies": []}]}
    }"#;

    const LOCK: &str = "[[package]]\nname = \"alpha\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"beta\"\nversion = \"2.0.0\"\nchecksum = \"77\"\n";

    fn parsed() -> (Metadata, LockFile) {
        let metadata = serde_json::from_str(METADATA).expect("it is metadata");
        (metadata, toml::from_str(LOCK).expect("it is a lock file"))
    }

    #[test]
    fn only_packages_of_the_tree_are_linked() {
        let names = names_in("alpha v1.0.0 (/src/alpha)\nbeta v2.0.0\nbeta v2.0.0 (*)\n");
        let (metadata, lock) = parsed();
        let linked = select(&names, metadata, lock).expect("all are known");
        let names: Vec<&str> = linked.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["alpha", "beta"]);
        assert_eq!(linked[0].dependencies, [1]);
        assert!(linked[0].is_ours() && !linked[1].is_ours());
        assert_eq!(linked[1].licence, "MIT OR Apache-2.0");
    }

    #[test]
    fn a_package_without_metadata_is_an_error() {
        let (metadata, lock) = parsed();
        let names = names_in("gamma v1.0.0\n");
        assert!(select(&names, metadata, lock).is_err());
    }
}

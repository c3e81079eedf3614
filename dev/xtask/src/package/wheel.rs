//! Packs the program and the Python package into a wheel, as the "Binary distribution format" of the Python Packaging User Guide describes it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::archive::{self, Entry, sha256};
use super::{Contents, File, REPOSITORY, VERSION, sources};
use crate::step::{read, root};

/// The directory of the Python package.
const DIRECTORY: &str = "cli/packages/python";

#[derive(Deserialize)]
struct Manifest {
    project: Project,
}

/// The part of `pyproject.toml` that the metadata of the wheel repeats.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Project {
    name: String,
    version: Option<String>,
    description: String,
    readme: String,
    requires_python: String,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    classifiers: Vec<String>,
    #[serde(default)]
    urls: BTreeMap<String, String>,
    #[serde(default)]
    dependencies: Vec<String>,
    #[serde(default)]
    optional_dependencies: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    scripts: BTreeMap<String, String>,
}

/// The wheel with these contents.
pub(super) fn pack(contents: &Contents) -> Result<File> {
    let directory = root().join(DIRECTORY);
    let manifest: Manifest = toml::from_str(&read(directory.join("pyproject.toml"))?)?;
    let project = manifest.project;
    let version = python_version(VERSION);
    ensure!(
        project.version.as_ref().is_none_or(|own| *own == version),
        "{DIRECTORY}/pyproject.toml has another version than {version}; make it dynamic"
    );
    ensure!(
        project.scripts.is_empty(),
        "{DIRECTORY}/pyproject.toml has scripts, and the wheel has the program in their place"
    );
    let readme = read(directory.join(&project.readme))?;
    let (name, program) = (&project.name, contents.platform.program());
    let info = format!("{name}-{version}.dist-info");
    let in_info = |path: &str| format!("{info}/{path}");
    let is_source = |path: &str| !path.contains("__pycache__/") && !path.contains(".egg-info/");
    let sources = sources(&directory.join("src"))?.into_iter();
    let sources = sources.filter(|(path, _)| is_source(path));
    let mut entries: Vec<Entry> = sources
        .map(|(path, bytes)| Entry::new(path, bytes))
        .collect();
    let script = format!("{name}-{version}.data/scripts/{program}");
    entries.push(Entry::executable(script, contents.program.clone()));
    entries.extend(contents.licences.iter().map(|licence| Entry {
        path: in_info(&format!("licenses/{}", licence.path)),
        ..licence.clone()
    }));
    let tags = &contents.wheel_tags;
    let (sbom, metadata) = (
        contents.sbom.clone(),
        metadata(&project, &version, contents, &readme),
    );
    entries.extend([
        Entry::new(in_info("sboms/everlink.cyclonedx.json"), sbom),
        Entry::new(in_info("METADATA"), metadata),
        Entry::new(in_info("WHEEL"), wheel(tags)),
    ]);
    entries.push(Entry::new(in_info("RECORD"), record(&entries, &info)));
    Ok(File {
        name: format!("{name}-{version}-py3-none-{}.whl", tags.join(".")),
        bytes: archive::zip(&entries, contents.effort)?,
    })
}

fn metadata(project: &Project, version: &str, contents: &Contents, readme: &str) -> String {
    let mut out = String::from("Metadata-Version: 2.4\n");
    let mut line = |key: &str, value: &str| {
        out += &format!("{key}: {value}\n");
    };
    line("Name", &project.name);
    line("Version", version);
    line("Summary", &project.description);
    if !project.keywords.is_empty() {
        line("Keywords", &project.keywords.join(","));
    }
    line("License-Expression", env!("CARGO_PKG_LICENSE"));
    for licence in &contents.licences {
        line("License-File", &licence.path);
    }
    for classifier in &project.classifiers {
        line("Classifier", classifier);
    }
    line("Project-URL", &format!("Repository, {REPOSITORY}"));
    for (label, url) in &project.urls {
        line("Project-URL", &format!("{label}, {url}"));
    }
    line("Requires-Python", &project.requires_python);
    for needed in &project.dependencies {
        line("Requires-Dist", needed);
    }
    for (extra, packages) in &project.optional_dependencies {
        line("Provides-Extra", extra);
        for needed in packages {
            line("Requires-Dist", &with_extra(needed, extra));
        }
    }
    line("Description-Content-Type", "text/markdown");
    out + "\n" + readme
}

/// A requirement that counts only with this extra.
fn with_extra(needed: &str, extra: &str) -> String {
    match needed.split_once(';') {
        Some((package, marker)) => {
            let (package, marker) = (package.trim(), marker.trim());
            format!("{package} ; ({marker}) and extra == '{extra}'")
        }
        None => format!("{needed} ; extra == '{extra}'"),
    }
}

fn wheel(tags: &[String]) -> String {
    let mut out =
        format!("Wheel-Version: 1.0\nGenerator: everlink {VERSION}\nRoot-Is-Purelib: false\n");
    for tag in tags {
        out += &format!("Tag: py3-none-{tag}\n");
    }
    out
}

/// The list of all files with their hashes. It cannot contain its own.
fn record(entries: &[Entry], info: &str) -> String {
    let mut out = String::new();
    for Entry { path, bytes, .. } in entries {
        let hash = URL_SAFE_NO_PAD.encode(sha256(bytes));
        out += &format!("{path},sha256={hash},{}\n", bytes.len());
    }
    out + &format!("{info}/RECORD,,\n")
}

/// A version of cargo as Python writes it.
fn python_version(version: &str) -> String {
    let short = [("-alpha.", "a"), ("-beta.", "b"), ("-rc.", "rc")];
    short
        .iter()
        .fold(version.to_owned(), |version, (long, short)| {
            version.replace(long, short)
        })
}

#[cfg(test)]
mod tests {
    use super::{Entry, python_version, record, with_extra};

    #[test]
    fn versions_are_written_as_python_does() {
        assert_eq!(python_version("1.2.3"), "1.2.3");
        assert_eq!(python_version("1.2.3-rc.1"), "1.2.3rc1");
    }

    #[test]
    fn record_has_the_hash_without_padding_and_not_its_own() {
        let text = record(&[Entry::new("a", "")], "info");
        let hash = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
        assert_eq!(text, format!("a,sha256={hash},0\ninfo/RECORD,,\n"));
    }

    #[test]
    fn an_extra_is_joined_to_a_marker() {
        assert_eq!(with_extra("mcp>=1.26", "mcp"), "mcp>=1.26 ; extra == 'mcp'");
        let joined = with_extra("trio; python_version > '3.9'", "trio");
        assert_eq!(
            joined,
            "trio ; (python_version > '3.9') and extra == 'trio'"
        );
    }
}

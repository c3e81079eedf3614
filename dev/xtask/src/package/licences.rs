//! Collects the licence texts of all code in the program: this project's, those of its dependencies, and those of the compiler's libraries.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::Entry;
use super::dependencies::Linked;
use super::platform::Platform;
use crate::step;

/// The files of this project.
const OURS: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The name of the file with the texts of others.
const THIRD_PARTY: &str = "THIRD-PARTY-LICENSES.txt";

/// The beginnings of the names of files with a licence or a notice, in capital letters.
const BEGINNINGS: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "UNLICENSE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
];

/// The file of the compiler with the notices of its standard library.
const STANDARD_LIBRARY: &str = "share/doc/rust/COPYRIGHT-library.html";

/// The licence files for the program of this platform.
pub(super) fn entries(platform: &Platform, packages: &[Linked]) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for name in OURS {
        entries.push(Entry::new(name, step::read(name)?));
    }
    entries.push(Entry::new(THIRD_PARTY, third_party(platform, packages)?));
    let library = sysroot()?.join(STANDARD_LIBRARY);
    let text = step::read(&library)?;
    entries.push(Entry::new("RUST-STANDARD-LIBRARY.html", text));
    Ok(entries)
}

fn third_party(platform: &Platform, packages: &[Linked]) -> Result<String, String> {
    // Equal texts are printed once. The order is that of the first package with the text.
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for package in packages.iter().filter(|package| !package.is_ours()) {
        for (file, text) in texts_of(package)? {
            let place = *places.entry(text.clone()).or_insert_with(|| {
                texts.push((text, Vec::new()));
                texts.len() - 1
            });
            let user = format!("{} {} ({file})", package.name, package.version);
            texts[place].1.push(user);
        }
    }
    if let Some((library, file)) = c_library(platform) {
        let text = step::read(format!("cli/packages/licences/{file}"))?;
        texts.push((text, vec![library.to_owned()]));
    }
    let mut out = format!(
        "Licences of the code of others in the program `everlink` for {}\n\n\
         The notices of Rust's standard library are in RUST-STANDARD-LIBRARY.html.\n\n",
        platform.name()
    );
    for package in packages.iter().filter(|package| !package.is_ours()) {
        let _ = writeln!(
            out,
            "{} {}: {}",
            package.name, package.version, package.licence
        );
    }
    for (text, users) in texts {
        let line = "=".repeat(80);
        let _ = write!(out, "\n{line}\n{}\n{line}\n\n{text}\n", users.join("\n"));
    }
    Ok(out)
}

/// The C library that is linked into the program of this platform, and the file with its licence.
fn c_library(platform: &Platform) -> Option<(&'static str, &'static str)> {
    match platform.os {
        "linux" => Some(("musl, the C library", "musl.txt")),
        "win32" => Some(("mingw-w64, the runtime library", "mingw-w64.txt")),
        _ => None,
    }
}

/// The licence files of a package, sorted by name. An error if there is none, unless the text of its licence is the same for all.
fn texts_of(package: &Linked) -> Result<Vec<(String, String)>, String> {
    let failed = |error| format!("{} cannot be read: {error}", package.directory.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&package.directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() && is_licence(&path) {
            files.push(path);
        }
    }
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = step::read(&file)?.replace("\r\n", "\n");
        texts.push((name.into_owned(), text.trim_end().to_owned()));
    }
    if texts.is_empty() {
        texts.push((
            "the package has no licence file".to_owned(),
            common_text(&package.licence).ok_or_else(|| {
                format!(
                    "the package {} has no licence file, and its licence is {}",
                    package.name, package.licence
                )
            })?,
        ));
    }
    Ok(texts)
}

/// The text for a licence without a name of its owner in it.
fn common_text(licence: &str) -> Option<String> {
    let offers_apache = licence.split(" OR ").any(|one| one == "Apache-2.0");
    offers_apache.then(|| "Apache License, Version 2.0: see LICENSE-APACHE".to_owned())
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_uppercase();
    BEGINNINGS
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// The directory of the compiler.
fn sysroot() -> Result<PathBuf, String> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .map_err(|error| format!("`rustc` could not start: {error}"))?;
    Ok(PathBuf::from(
        String::from_utf8_lossy(&output.stdout).trim(),
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{common_text, is_licence};

    #[test]
    fn licence_files_are_known_by_their_names() {
        for name in ["LICENSE-MIT", "license.txt", "COPYING", "LICENSE-BoringSSL"] {
            assert!(is_licence(Path::new(name)), "{name}");
        }
        assert!(!is_licence(Path::new("README.md")));
    }

    #[test]
    fn only_apache_has_a_text_for_all() {
        assert!(common_text("MIT OR Apache-2.0").is_some());
        assert!(common_text("ISC").is_none());
    }
}

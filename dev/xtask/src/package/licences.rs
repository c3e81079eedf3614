//! Collects the licence texts of all code in the program: this project's, those of its dependencies, and those of the compiler's libraries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::cmd;

use super::archive::Entry;
use super::dependencies::Linked;
use super::platform::Platform;
use crate::step::{read, shell};

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
pub(super) fn entries(platform: &Platform, packages: &[Linked]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for name in OURS {
        entries.push(Entry::new(name, read(name)?));
    }
    entries.push(Entry::new(THIRD_PARTY, third_party(platform, packages)?));
    let shell = shell()?;
    let sysroot = PathBuf::from(cmd!(shell, "rustc --print sysroot").read()?);
    let text = read(sysroot.join(STANDARD_LIBRARY))?;
    entries.push(Entry::new("RUST-STANDARD-LIBRARY.html", text));
    Ok(entries)
}

fn third_party(platform: &Platform, packages: &[Linked]) -> Result<String> {
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
        let text = read(format!("cli/packages/licences/{file}"))?;
        texts.push((text, vec![library.to_owned()]));
    }
    let mut out = format!(
        "Licences of the code of others in the program `everlink` for {}\n\n\
         The notices of Rust's standard library are in RUST-STANDARD-LIBRARY.html.\n\n",
        platform.name()
    );
    for package in packages.iter().filter(|package| !package.is_ours()) {
        let Linked {
            name,
            version,
            licence,
            ..
        } = package;
        out += &format!("{name} {version}: {licence}\n");
    }
    for (text, users) in texts {
        let line = "=".repeat(80);
        out += &format!("\n{line}\n{}\n{line}\n\n{text}\n", users.join("\n"));
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
fn texts_of(package: &Linked) -> Result<Vec<(String, String)>> {
    let files = fs_err::read_dir(&package.directory)?
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files
        .filter(|file| file.is_file() && is_licence(file))
        .collect();
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = read(&file)?.replace("\r\n", "\n");
        texts.push((name.into_owned(), text.trim_end().to_owned()));
    }
    if texts.is_empty() {
        let Linked { name, licence, .. } = package;
        let text = common_text(licence).with_context(|| {
            format!("the package {name} has no licence file, and its licence is {licence}")
        })?;
        texts.push(("the package has no licence file".to_owned(), text));
    }
    Ok(texts)
}

/// Returns a text for a licence whose text names no owner, and so is the same for every package. Only Apache-2.0 is known.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{common_text, is_licence};

    #[test]
    fn licence_files_are_recognised_by_name() {
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

//! Checks the public pages: rustdoc has no warning, and no page cites a row of `requirements.tsv` by its id, which means nothing to a user.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::coverage::scan::ids;
use crate::step::{LIBRARIES, PROGRAM, cargo_in, files, packages, read, shell, target};

/// The pages of all packages that we publish are in directories that begin like this.
const PREFIX: &str = "everlink";

/// Checks the pages of what we publish.
pub(crate) fn check() -> Result<()> {
    document(&packages(&[&LIBRARIES[..], &[PROGRAM]].concat()))?;
    let citing = citing(&target().join("doc"))?;
    ensure!(
        citing.is_empty(),
        "these public pages cite ids (delete a page whose item is gone):\n{}",
        citing.join("\n")
    );
    Ok(())
}

/// Checks the pages of everything, the tools included.
pub(crate) fn check_all() -> Result<()> {
    document("--workspace")
}

fn document(packages: &str) -> Result<()> {
    let command = format!("doc {packages} --all-features --no-deps");
    Ok(cargo_in(&shell()?, &command)
        .env("RUSTDOCFLAGS", "--deny warnings")
        .run()?)
}

/// A line for each page of a published package that cites an id.
fn citing(pages: &Path) -> Result<Vec<String>> {
    let directory = pages.strip_prefix(crate::step::root()).unwrap_or(pages);
    let mut citing = Vec::new();
    for path in files(pages, ".html")? {
        let inner = path.strip_prefix(directory).unwrap_or(&path).components();
        let package = inner.clone().next().map(|first| first.as_os_str());
        let is_public = package.is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if !is_public || inner.count() < 2 {
            continue;
        }
        let page = read(&path)?;
        let cited: Vec<&str> = ids(&page).collect();
        if !cited.is_empty() {
            citing.push(format!("{}: {}", path.display(), cited.join(" ")));
        }
    }
    Ok(citing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn pages_with_ids_are_listed_and_other_files_are_not() {
        let directory = std::env::temp_dir().join(format!("xtask-pages-{}", std::process::id()));
        let inner = directory.join("everlink/client");
        fs::create_dir_all(&inner).expect("the directory is writable");
        for (name, text) in [
            (
                "everlink/client/struct.A.html",
                "<p>cannot be forged (S-MRTR-15).</p>",
            ),
            ("everlink/index.html", "<p>RFC 9110, UTF-8, ISO-8859-1</p>"),
            ("everlink/search.js", "S-MRTR-15"),
            ("index.html", "S-MRTR-15"),
        ] {
            fs::write(directory.join(name), text).expect("the file is writable");
        }
        let citing = super::citing(&directory).expect("the pages are readable");
        fs::remove_dir_all(&directory).expect("the directory is removable");
        let expected = inner.join("struct.A.html");
        assert_eq!(citing, [format!("{}: S-MRTR-15", expected.display())]);
    }
}

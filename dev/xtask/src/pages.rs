//! Checks the public pages: rustdoc has no warning, and no page cites a row of `requirements.tsv` by its id, which means nothing to a user.

use std::fs;
use std::path::Path;

use crate::coverage::scan::ids;
use crate::step::{Done, Outcome, cargo_with, target};

/// The pages of all packages that we publish are in directories that begin like this.
const PREFIX: &str = "everlink";

pub(crate) fn check() -> Outcome {
    cargo_with("doc --workspace --all-features --no-deps", |command| {
        command.env("RUSTDOCFLAGS", "--deny warnings");
    })?;
    let mut citing = Vec::new();
    let pages = target().join("doc");
    let failed = |error| format!("{} cannot be read: {error}", pages.display());
    for entry in fs::read_dir(&pages).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.path().is_dir() {
            collect(&entry.path(), &mut citing).map_err(failed)?;
        }
    }
    if citing.is_empty() {
        return Ok(Done::Passed);
    }
    Err(format!(
        "these public pages cite ids (delete a page whose item is gone):\n{}",
        citing.join("\n")
    ))
}

/// Appends a line for each page below `directory` that cites an id.
fn collect(directory: &Path, citing: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, citing)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            let page = fs::read_to_string(&path)?;
            let cited: Vec<&str> = ids(&page).collect();
            if !cited.is_empty() {
                citing.push(format!("{}: {}", path.display(), cited.join(" ")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn pages_with_ids_are_listed_and_other_files_are_not() {
        let directory = std::env::temp_dir().join(format!("xtask-pages-{}", std::process::id()));
        let inner = directory.join("client");
        fs::create_dir_all(&inner).expect("the directory is writable");
        for (name, text) in [
            (
                "client/struct.A.html",
                "<p>cannot be forged (S-MRTR-15).</p>",
            ),
            ("index.html", "<p>RFC 9110, UTF-8, ISO-8859-1</p>"),
            ("search.js", "S-MRTR-15"),
        ] {
            fs::write(directory.join(name), text).expect("the file is writable");
        }
        let mut citing = Vec::new();
        super::collect(&directory, &mut citing).expect("the pages are readable");
        fs::remove_dir_all(&directory).expect("the directory is removable");
        let expected = inner.join("struct.A.html");
        assert_eq!(citing, [format!("{}: S-MRTR-15", expected.display())]);
    }
}

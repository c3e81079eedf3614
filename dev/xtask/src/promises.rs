//! Checks that the tests which the README names for its promises exist. Must not judge the tests.

use std::fs;
use std::path::Path;

use crate::step::{self, Done, Outcome, root};

/// The directories with tests.
const DIRECTORIES: [&str; 4] = ["adapters", "cli", "dev", "tests"];

/// Fails if the README names a test that does not exist, or has a promise without a test.
pub(crate) fn check() -> Outcome {
    let readme = step::read("README.md")?;
    let mut sources = String::new();
    for directory in DIRECTORIES {
        append_sources(&root().join(directory), &mut sources)
            .map_err(|error| format!("{directory} cannot be read: {error}"))?;
    }
    let promises = readme.lines().filter(|line| line.starts_with("| **"));
    let mut count = 0;
    for promise in promises {
        let names: Vec<&str> = test_names(promise).collect();
        if names.is_empty() {
            return Err(format!("no test is named for: {promise}"));
        }
        for name in names {
            if !sources.contains(&format!("fn {name}(")) {
                return Err(format!(
                    "the README names the test {name}, which there is not"
                ));
            }
            count += 1;
        }
    }
    if count == 0 {
        return Err("the README promises nothing".into());
    }
    eprintln!("{count} tests are named, and all are there");
    Ok(Done::Passed)
}

/// The names of tests in a line: lower-case words in backticks with at least three underscores.
fn test_names(line: &str) -> impl Iterator<Item = &str> {
    let in_backticks = line.split('`').skip(1).step_by(2);
    in_backticks.filter(|name| {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        name.matches('_').count() > 2 && name.bytes().all(is_name)
    })
}

/// Appends all Rust sources below a directory, without target directories.
fn append_sources(directory: &Path, sources: &mut String) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                append_sources(&path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn test_names_are_found_in_backticks() {
        let line = "| **A** `Ready` and `one_owner_does_it`, `f_072_one_costs_one`; `--stable-after`, `a_b` |";
        let names: Vec<_> = super::test_names(line).collect();
        assert_eq!(names, ["one_owner_does_it", "f_072_one_costs_one"]);
    }
}

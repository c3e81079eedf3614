//! The promises of the README, and the tests that it names for them. Knows not whether a test is a good one.

use std::fs;
use std::path::Path;

use crate::step::{Done, Outcome, root};

/// Where tests are.
const ROOMS: [&str; 4] = ["adapters", "cli", "dev", "tests"];

/// Fails where the README names a test that there is not, or promises something without naming one.
pub(crate) fn check() -> Outcome {
    let readme = fs::read_to_string(root().join("README.md"))
        .map_err(|error| format!("the README cannot be read: {error}"))?;
    let mut sources = String::new();
    for room in ROOMS {
        gather(&root().join(room), &mut sources)
            .map_err(|error| format!("{room} cannot be read: {error}"))?;
    }
    let promises = readme.lines().filter(|line| line.starts_with("| **"));
    let mut shown = 0;
    for promise in promises {
        let names: Vec<&str> = named(promise).collect();
        if names.is_empty() {
            return Err(format!("no test is named for: {promise}"));
        }
        for name in names {
            if !sources.contains(&format!("fn {name}(")) {
                return Err(format!(
                    "the README names the test {name}, which there is not"
                ));
            }
            shown += 1;
        }
    }
    if shown == 0 {
        return Err("the README promises nothing".into());
    }
    eprintln!("{shown} tests are named, and all are there");
    Ok(Done::Passed)
}

/// The names of tests in a line: what is in backticks and has several words.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        name.matches('_').count() > 2 && name.bytes().all(is_name)
    })
}

/// All sources below a directory, but those that cargo put there.
fn gather(directory: &Path, sources: &mut String) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                gather(&path, sources)?;
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
    fn a_test_has_several_words() {
        let line = "| **A** `Ready` and `one_owner_does_it`, `f_072_one_costs_one`; `--stable-after`, `a_b` |";
        let names: Vec<_> = super::named(line).collect();
        assert_eq!(names, ["one_owner_does_it", "f_072_one_costs_one"]);
    }
}

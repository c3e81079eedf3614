//! Checks that the tests which the README names for its promises exist. Must not judge the tests.

use anyhow::{Result, ensure};

use crate::step;

/// The directories with tests.
const DIRECTORIES: [&str; 4] = ["adapters", "cli", "dev", "tests"];

/// Fails if the README names a test that does not exist, or has a promise without a test.
pub(crate) fn check() -> Result<()> {
    let readme = step::read("README.md")?;
    let mut sources = String::new();
    for directory in DIRECTORIES {
        for file in step::files(directory, ".rs")? {
            sources += &step::read(file)?;
        }
    }
    let mut count = 0;
    for promise in readme.lines().filter(|line| line.starts_with("| **")) {
        let names: Vec<&str> = test_names(promise).collect();
        ensure!(!names.is_empty(), "no test is named for: {promise}");
        for name in names {
            ensure!(
                sources.contains(&format!("fn {name}(")),
                "the README names the test {name}, which there is not"
            );
            count += 1;
        }
    }
    ensure!(count > 0, "the README promises nothing");
    eprintln!("{count} tests are named, and all are there");
    Ok(())
}

/// The names of tests in a line: lower-case words in backticks with at least three underscores.
fn test_names(line: &str) -> impl Iterator<Item = &str> {
    let in_backticks = line.split('`').skip(1).step_by(2);
    in_backticks.filter(|name| {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        name.matches('_').count() > 2 && name.bytes().all(is_name)
    })
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

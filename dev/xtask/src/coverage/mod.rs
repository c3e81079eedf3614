//! `cargo xtask coverage`: which test shows which requirement and which failure. Runs no test.

mod matrix;
mod report;
mod rows;
pub(crate) mod scan;
mod scope;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use self::matrix::{CitingTest, Matrix};
use self::scope::{CLIENT_HTTP, Class, SERVER_HTTP, SERVER_STREAM};
use crate::step::{self, check_page, write_page};

/// The checks of the driver kit. They are functions without an attribute.
const CHECKS: &str = "adapters/driver-tests/src/checks";
/// The path of the report.
const REPORT: &str = "docs/COVERAGE.md";

/// Writes the report and prints its summary.
pub(crate) fn run() -> Result<()> {
    let matrix = matrix()?;
    print!("{}", report::summary(&matrix));
    write_page(REPORT, &report::document(&matrix))
}

/// Fails if the report differs from what [`run`] would write. Also fails if no test shows a rule for servers over a byte stream, or a rule
/// about HTTP for either end.
pub(crate) fn check() -> Result<()> {
    let matrix = matrix()?;
    check_page(REPORT, &report::document(&matrix), "coverage")?;
    let uncovered = [
        (SERVER_STREAM, matrix.uncovered(SERVER_STREAM, Class::Must)),
        (SERVER_HTTP, matrix.uncovered_http_only(SERVER_HTTP)),
        (CLIENT_HTTP, matrix.uncovered_http_only(CLIENT_HTTP)),
    ];
    let uncovered: Vec<String> = uncovered
        .iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(scope, rows)| format!("\n  {}: {}", scope.title, rows.join(", ")))
        .collect();
    ensure!(
        uncovered.is_empty(),
        "no test shows these rows; cite each in a test of its end and binding, or say in \
         dev/xtask/data/excused.tsv why none can show it{}",
        uncovered.concat()
    );
    Ok(())
}

fn matrix() -> Result<Matrix> {
    let requirements = rows::requirements()?;
    let failures = rows::failures()?;
    let ids = requirements.iter().map(|row| row.id);
    let known = ids.chain(failures.iter().map(|row| row.id)).collect();
    let sources = sources()?;
    let unknown = sources
        .iter()
        .flat_map(|source| unknown_ids(source, &known));
    let unknown: Vec<String> = unknown.collect();
    ensure!(
        unknown.is_empty(),
        "no row of dev/xtask/data has these ids:\n  {}",
        unknown.join("\n  ")
    );
    let mut all = Vec::new();
    for source in &sources {
        all.extend(citing_tests(source)?);
    }
    Matrix::new(&requirements, failures, &rows::excuses()?, &all)
}

/// A file that may contain tests.
struct Source {
    /// From the root of the project, with slashes.
    path: String,
    text: String,
}

/// All files that may contain tests of the library, in order.
fn sources() -> Result<Vec<Source>> {
    let mut paths = step::files("src", ".rs")?;
    paths.extend(step::files("tests", ".rs")?);
    let of_tools = step::files("dev", ".rs")?.into_iter();
    paths.extend(of_tools.filter(|path| path.iter().nth(2).is_some_and(|name| name == "tests")));
    paths.extend(step::files(CHECKS, ".rs")?);
    let source = |path: std::path::PathBuf| {
        let text = step::read(&path)?;
        let path = path.to_string_lossy().replace('\\', "/");
        Ok(Source { path, text })
    };
    paths.into_iter().map(source).collect()
}

fn citing_tests(source: &Source) -> Result<Vec<CitingTest>> {
    let scan = match source.path.starts_with(CHECKS) {
        true => scan::functions,
        false => scan::tests,
    };
    let tests = scan(&source.text).with_context(|| source.path.clone())?;
    let citing_test = |test: scan::Test| CitingTest {
        path: source.path.clone(),
        name: format!("{}::{}", source.path, test.name),
        cites: test.cites,
    };
    Ok(tests.into_iter().map(citing_test).collect())
}

/// The unknown ids in a file, in tests or elsewhere, each with its line.
fn unknown_ids(source: &Source, known: &BTreeSet<&str>) -> Vec<String> {
    let mut unknown_ids = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let name = line.split_once("fn ").map_or("", |(_, after)| after);
        let in_name = scan::ids_in_name(name.split('(').next().unwrap_or(name));
        let in_text = scan::ids(line).map(str::to_owned);
        for id in in_text.chain(in_name) {
            if !known.contains(id.as_str()) {
                unknown_ids.push(format!("{id} in {}:{}", source.path, index + 1));
            }
        }
    }
    unknown_ids
}

#[cfg(test)]
mod tests {
    use super::{Source, unknown_ids};

    #[test]
    fn unknown_ids_are_reported_with_their_line() {
        let source = Source {
            path: "tests/a.rs".to_owned(),
            text: "//! S-A-01 and S-A-02\n\n#[test]\nfn f_001_a() {}\nfn f_002_b() {}\nfn s_a_3() {}\n".to_owned(),
        };
        let known = ["S-A-01", "F-001"].into();
        assert_eq!(
            unknown_ids(&source, &known),
            [
                "S-A-02 in tests/a.rs:1",
                "F-002 in tests/a.rs:5",
                "S-A-3 in tests/a.rs:6"
            ]
        );
    }
}

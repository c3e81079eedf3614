//! `cargo xtask coverage`: which test shows which requirement and which failure. Runs no test.

mod matrix;
mod report;
mod rows;
pub(crate) mod scan;
mod scope;

use std::collections::BTreeSet;
use std::fs;

use self::matrix::{CitingTest, Matrix};
use self::scope::{Class, Scope};
use crate::step::{self, Done, Outcome};

/// The checks of the driver kit. They are functions without an attribute.
const CHECKS: &str = "adapters/driver-tests/src/checks";
/// The path of the report.
const REPORT: &str = "docs/COVERAGE.md";

/// Writes the report and prints its summary.
pub(crate) fn run() -> Result<(), String> {
    let matrix = matrix()?;
    let path = step::root().join(REPORT);
    fs::write(&path, report::document(&matrix))
        .map_err(|error| format!("{REPORT} could not be written: {error}"))?;
    println!("{}", report::summary(&matrix));
    Ok(())
}

/// Fails if the report differs from what [`run`] would write. Also fails if no test shows a rule for servers over a byte stream, or a rule
/// about HTTP for either end.
pub(crate) fn check() -> Outcome {
    let matrix = matrix()?;
    let committed = fs::read_to_string(step::root().join(REPORT)).unwrap_or_default();
    if committed != report::document(&matrix) {
        return Err(format!(
            "{REPORT} is not what the tests say; run `cargo xtask coverage` and commit what it writes"
        ));
    }
    let uncovered = [
        (
            Scope::ServerStream,
            matrix.uncovered(Scope::ServerStream, Class::Must),
        ),
        (
            Scope::ServerHttp,
            matrix.uncovered_http_only(Scope::ServerHttp),
        ),
        (
            Scope::ClientHttp,
            matrix.uncovered_http_only(Scope::ClientHttp),
        ),
    ];
    let uncovered: Vec<String> = uncovered
        .iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(scope, rows)| format!("{}: {}", scope.title(), rows.join(", ")))
        .collect();
    if uncovered.is_empty() {
        return Ok(Done::Passed);
    }
    Err(format!(
        "no test shows these rows; cite each in a test of its end and binding, or say in \
         dev/xtask/data/excused.tsv why none can show it\n  {}",
        uncovered.join("\n  ")
    ))
}

fn matrix() -> Result<Matrix, String> {
    let requirements = rows::requirements()?;
    let failures = rows::failures()?;
    let known = requirements
        .iter()
        .map(|row| row.id)
        .chain(failures.iter().map(|row| row.id))
        .collect();
    let sources = sources()?;
    let unknown_ids: Vec<String> = sources
        .iter()
        .flat_map(|source| unknown_ids(source, &known))
        .collect();
    if !unknown_ids.is_empty() {
        return Err(format!(
            "no row of dev/xtask/data has these ids:\n  {}",
            unknown_ids.join("\n  ")
        ));
    }
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
fn sources() -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    walk("src", &mut sources)?;
    walk("tests", &mut sources)?;
    for tool in entries("dev")? {
        let tests = format!("{tool}/tests");
        if step::root().join(&tests).is_dir() {
            walk(&tests, &mut sources)?;
        }
    }
    walk(CHECKS, &mut sources)?;
    Ok(sources)
}

fn walk(directory: &str, sources: &mut Vec<Source>) -> Result<(), String> {
    for path in entries(directory)? {
        let full = step::root().join(&path);
        if full.is_dir() {
            walk(&path, sources)?;
        } else if full.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&full).map_err(|error| unreadable(&path, &error))?;
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

/// The entries of a directory, in order.
fn entries(directory: &str) -> Result<Vec<String>, String> {
    let mut paths = fs::read_dir(step::root().join(directory))
        .and_then(|entries| {
            entries
                .map(|entry| {
                    Ok(format!(
                        "{directory}/{}",
                        entry?.file_name().to_string_lossy()
                    ))
                })
                .collect::<Result<Vec<String>, _>>()
        })
        .map_err(|error| unreadable(directory, &error))?;
    paths.sort_unstable();
    Ok(paths)
}

fn unreadable(path: &str, error: &std::io::Error) -> String {
    format!("{path} could not be read: {error}")
}

fn citing_tests(source: &Source) -> Result<Vec<CitingTest>, String> {
    let scan = match source.path.starts_with(CHECKS) {
        true => scan::functions,
        false => scan::tests,
    };
    let tests = scan(&source.text).map_err(|error| format!("{}: {error}", source.path))?;
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
    use super::{Source, matrix, unknown_ids};

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

    #[test]
    fn project_cites_only_known_rows_and_needs_every_excuse() {
        matrix().expect("sound");
    }
}

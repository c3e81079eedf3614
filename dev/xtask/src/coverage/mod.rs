//! `cargo xtask coverage`: which test shows which requirement and which failure. Runs no test.

mod ledger;
mod report;
mod rows;
mod scan;
mod scope;

use std::collections::BTreeSet;
use std::fs;

use self::ledger::{Ledger, Witness};
use self::scope::{Class, Scope};
use crate::step::{self, Done, Outcome};

/// Where the report is kept.
const REPORT: &str = "docs/COVERAGE.md";

/// Writes the report and prints its summary.
pub(crate) fn run() -> Result<(), String> {
    let ledger = ledger()?;
    let path = step::root().join(REPORT);
    fs::write(&path, report::document(&ledger))
        .map_err(|error| format!("{REPORT} could not be written: {error}"))?;
    println!("{}", report::summary(&ledger));
    Ok(())
}

/// Fails if the report is not what [`run`] would write, or if a server over a byte stream could break a rule, or either end one about
/// HTTP, and no test would see it.
pub(crate) fn check() -> Outcome {
    let ledger = ledger()?;
    let kept = fs::read_to_string(step::root().join(REPORT)).unwrap_or_default();
    if kept != report::document(&ledger) {
        return Err(format!(
            "{REPORT} is not what the tests say; run `cargo xtask coverage` and commit what it writes"
        ));
    }
    let open = [
        (
            Scope::ServerStream,
            ledger.uncovered(Scope::ServerStream, Class::Must),
        ),
        (
            Scope::ServerHttp,
            ledger.uncovered_of_http(Scope::ServerHttp),
        ),
        (
            Scope::ClientHttp,
            ledger.uncovered_of_http(Scope::ClientHttp),
        ),
    ];
    let open: Vec<String> = open
        .iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(scope, rows)| format!("{}: {}", scope.title(), rows.join(", ")))
        .collect();
    if open.is_empty() {
        return Ok(Done::Passed);
    }
    Err(format!(
        "no test shows these rows; cite each in a test of its end and binding, or say in \
         dev/xtask/data/excused.tsv why none can show it\n  {}",
        open.join("\n  ")
    ))
}

fn ledger() -> Result<Ledger, String> {
    let requirements = rows::requirements()?;
    let failures = rows::failures()?;
    let known = requirements
        .iter()
        .map(|row| row.id)
        .chain(failures.iter().map(|row| row.id))
        .collect();
    let sources = sources()?;
    let strangers: Vec<String> = sources
        .iter()
        .flat_map(|source| strangers(source, &known))
        .collect();
    if !strangers.is_empty() {
        return Err(format!(
            "no row of dev/xtask/data has these ids:\n  {}",
            strangers.join("\n  ")
        ));
    }
    let mut all = Vec::new();
    for source in &sources {
        all.extend(witnesses(source)?);
    }
    Ledger::new(&requirements, failures, &rows::excuses()?, &all)
}

/// A file that may hold tests.
struct Source {
    /// From the root of the project, with slashes.
    path: String,
    text: String,
}

/// Every file that may hold tests of the library, in order.
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

/// What is in a directory, in order.
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

fn witnesses(source: &Source) -> Result<Vec<Witness>, String> {
    let tests = scan::tests(&source.text).map_err(|why| format!("{}: {why}", source.path))?;
    let witness = |test: scan::Test| Witness {
        path: source.path.clone(),
        name: format!("{}::{}", source.path, test.name),
        cites: test.cites,
    };
    Ok(tests.into_iter().map(witness).collect())
}

/// The ids in a file that are not known, in tests or elsewhere, each with its line.
fn strangers(source: &Source, known: &BTreeSet<&str>) -> Vec<String> {
    let mut strangers = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let name = line.split_once("fn ").map_or("", |(_, after)| after);
        let named = scan::ids_in_name(name.split('(').next().unwrap_or(name));
        let cited = scan::ids(line).map(str::to_owned);
        for id in cited.chain(named) {
            if !known.contains(id.as_str()) {
                strangers.push(format!("{id} in {}:{}", source.path, index + 1));
            }
        }
    }
    strangers
}

#[cfg(test)]
mod tests {
    use super::{Source, ledger, strangers};

    #[test]
    fn ids_that_are_in_no_table_are_named_with_their_line() {
        let source = Source {
            path: "tests/a.rs".to_owned(),
            text: "//! S-A-01 and S-A-02\n\n#[test]\nfn f_001_a() {}\nfn f_002_b() {}\nfn s_a_3() {}\n".to_owned(),
        };
        let known = ["S-A-01", "F-001"].into();
        assert_eq!(
            strangers(&source, &known),
            [
                "S-A-02 in tests/a.rs:1",
                "F-002 in tests/a.rs:5",
                "S-A-3 in tests/a.rs:6"
            ]
        );
    }

    #[test]
    fn the_project_cites_only_what_there_is_and_excuses_only_what_it_must() {
        ledger().expect("sound");
    }
}

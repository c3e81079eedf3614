//! Joins rows and tests: which tests cover a row, for each scope. Must not read files or write text.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::rows::{Excuse, Failure, Requirement};
use super::scope::{self, Class, SCOPES, Scope};

/// A test and the rows that it cites.
pub(crate) struct CitingTest {
    /// The path of its file, from the root of the project.
    pub(crate) path: String,
    /// The file and the function.
    pub(crate) name: String,
    pub(crate) cites: BTreeSet<String>,
}

/// All rows with their status.
pub(crate) struct Matrix {
    pub(crate) sections: Vec<Section>,
    /// Each failure with the tests that show it.
    pub(crate) failures: Vec<(Failure, Vec<String>)>,
}

/// The rows of one scope and class, in the order of the data.
pub(crate) struct Section {
    pub(crate) scope: Scope,
    pub(crate) class: Class,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) struct Entry {
    pub(crate) id: &'static str,
    pub(crate) versions: &'static str,
    pub(crate) level: &'static str,
    pub(crate) text: &'static str,
    /// Whether the row is about HTTP only.
    pub(crate) is_http_only: bool,
    pub(crate) status: Status,
}

pub(crate) enum Status {
    /// These tests show it.
    Covered(Vec<String>),
    /// It cannot be shown here, for this reason.
    Excused(&'static str),
    Uncovered,
}

impl Entry {
    pub(crate) fn is_uncovered(&self) -> bool {
        matches!(self.status, Status::Uncovered)
    }
}

impl Matrix {
    /// Joins rows and tests. Fails on a row with unknown columns, and on an excuse that is not needed.
    pub(crate) fn new(
        requirements: &[Requirement],
        failures: Vec<Failure>,
        excuses: &[Excuse],
        tests: &[CitingTest],
    ) -> Result<Matrix> {
        let mut sections = Vec::new();
        for scope in SCOPES {
            for class in Class::ALL {
                sections.push(Section::new(scope, class, requirements, excuses, tests)?);
            }
        }
        for Excuse { id, scope, .. } in excuses {
            ensure!(
                is_needed(id, scope, &sections),
                "excused.tsv excuses {id} in {scope}, where no such row is left uncovered"
            );
        }
        let failures = failures.into_iter();
        let failures = failures.map(|row| (citing(row.id, |_| true, tests), row));
        Ok(Matrix {
            sections,
            failures: failures.map(|(citing, row)| (row, citing)).collect(),
        })
    }

    /// The sections of a scope that have rows.
    pub(crate) fn sections_of(&self, scope: Scope) -> impl Iterator<Item = &Section> {
        self.sections
            .iter()
            .filter(move |section| section.scope == scope && !section.entries.is_empty())
    }

    /// The rows of a scope and class without a test.
    pub(crate) fn uncovered(&self, scope: Scope, class: Class) -> Vec<&'static str> {
        self.uncovered_that(scope, |section, _| section.class == class)
    }

    /// The rows about HTTP only, of every class, without a test in this scope.
    pub(crate) fn uncovered_http_only(&self, scope: Scope) -> Vec<&'static str> {
        self.uncovered_that(scope, |_, entry| entry.is_http_only)
    }

    fn uncovered_that(
        &self,
        scope: Scope,
        is_wanted: impl Fn(&Section, &Entry) -> bool,
    ) -> Vec<&'static str> {
        let sections = self.sections_of(scope);
        let entries =
            sections.flat_map(|section| section.entries.iter().map(move |entry| (section, entry)));
        entries
            .filter(|(section, entry)| entry.is_uncovered() && is_wanted(section, entry))
            .map(|(_, entry)| entry.id)
            .collect()
    }
}

impl Section {
    fn new(
        scope: Scope,
        class: Class,
        requirements: &[Requirement],
        excuses: &[Excuse],
        tests: &[CitingTest],
    ) -> Result<Section> {
        let mut entries = Vec::new();
        for row in requirements {
            if Class::of(row.level) == class && scope.contains_row(row)? {
                entries.push(Entry {
                    id: row.id,
                    versions: row.versions,
                    level: row.level,
                    text: row.text,
                    is_http_only: scope::is_http_only(row.transport),
                    status: status(row.id, scope, excuses, tests),
                });
            }
        }
        Ok(Section {
            scope,
            class,
            entries,
        })
    }
}

fn status(id: &str, scope: Scope, excuses: &[Excuse], tests: &[CitingTest]) -> Status {
    let citing = citing(id, |test| scope.accepts_tests_in(&test.path), tests);
    if !citing.is_empty() {
        return Status::Covered(citing);
    }
    excuses
        .iter()
        .find(|excuse| excuse.id == id && excuse.scope == scope.key)
        .map_or(Status::Uncovered, |excuse| Status::Excused(excuse.reason))
}

/// Whether an excuse applies to a row that would be uncovered without it.
fn is_needed(id: &str, scope: &str, sections: &[Section]) -> bool {
    let sections = sections.iter().filter(|section| section.scope.key == scope);
    let mut entries = sections.flat_map(|section| &section.entries);
    entries.any(|entry| entry.id == id && matches!(entry.status, Status::Excused(_)))
}

/// The names of the tests that cite `id` and count here.
fn citing(id: &str, counts: impl Fn(&CitingTest) -> bool, tests: &[CitingTest]) -> Vec<String> {
    tests
        .iter()
        .filter(|test| test.cites.contains(id) && counts(test))
        .map(|test| test.name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::{CitingTest, Matrix, Status};
    use crate::coverage::rows::{Excuse, Failure, Requirement};
    use crate::coverage::scope::{CLIENT_STREAM, Class, SERVER_HTTP, SERVER_STREAM};

    const ROW: Requirement = Requirement {
        id: "S-TEST-01",
        versions: "all",
        role: "both",
        transport: "stdio",
        level: "MUST",
        layer: "core lifecycle",
        text: "",
    };

    fn citing_test(path: &str, cites: &str) -> CitingTest {
        CitingTest {
            path: path.to_owned(),
            name: format!("{path}::a"),
            cites: [cites.to_owned()].into(),
        }
    }

    fn excuse(id: &'static str, scope: &'static str) -> Excuse {
        Excuse {
            id,
            scope,
            reason: "because",
        }
    }

    fn matrix(excuses: &[Excuse], tests: &[CitingTest]) -> Result<Matrix> {
        let failure = Failure {
            id: "F-001",
            trigger: "",
            correct_behaviour: "",
        };
        Matrix::new(&[ROW], vec![failure], excuses, tests)
    }

    #[test]
    fn row_is_covered_only_in_the_scope_of_its_tests() {
        let matrix = matrix(&[], &[citing_test("tests/server.rs", ROW.id)]).expect("sound");
        assert!(matrix.uncovered(SERVER_STREAM, Class::Must).is_empty());
        assert_eq!(matrix.uncovered(CLIENT_STREAM, Class::Must), [ROW.id]);
        assert!(matrix.uncovered(SERVER_HTTP, Class::Must).is_empty());
        assert!(matrix.uncovered(CLIENT_STREAM, Class::May).is_empty());
        let section = matrix.sections_of(SERVER_STREAM).next().expect("a page");
        match &section.entries[0].status {
            Status::Covered(tests) => assert_eq!(tests, &["tests/server.rs::a"]),
            Status::Excused(_) | Status::Uncovered => panic!("not covered"),
        }
    }

    #[test]
    fn excuse_applies_to_its_scope_and_must_be_needed() {
        let excused = matrix(&[excuse(ROW.id, "client-stream")], &[]).expect("sound");
        assert!(excused.uncovered(CLIENT_STREAM, Class::Must).is_empty());
        assert_eq!(excused.uncovered(SERVER_STREAM, Class::Must), [ROW.id]);
        let unneeded = |excuse: Excuse, tests: &[CitingTest]| matrix(&[excuse], tests).is_err();
        assert!(
            unneeded(excuse("S-TEST-02", "client-stream"), &[]),
            "no such row"
        );
        assert!(unneeded(excuse(ROW.id, "client"), &[]), "no such scope");
        assert!(
            unneeded(excuse(ROW.id, "client-http"), &[]),
            "not of the scope"
        );
        let covered = [citing_test("tests/asks.rs", ROW.id)];
        assert!(
            unneeded(excuse(ROW.id, "client-stream"), &covered),
            "covered"
        );
    }

    #[test]
    fn failure_is_covered_by_a_test_of_any_scope() {
        let matrix = matrix(&[], &[citing_test("tests/asks.rs", "F-001")]).expect("sound");
        assert_eq!(matrix.failures[0].1, ["tests/asks.rs::a"]);
    }
}

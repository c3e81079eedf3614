//! Which row is covered by which tests, per scope. Reads no file and writes no text.

use std::collections::BTreeSet;

use super::rows::{Excuse, Failure, Requirement};
use super::scope::{self, Class, Scope};

/// A test as the report names it.
pub(crate) struct Witness {
    /// Where its file is, from the root of the project.
    pub(crate) path: String,
    /// The file and the function.
    pub(crate) name: String,
    pub(crate) cites: BTreeSet<String>,
}

/// All rows, with what is known of them.
pub(crate) struct Ledger {
    pub(crate) pages: Vec<Page>,
    /// Each failure row, with the tests that show it.
    pub(crate) failures: Vec<(Failure, Vec<String>)>,
}

/// The rows of one scope and class, in the order of the data.
pub(crate) struct Page {
    pub(crate) scope: Scope,
    pub(crate) class: Class,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) struct Entry {
    pub(crate) id: &'static str,
    pub(crate) versions: &'static str,
    pub(crate) level: &'static str,
    pub(crate) text: &'static str,
    /// Whether it is about HTTP and nothing else.
    pub(crate) is_of_http: bool,
    pub(crate) standing: Standing,
}

pub(crate) enum Standing {
    /// These tests show it.
    Covered(Vec<String>),
    /// It cannot be shown here, for this reason.
    Excused(&'static str),
    Uncovered,
}

impl Entry {
    pub(crate) fn is_uncovered(&self) -> bool {
        matches!(self.standing, Standing::Uncovered)
    }
}

impl Ledger {
    /// Joins rows and tests. Fails on a row whose columns make no sense, and on an excuse that excuses nothing.
    pub(crate) fn new(
        requirements: &[Requirement],
        failures: Vec<Failure>,
        excuses: &[Excuse],
        witnesses: &[Witness],
    ) -> Result<Ledger, String> {
        let mut pages = Vec::new();
        for scope in Scope::ALL {
            for class in Class::ALL {
                pages.push(Page::new(scope, class, requirements, excuses, witnesses)?);
            }
        }
        if let Some(idle) = excuses.iter().find(|excuse| !is_needed(excuse, &pages)) {
            return Err(format!(
                "excused.tsv excuses {} in {}, where no such row is left uncovered",
                idle.id, idle.scope
            ));
        }
        let failures = failures
            .into_iter()
            .map(|row| {
                let seen = seen(row.id, |_| true, witnesses);
                (row, seen)
            })
            .collect();
        Ok(Ledger { pages, failures })
    }

    /// The pages of a scope that have any rows.
    pub(crate) fn pages_of(&self, scope: Scope) -> impl Iterator<Item = &Page> {
        self.pages
            .iter()
            .filter(move |page| page.scope == scope && !page.entries.is_empty())
    }

    /// The rows of a scope and class that no test shows.
    pub(crate) fn uncovered(&self, scope: Scope, class: Class) -> Vec<&'static str> {
        self.pages_of(scope)
            .filter(|page| page.class == class)
            .flat_map(|page| &page.entries)
            .filter(|entry| entry.is_uncovered())
            .map(|entry| entry.id)
            .collect()
    }

    /// The rows about HTTP and nothing else, of whatever class, that no test of this scope shows.
    pub(crate) fn uncovered_of_http(&self, scope: Scope) -> Vec<&'static str> {
        self.pages_of(scope)
            .flat_map(|page| &page.entries)
            .filter(|entry| entry.is_of_http && entry.is_uncovered())
            .map(|entry| entry.id)
            .collect()
    }
}

impl Page {
    fn new(
        scope: Scope,
        class: Class,
        requirements: &[Requirement],
        excuses: &[Excuse],
        witnesses: &[Witness],
    ) -> Result<Page, String> {
        let mut entries = Vec::new();
        for row in requirements {
            if Class::of(row.level) == class && scope.holds(row)? {
                entries.push(Entry {
                    id: row.id,
                    versions: row.versions,
                    level: row.level,
                    text: row.text,
                    is_of_http: scope::is_of_http(row.transport),
                    standing: standing(row.id, scope, excuses, witnesses),
                });
            }
        }
        Ok(Page {
            scope,
            class,
            entries,
        })
    }
}

fn standing(id: &str, scope: Scope, excuses: &[Excuse], witnesses: &[Witness]) -> Standing {
    let seen = seen(id, |witness| scope.hears(&witness.path), witnesses);
    if !seen.is_empty() {
        return Standing::Covered(seen);
    }
    excuses
        .iter()
        .find(|excuse| excuse.id == id && excuse.scope == scope.key())
        .map_or(Standing::Uncovered, |excuse| {
            Standing::Excused(excuse.reason)
        })
}

/// Whether an excuse stands for a row that would else be uncovered.
fn is_needed(excuse: &Excuse, pages: &[Page]) -> bool {
    pages
        .iter()
        .filter(|page| page.scope.key() == excuse.scope)
        .flat_map(|page| &page.entries)
        .any(|entry| entry.id == excuse.id && matches!(entry.standing, Standing::Excused(_)))
}

/// The names of the tests that cite `id` and are heard.
fn seen(id: &str, is_heard: impl Fn(&Witness) -> bool, witnesses: &[Witness]) -> Vec<String> {
    witnesses
        .iter()
        .filter(|witness| witness.cites.contains(id) && is_heard(witness))
        .map(|witness| witness.name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Standing, Witness};
    use crate::coverage::rows::{Excuse, Failure, Requirement};
    use crate::coverage::scope::{Class, Scope};

    const ROW: Requirement = Requirement {
        id: "S-TEST-01",
        versions: "all",
        role: "both",
        transport: "stdio",
        level: "MUST",
        layer: "core lifecycle",
        text: "",
    };

    fn witness(path: &str, cites: &str) -> Witness {
        Witness {
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

    fn ledger(excuses: &[Excuse], witnesses: &[Witness]) -> Result<Ledger, String> {
        let failure = Failure {
            id: "F-001",
            trigger: "",
            right: "",
        };
        Ledger::new(&[ROW], vec![failure], excuses, witnesses)
    }

    #[test]
    fn a_row_is_covered_only_where_its_tests_are_heard() {
        let ledger = ledger(&[], &[witness("tests/server.rs", ROW.id)]).expect("sound");
        assert!(
            ledger
                .uncovered(Scope::ServerStream, Class::Must)
                .is_empty()
        );
        assert_eq!(ledger.uncovered(Scope::ClientStream, Class::Must), [ROW.id]);
        assert!(ledger.uncovered(Scope::ServerHttp, Class::Must).is_empty());
        assert!(ledger.uncovered(Scope::ClientStream, Class::May).is_empty());
        let page = ledger.pages_of(Scope::ServerStream).next().expect("a page");
        match &page.entries[0].standing {
            Standing::Covered(tests) => assert_eq!(tests, &["tests/server.rs::a"]),
            Standing::Excused(_) | Standing::Uncovered => panic!("not covered"),
        }
    }

    #[test]
    fn an_excuse_holds_in_its_scope_and_must_be_needed() {
        let excused = ledger(&[excuse(ROW.id, "client-stream")], &[]).expect("sound");
        assert!(
            excused
                .uncovered(Scope::ClientStream, Class::Must)
                .is_empty()
        );
        assert_eq!(
            excused.uncovered(Scope::ServerStream, Class::Must),
            [ROW.id]
        );
        let idle = |excuse: Excuse, witnesses: &[Witness]| ledger(&[excuse], witnesses).is_err();
        assert!(
            idle(excuse("S-TEST-02", "client-stream"), &[]),
            "no such row"
        );
        assert!(idle(excuse(ROW.id, "client"), &[]), "no such scope");
        assert!(idle(excuse(ROW.id, "client-http"), &[]), "not of the scope");
        let covered = [witness("tests/asks.rs", ROW.id)];
        assert!(idle(excuse(ROW.id, "client-stream"), &covered), "covered");
    }

    #[test]
    fn a_failure_is_covered_by_any_test() {
        let ledger = ledger(&[], &[witness("tests/asks.rs", "F-001")]).expect("sound");
        assert_eq!(ledger.failures[0].1, ["tests/asks.rs::a"]);
    }
}

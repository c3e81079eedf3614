//! Reads the rows that tests cite from the files in `data/`. Must not depend on tests or scopes.

use anyhow::{Context as _, Result};

const REQUIREMENTS: &str = include_str!("../../data/requirements.tsv");
const FAILURES: &str = include_str!("../../data/failures.tsv");
const EXCUSED: &str = include_str!("../../data/excused.tsv");

type Cells<const N: usize> = [&'static str; N];

/// A rule of the specification.
pub(crate) struct Requirement {
    pub(crate) id: &'static str,
    pub(crate) versions: &'static str,
    pub(crate) role: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) level: &'static str,
    pub(crate) layer: &'static str,
    pub(crate) text: &'static str,
}

/// A known way in which links fail.
pub(crate) struct Failure {
    pub(crate) id: &'static str,
    pub(crate) trigger: &'static str,
    /// What a correct link does.
    pub(crate) correct_behaviour: &'static str,
}

/// Why a requirement cannot be shown in one scope, though its columns place it there.
pub(crate) struct Excuse {
    pub(crate) id: &'static str,
    /// The key of the scope.
    pub(crate) scope: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) fn requirements() -> Result<Vec<Requirement>> {
    let row = |[id, versions, role, transport, level, layer, text]: Cells<7>| Requirement {
        id,
        versions,
        role,
        transport,
        level,
        layer,
        text,
    };
    rows("requirements.tsv", REQUIREMENTS, row)
}

pub(crate) fn failures() -> Result<Vec<Failure>> {
    let row = |[id, trigger, correct_behaviour]: Cells<3>| Failure {
        id,
        trigger,
        correct_behaviour,
    };
    rows("failures.tsv", FAILURES, row)
}

pub(crate) fn excuses() -> Result<Vec<Excuse>> {
    let row = |[id, scope, reason]: Cells<3>| Excuse { id, scope, reason };
    rows("excused.tsv", EXCUSED, row)
}

/// Splits the lines after the first at their tabs.
fn rows<const N: usize, T>(
    file: &str,
    text: &'static str,
    row: impl Fn(Cells<N>) -> T,
) -> Result<Vec<T>> {
    let parse_line = |(index, line): (usize, &'static str)| {
        let cells: Vec<&str> = line.split('\t').collect();
        let is_complete = cells.iter().all(|cell| !cell.is_empty());
        let cells = cells.try_into().ok().filter(|_| is_complete);
        cells
            .map(&row)
            .with_context(|| format!("line {} of {file} has not {N} cells", index + 1))
    };
    text.lines().enumerate().skip(1).map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{excuses, failures, requirements, rows};
    use crate::coverage::scan::ids;

    #[test]
    fn every_id_can_be_cited_and_is_unique() {
        let rules = requirements().expect("well formed");
        let failures = failures().expect("well formed");
        let all: Vec<&str> = rules
            .iter()
            .map(|rule| rule.id)
            .chain(failures.iter().map(|failure| failure.id))
            .collect();
        for id in &all {
            assert_eq!(ids(id).collect::<Vec<_>>(), [*id]);
        }
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        excuses().expect("well formed");
    }

    #[test]
    fn line_with_a_missing_or_extra_cell_is_reported() {
        let cells = |text| rows::<2, _>("x.tsv", text, |cells| cells);
        // The first line says what the cells are.
        assert_eq!(cells("a\tb\n1\t2\n").expect("sound"), [["1", "2"]]);
        for bad in [
            "a\tb\n1\t2\n3\n",
            "a\tb\n1\t2\n3\t4\t5\n",
            "a\tb\n1\t2\n3\t\n",
        ] {
            let error = cells(bad).expect_err("a bad line");
            assert_eq!(error.to_string(), "line 3 of x.tsv has not 2 cells");
        }
    }
}

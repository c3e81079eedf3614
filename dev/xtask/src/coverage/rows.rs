//! The rows that tests cite, as the files in `data/` have them. Knows no test and no scope.

const REQUIREMENTS: &str = include_str!("../../data/requirements.tsv");
const FAILURES: &str = include_str!("../../data/failures.tsv");
const EXCUSED: &str = include_str!("../../data/excused.tsv");

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

/// A way in which links fail in the wild.
pub(crate) struct Failure {
    pub(crate) id: &'static str,
    pub(crate) trigger: &'static str,
    /// What a correct link does.
    pub(crate) right: &'static str,
}

/// Why a requirement cannot be shown in one scope, though by its columns it belongs there.
pub(crate) struct Excuse {
    pub(crate) id: &'static str,
    /// The key of the scope.
    pub(crate) scope: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) fn requirements() -> Result<Vec<Requirement>, String> {
    let rows = cells("requirements.tsv", REQUIREMENTS)?.into_iter().map(
        |[id, versions, role, transport, level, layer, text]| Requirement {
            id,
            versions,
            role,
            transport,
            level,
            layer,
            text,
        },
    );
    Ok(rows.collect())
}

pub(crate) fn failures() -> Result<Vec<Failure>, String> {
    let rows = cells("failures.tsv", FAILURES)?
        .into_iter()
        .map(|[id, trigger, right]| Failure { id, trigger, right });
    Ok(rows.collect())
}

pub(crate) fn excuses() -> Result<Vec<Excuse>, String> {
    let rows = cells("excused.tsv", EXCUSED)?
        .into_iter()
        .map(|[id, scope, reason]| Excuse { id, scope, reason });
    Ok(rows.collect())
}

/// The lines after the first, each cut at its tabs.
fn cells<const N: usize>(file: &str, text: &'static str) -> Result<Vec<[&'static str; N]>, String> {
    let cut = |(index, line): (usize, &'static str)| {
        let cells: Vec<&str> = line.split('\t').collect();
        let complete = cells.iter().all(|cell| !cell.is_empty());
        cells
            .try_into()
            .ok()
            .filter(|_| complete)
            .ok_or_else(|| format!("line {} of {file} has not {N} cells", index + 1))
    };
    text.lines().enumerate().skip(1).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{cells, excuses, failures, requirements};
    use crate::coverage::scan::ids;

    #[test]
    fn every_id_is_one_that_a_test_could_cite_and_is_there_once() {
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
    fn a_line_that_lacks_a_cell_is_named() {
        assert_eq!(
            cells::<2>("x.tsv", "a\tb\n1\t2\n"),
            Ok(vec![["1", "2"]]),
            "the first line says what the cells are"
        );
        for bad in [
            "a\tb\n1\t2\n3\n",
            "a\tb\n1\t2\n3\t4\t5\n",
            "a\tb\n1\t2\n3\t\n",
        ] {
            let why = cells::<2>("x.tsv", bad).expect_err("a bad line");
            assert_eq!(why, "line 3 of x.tsv has not 2 cells");
        }
    }
}

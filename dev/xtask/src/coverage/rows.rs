//! Reads the rows that tests cite from the files in `data/`. Must not depend on tests or scopes.

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
    let rows =
        cells("failures.tsv", FAILURES)?
            .into_iter()
            .map(|[id, trigger, correct_behaviour]| Failure {
                id,
                trigger,
                correct_behaviour,
            });
    Ok(rows.collect())
}

pub(crate) fn excuses() -> Result<Vec<Excuse>, String> {
    let rows = cells("excused.tsv", EXCUSED)?
        .into_iter()
        .map(|[id, scope, reason]| Excuse { id, scope, reason });
    Ok(rows.collect())
}

/// Splits the lines after the first at their tabs.
fn cells<const N: usize>(file: &str, text: &'static str) -> Result<Vec<[&'static str; N]>, String> {
    let parse_line = |(index, line): (usize, &'static str)| {
        let cells: Vec<&str> = line.split('\t').collect();
        let is_complete = cells.iter().all(|cell| !cell.is_empty());
        cells
            .try_into()
            .ok()
            .filter(|_| is_complete)
            .ok_or_else(|| format!("line {} of {file} has not {N} cells", index + 1))
    };
    text.lines().enumerate().skip(1).map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{cells, excuses, failures, requirements};
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
            let error = cells::<2>("x.tsv", bad).expect_err("a bad line");
            assert_eq!(error, "line 3 of x.tsv has not 2 cells");
        }
    }
}

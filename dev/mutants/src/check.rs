//! Checks the committed results without running a mutant.

use std::collections::BTreeSet;
use std::fs;

use crate::page::{self, Count};
use crate::table::{self, Accepted, Table};
use crate::{Source, root, sources};

/// Of the changes with an effect, the tests must notice so many of each file, in percent.
const MIN_SHARE: usize = 95;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// A file without a row, and a row with too small a share. Other flaws are only named, so that not each change of the library needs a run.
    Share,
    /// Also a row about older code, and each other flaw.
    Current,
}

pub(crate) fn check(strictness: Strictness) -> Result<(), String> {
    let table = table::read(root())?;
    let accepted = table::accepted(root())?;
    let sources = sources()?;
    let mut flaws = gaps(&sources, &table, &accepted);
    let mut others = outdated(&sources, &table);
    others.extend(unneeded(&table, &accepted));
    let committed = fs::read_to_string(root().join(page::PAGE)).unwrap_or_default();
    let ran = page::ran_line(&committed).unwrap_or_default();
    if committed != page::page(&table, &accepted, ran) {
        others.push(format!("{} is not what {} says", page::PAGE, table::TABLE));
    }
    match strictness {
        Strictness::Share => others.iter().for_each(|flaw| eprintln!("mutants: {flaw}")),
        Strictness::Current => flaws.append(&mut others),
    }
    if flaws.is_empty() {
        return Ok(());
    }
    Err(format!(
        "run `cargo xtask mutants` and commit what it writes:\n  {}",
        flaws.join("\n  ")
    ))
}

/// Files without a row, and rows with too many survivors.
fn gaps(sources: &[Source], table: &Table, accepted: &[Accepted]) -> Vec<String> {
    let mut gaps = Vec::new();
    for Source { path, .. } in sources {
        let Some(row) = table.get(path) else {
            gaps.push(format!("{path} has no row in {}", table::TABLE));
            continue;
        };
        let count = Count::of(path, row, accepted);
        if !count.has_share(MIN_SHARE) {
            let (caught, survived) = (count.caught, count.survived);
            gaps.push(format!(
                "{path}: {caught} mutants are caught and {survived} survive, which is below {MIN_SHARE} %"
            ));
        }
    }
    gaps
}

/// Rows about code that has changed since.
fn outdated(sources: &[Source], table: &Table) -> Vec<String> {
    let has_changed = |source: &&Source| {
        let row = table.get(&source.path);
        row.is_some_and(|row| row.code != source.code)
    };
    let changed = sources.iter().filter(has_changed);
    let changed = changed.map(|source| format!("{} changed since its mutants ran", source.path));
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let gone = table.keys().filter(|path| !paths.contains(path.as_str()));
    let gone = gone.map(|path| format!("{path} of {} is gone", table::TABLE));
    changed.chain(gone).collect()
}

/// Reasons without a survivor.
fn unneeded(table: &Table, accepted: &[Accepted]) -> Vec<String> {
    let is_needed = |reason: &Accepted| {
        table.iter().any(|(file, row)| {
            let mut survivors = row.survivors.iter();
            survivors.any(|survivor| reason.covers(file, survivor))
        })
    };
    let unneeded = accepted.iter().filter(|reason| !is_needed(reason));
    let flaw = |reason: &Accepted| {
        let (function, change) = (&reason.function, &reason.change);
        let file = table::ACCEPTED;
        format!("{file}: nothing survived as {function}, {change}")
    };
    unneeded.map(flaw).collect()
}

#[cfg(test)]
mod tests {
    use super::{gaps, outdated};
    use crate::Source;
    use crate::table::{Row, Survivor, Table};
    use crate::unit::UNITS;

    fn source(path: &str) -> Source {
        Source {
            unit: &UNITS[0],
            path: path.to_owned(),
            text: String::new(),
            code: "new".to_owned(),
        }
    }

    fn row(code: &str, caught: usize, survived: usize) -> Row {
        let survivor = Survivor {
            line: 1,
            function: "f".to_owned(),
            change: "a to b".to_owned(),
            reached: true,
        };
        Row {
            code: code.to_owned(),
            mutants: caught + survived,
            caught,
            survivors: vec![survivor; survived],
            ..Row::default()
        }
    }

    #[test]
    fn missing_row_and_share_below_95_percent_are_gaps() {
        let sources = ["19 of 20", "18 of 20", "none", "no row"].map(source);
        let table = Table::from([
            ("19 of 20".to_owned(), row("new", 19, 1)),
            ("18 of 20".to_owned(), row("new", 18, 2)),
            ("none".to_owned(), row("new", 0, 0)),
        ]);
        let gaps = gaps(&sources, &table, &[]);
        assert_eq!(gaps.len(), 2, "{gaps:?}");
        assert!(gaps[0].starts_with("18 of 20") && gaps[1].starts_with("no row"));
    }

    #[test]
    fn row_about_older_code_or_no_file_is_outdated() {
        let table = Table::from([
            ("a.rs".to_owned(), row("new", 1, 0)),
            ("b.rs".to_owned(), row("old", 1, 0)),
            ("c.rs".to_owned(), row("new", 1, 0)),
        ]);
        let outdated = outdated(&["a.rs", "b.rs"].map(source), &table);
        assert_eq!(outdated.len(), 2, "{outdated:?}");
        assert!(outdated[0].starts_with("b.rs") && outdated[1].starts_with("c.rs"));
    }
}

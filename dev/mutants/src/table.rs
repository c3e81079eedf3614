//! The committed results: a row for each file, the survivors, and the reasons for those that are accepted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::state::Key;

/// A row for each file.
pub(crate) const TABLE: &str = "docs/mutants.tsv";
/// The mutants that no test noticed.
pub(crate) const SURVIVORS: &str = "docs/mutants-survivors.tsv";
/// The reasons, written by hand.
pub(crate) const ACCEPTED: &str = ".cargo/mutants-accepted.tsv";

const TABLE_HEAD: &str = "file\tcode\tmutants\tcaught\tuncompiled\tunswitched";
const SURVIVORS_HEAD: &str = "file\tline\tfunction\tchange\treached";
const ACCEPTED_HEAD: &str = "file\tfunction\tchange\treason";

/// The result of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// The hash of the code.
    pub(crate) code: String,
    /// Those that compiled and ran.
    pub(crate) mutants: usize,
    pub(crate) caught: usize,
    pub(crate) uncompiled: usize,
    /// Those in functions that must stay `const`.
    pub(crate) unswitched: usize,
    pub(crate) survivors: Vec<Survivor>,
}

impl Row {
    /// Whether this row is about the same code, and no such change survived.
    pub(crate) fn has_caught(&self, key: &Key) -> bool {
        let is_this = |it: &Survivor| it.function == key.function && it.change == key.change;
        self.code == key.code && !self.survivors.iter().any(is_this)
    }
}

/// A mutant that no test noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Survivor {
    pub(crate) line: usize,
    pub(crate) function: String,
    pub(crate) change: String,
    pub(crate) reached: bool,
}

/// A survivor that is no gap. `*` stands for any text in each of its patterns.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) file: String,
    pub(crate) function: String,
    pub(crate) change: String,
    pub(crate) reason: String,
}

impl Accepted {
    pub(crate) fn covers(&self, file: &str, survivor: &Survivor) -> bool {
        matches_pattern(&self.file, file)
            && matches_pattern(&self.function, &survivor.function)
            && matches_pattern(&self.change, &survivor.change)
    }
}

/// The results of all files, by path.
pub(crate) type Table = BTreeMap<String, Row>;

/// Reads the results; they are empty if there are none yet.
pub(crate) fn read(root: &Path) -> Result<Table, String> {
    let mut table = Table::new();
    for cells in rows(root, TABLE, TABLE_HEAD)? {
        let [file, code, mutants, caught, uncompiled, unswitched] = exactly(TABLE, cells)?;
        let row = Row {
            code,
            mutants: number(TABLE, &mutants)?,
            caught: number(TABLE, &caught)?,
            uncompiled: number(TABLE, &uncompiled)?,
            unswitched: number(TABLE, &unswitched)?,
            survivors: Vec::new(),
        };
        table.insert(file, row);
    }
    for cells in rows(root, SURVIVORS, SURVIVORS_HEAD)? {
        let [file, line, function, change, reached] = exactly(SURVIVORS, cells)?;
        let row = table
            .get_mut(&file)
            .ok_or_else(|| format!("{SURVIVORS}: {TABLE} has no {file}"))?;
        row.survivors.push(Survivor {
            line: number(SURVIVORS, &line)?,
            function,
            change,
            reached: reached == "yes",
        });
    }
    Ok(table)
}

/// Writes the results.
pub(crate) fn write(root: &Path, table: &Table) -> Result<(), String> {
    let mut files = format!("{TABLE_HEAD}\n");
    let mut survivors = format!("{SURVIVORS_HEAD}\n");
    for (file, row) in table {
        let Row {
            code,
            mutants,
            caught,
            uncompiled,
            unswitched,
            ..
        } = row;
        files += &format!("{file}\t{code}\t{mutants}\t{caught}\t{uncompiled}\t{unswitched}\n");
        for Survivor {
            line,
            function,
            change,
            reached,
        } in &row.survivors
        {
            let reached = if *reached { "yes" } else { "no" };
            survivors += &format!("{file}\t{line}\t{function}\t{change}\t{reached}\n");
        }
    }
    write_file(root, TABLE, &files)?;
    write_file(root, SURVIVORS, &survivors)
}

/// Reads the reasons.
pub(crate) fn accepted(root: &Path) -> Result<Vec<Accepted>, String> {
    let accepted = |cells| {
        let [file, function, change, reason] = exactly(ACCEPTED, cells)?;
        Ok(Accepted {
            file,
            function,
            change,
            reason,
        })
    };
    rows(root, ACCEPTED, ACCEPTED_HEAD)?
        .into_iter()
        .map(accepted)
        .collect()
}

pub(crate) fn write_file(root: &Path, path: &str, text: &str) -> Result<(), String> {
    fs::write(root.join(path), text).map_err(|error| format!("{path} cannot be written: {error}"))
}

/// The cells of all rows below the head. Lines that start with `#` are comments.
fn rows(root: &Path, path: &str, head: &str) -> Result<Vec<Vec<String>>, String> {
    let Ok(text) = fs::read_to_string(root.join(path)) else {
        return Ok(Vec::new());
    };
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    if lines.next() != Some(head) {
        return Err(format!(
            "{path} does not start with the row `{}`",
            head.replace('\t', ", ")
        ));
    }
    Ok(lines
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect())
}

fn exactly<const N: usize>(path: &str, cells: Vec<String>) -> Result<[String; N], String> {
    cells.try_into().map_err(|cells: Vec<String>| {
        format!(
            "{path}: a row has {} cells instead of {N}: {}",
            cells.len(),
            cells.join(" | ")
        )
    })
}

fn number(path: &str, cell: &str) -> Result<usize, String> {
    cell.parse()
        .map_err(|_| format!("{path}: `{cell}` is not a number"))
}

/// Whether a text matches a pattern, in which `*` stands for any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    // A change may itself contain `*`.
    if pattern == text {
        return true;
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{Row, Survivor, matches_pattern};
    use crate::state::Key;

    #[test]
    fn mutant_is_caught_if_the_row_is_about_its_code_and_no_such_survivor_is_listed() {
        let row = Row {
            code: "new".to_owned(),
            survivors: vec![Survivor {
                line: 1,
                function: "f".to_owned(),
                change: "a to b".to_owned(),
                reached: true,
            }],
            ..Row::default()
        };
        let key = |code: &str, function: &str| Key {
            code: code.to_owned(),
            function: function.to_owned(),
            change: "a to b".to_owned(),
            ..Key::default()
        };
        assert!(row.has_caught(&key("new", "g")));
        assert!(!row.has_caught(&key("new", "f")));
        assert!(!row.has_caught(&key("old", "g")));
    }

    #[test]
    fn star_stands_for_any_text() {
        assert!(matches_pattern(
            "delete `self.*.reserve(*",
            "delete `self.a.reserve(4);`"
        ));
        assert!(matches_pattern("*", ""));
        assert!(matches_pattern("+ to * in `a + b`", "+ to * in `a + b`"));
        assert!(!matches_pattern("Client::poll", "Client::poll_output"));
        assert!(!matches_pattern("delete * in `a`", "delete ! in `b`"));
    }
}

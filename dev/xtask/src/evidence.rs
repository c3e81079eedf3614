//! `cargo xtask evidence`: which long checks ran on which code, and whether that code has changed since.
//!
//! Each long command begins a [`Run`] and ends it with its result. The rows are in `docs/evidence.tsv`, and `docs/EVIDENCE.md` shows them. Must not
//! run or judge a check.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::size;
use crate::step::{self, commit, cores, read, write_page};

const TABLE: &str = "docs/evidence.tsv";
const PAGE: &str = "docs/EVIDENCE.md";
/// The page, with a place for the table.
const TEMPLATE: &str = include_str!("evidence.md");

/// A check that takes too long for every change: its name, the page that tells the result whole, if there is one, and the directories with the code that
/// it is about.
type Check = (&'static str, &'static str, &'static str);

const CHECKS: &[Check] = &[
    ("mutants", "MUTANTS.md", "src adapters"),
    ("fuzz", "FUZZING.md", "src"),
    ("sim", "SIMULATION.md", "src/client src/relay src/server"),
    ("auth-sim", "SIMULATION.md", "src/auth"),
    ("fleet-sim", "SIMULATION.md", "src/server"),
    ("explore client", "SIMULATION.md", "src/client"),
    ("explore client-http", "SIMULATION.md", "src/client"),
    ("explore server", "SIMULATION.md", "src/server"),
    ("explore server-http", "SIMULATION.md", "src/server"),
    ("explore server-shared", "SIMULATION.md", "src/server"),
    (
        "explore relay",
        "SIMULATION.md",
        "src/client src/relay src/server",
    ),
    ("explore auth", "SIMULATION.md", "src/auth"),
    ("miri", "", "src"),
    ("address sanitizer", "", "src adapters"),
    ("thread sanitizer", "", "src adapters"),
    ("soak", "SOAK.md", "src adapters cli"),
];

/// The parts of the core that every part of it may import.
const IMPORTS: &str = " src/driver src/http src/json src/protocol src/util src/wire";

/// The directories with the code of a check, and those that it imports.
fn with_imports(parts: &str) -> impl Iterator<Item = String> {
    let imports = match parts.contains('/') {
        true => IMPORTS,
        false => "",
    };
    let all: Vec<String> = format!("{parts}{imports}")
        .split(' ')
        .map(str::to_owned)
        .collect();
    all.into_iter()
}

/// A check that runs.
pub(crate) struct Run {
    row: Row,
    start: Instant,
}

impl Run {
    /// Remembers the command, the commit and the code at the beginning.
    pub(crate) fn begin(check: &str, command: &str) -> Result<Run> {
        Ok(Run {
            row: Row::begin(check, command)?,
            start: Instant::now(),
        })
    }

    /// Writes the row of a check that passed, with a result for the reader. The code must be the one at the beginning.
    pub(crate) fn end(mut self, result: &str) -> Result<()> {
        ensure!(
            hash_for(&self.row.check)? == self.row.code,
            "the code was changed while the check ran: run it again"
        );
        self.row.seconds = self.start.elapsed().as_secs();
        self.row.result = result.to_owned();
        record(self.row)
    }
}

/// The last run of a check that passed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) check: String,
    pub(crate) command: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) seconds: u64,
    pub(crate) cores: usize,
    /// The hash of the code.
    pub(crate) code: String,
    pub(crate) result: String,
}

impl Row {
    /// The row of a check that begins now.
    pub(crate) fn begin(check: &str, command: &str) -> Result<Row> {
        Ok(Row {
            check: check.to_owned(),
            command: format!("cargo xtask {command}"),
            commit: commit()?,
            date: date()?,
            seconds: 0,
            cores: cores(),
            code: hash_for(check)?,
            result: String::new(),
        })
    }
}

/// Writes the page, and prints the checks that have to run again.
pub(crate) fn run() -> Result<()> {
    let rows = rows()?;
    for flaw in flaws(&rows)? {
        eprintln!("{flaw}");
    }
    write_page(PAGE, &page(&rows)?)
}

/// Fails if the page does not show the rows as they are.
pub(crate) fn check_page() -> Result<()> {
    step::check_page(PAGE, &page(&rows()?)?, "evidence")
}

/// Fails if a check did not run on the code as it is.
pub(crate) fn check_all() -> Result<()> {
    step::check_none(&flaws(&rows()?)?)?;
    check_page()
}

/// Replaces the row of a check, and writes the page again.
pub(crate) fn record(row: Row) -> Result<()> {
    let mut rows = rows()?;
    rows.retain(|other| other.check != row.check);
    rows.push(row);
    rows.sort_by_key(|row| CHECKS.iter().position(|(name, ..)| *name == row.check));
    step::write(TABLE, step::format_rows(&rows, true)?)?;
    step::write(PAGE, page(&rows)?)
}

/// The hash of the code that a check is about.
fn hash_for(check: &str) -> Result<String> {
    let known = CHECKS.iter().find(|(name, ..)| *name == check);
    let (_, _, parts) = known.with_context(|| format!("there is no check `{check}`"))?;
    Hashes::default().of(parts)
}

/// Today, in UTC.
pub(crate) fn date() -> Result<String> {
    step::date("+%Y-%m-%d")
}

fn rows() -> Result<Vec<Row>> {
    step::parse_rows(&read(TABLE)?).context(TABLE)
}

/// The digest of the code below each directory that a check is about.
#[derive(Default)]
struct Hashes(BTreeMap<String, Vec<u8>>);

impl Hashes {
    /// The hash of the code in these directories: eight bytes in hexadecimal.
    fn of(&mut self, parts: &str) -> Result<String> {
        let mut hasher = Sha256::new();
        for part in with_imports(parts) {
            if !self.0.contains_key(&part) {
                self.0.insert(part.clone(), digest(&part)?);
            }
            hasher.update(&self.0[&part]);
        }
        let bytes = hasher.finalize();
        let digits = bytes[..8].iter().map(|byte| format!("{byte:02x}"));
        Ok(digits.collect())
    }
}

/// SHA-256 over the code below a directory.
fn digest(part: &str) -> Result<Vec<u8>> {
    let mut hasher = Sha256::new();
    for (path, code) in size::code(part)? {
        hasher.update(path.to_string_lossy().replace('\\', "/"));
        hasher.update([0]);
        hasher.update(code);
        hasher.update([0]);
    }
    Ok(hasher.finalize().to_vec())
}

/// A check with its row, if it ever ran, and whether that row is about the code as it is.
type State<'a> = (&'static Check, Option<&'a Row>, bool);

fn states(rows: &[Row]) -> Result<Vec<State<'_>>> {
    let mut hashes = Hashes::default();
    let state = |check: &'static Check| {
        let hash = hashes.of(check.2)?;
        let row = rows.iter().find(|row| row.check == check.0);
        Ok((check, row, row.is_some_and(|row| row.code == hash)))
    };
    CHECKS.iter().map(state).collect()
}

/// The checks that have to run, with the reason.
fn flaws(rows: &[Row]) -> Result<Vec<String>> {
    let states = states(rows)?.into_iter();
    let flaws = states.filter_map(|((name, ..), row, is_current)| match row {
        None => Some(format!("{name}: never run")),
        Some(Row {
            commit, command, ..
        }) => (!is_current)
            .then(|| format!("{name}: the code was changed after {commit}: run `{command}`")),
    });
    Ok(flaws.collect())
}

fn page(rows: &[Row]) -> Result<String> {
    let states = states(rows)?.into_iter();
    let lines: String = states
        .map(|(check, row, is_current)| line(check, row, is_current))
        .collect();
    Ok(TEMPLATE.replace("{table}\n", &lines))
}

fn line(&(name, page, parts): &Check, row: Option<&Row>, is_current: bool) -> String {
    let imports = match parts.contains('/') {
        true => ", with imports",
        false => "",
    };
    let parts = format!("`{}`{imports}", parts.replace(' ', "`, `"));
    let Some(row) = row else {
        return format!("| {name} | {parts} | | **never run** | | | | | |\n");
    };
    let name = match page {
        "" => name.to_owned(),
        page => format!("[{name}]({page})"),
    };
    let state = match is_current {
        true => "this code",
        false => "**older than the code**",
    };
    let Row {
        command,
        commit,
        date,
        seconds,
        cores,
        result,
        ..
    } = row;
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!(
        "| {name} | {parts} | {result} | {state} | `{command}` | {commit} | {date} | {minutes} min {seconds} s | {cores} cores |\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn soak_on(code: &str) -> Row {
        row_of("soak", code)
    }

    fn row_of(check: &str, code: &str) -> Row {
        Row {
            check: check.to_owned(),
            command: "cargo xtask soak --hours 2".to_owned(),
            commit: "abc".to_owned(),
            date: "2026-01-01".to_owned(),
            seconds: 7_201,
            cores: 2,
            code: code.to_owned(),
            result: "flat".to_owned(),
        }
    }

    #[test]
    fn row_is_what_was_written() {
        let line = "soak\tcargo xtask soak --hours 2\tabc\t2026-01-01\t7201\t2\t00\tflat\n";
        let table = step::format_rows(&[soak_on("00")], true).expect("text");
        assert!(table.ends_with(line), "{table}");
        let parsed: Vec<Row> = step::parse_rows(&table).expect("a row");
        assert_eq!(parsed, [soak_on("00")]);
        let short = table.replace("\tflat", "");
        assert!(step::parse_rows::<Row>(&short).is_err());
    }

    #[test]
    fn line_says_whether_a_row_is_older_than_the_code() {
        let check = CHECKS.iter().find(|(name, ..)| *name == "soak");
        let line = |is_current| line(check.expect("soak"), Some(&soak_on("00")), is_current);
        let (old, new) = (line(false), line(true));
        assert!(old.contains("| flat | **older than the code** |"), "{old}");
        assert!(new.contains("| flat | this code |"), "{new}");
        assert!(new.contains("| 120 min 1 s | 2 cores |"), "{new}");
    }

    #[test]
    fn check_is_about_all_that_its_code_imports() {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (check, _, parts) in CHECKS {
            let parts: Vec<String> = with_imports(parts).collect();
            for part in parts.iter().filter(|part| part.starts_with("src/")) {
                let imports = imports
                    .entry(part.clone())
                    .or_insert_with(|| imports_of(part));
                let missing = imports.iter().find(|import| !parts.contains(import));
                assert_eq!(missing, None, "{check}: {part} has it");
            }
        }
    }

    /// The directories of the core that the code below this one names.
    fn imports_of(part: &str) -> BTreeSet<String> {
        let mut imports = BTreeSet::new();
        for (_, code) in size::code(part).expect("the code can be read") {
            for (at, _) in code.match_indices("crate::") {
                let rest = &code[at + "crate::".len()..];
                let end = rest.find(|c: char| !c.is_alphanumeric());
                let import = format!("src/{}", &rest[..end.unwrap_or(rest.len())]);
                if step::root().join(&import).is_dir() && import != "src/" {
                    imports.insert(import);
                }
            }
        }
        imports
    }

    #[test]
    fn check_is_a_flaw_if_it_never_ran_or_is_old() {
        let code = hash_for("explore auth").expect("the code can be read");
        let rows = [soak_on("00"), row_of("explore auth", &code)];
        let flaws = flaws(&rows).expect("the code can be read");
        assert_eq!(flaws.len(), CHECKS.len() - 1, "{flaws:?}");
        assert!(flaws.contains(&"miri: never run".to_owned()), "{flaws:?}");
        let old = "soak: the code was changed after abc: run `cargo xtask soak --hours 2`";
        assert!(flaws.contains(&old.to_owned()), "{flaws:?}");
    }
}

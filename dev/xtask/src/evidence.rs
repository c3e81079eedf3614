//! `cargo xtask evidence`: which long checks ran on which code, and whether that code has changed since.
//!
//! Each long command begins a [`Run`] and ends it with its result. The rows are in `docs/evidence.tsv`, and `docs/EVIDENCE.md` shows them. Must not
//! run or judge a check.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::size;
use crate::step::{self, Done, Outcome, commit, output, root};

const TABLE: &str = "docs/evidence.tsv";
const PAGE: &str = "docs/EVIDENCE.md";
const HEAD: &str = "check\tcommand\tcommit\tdate\tseconds\tcores\tcode\tresult";

/// A check that takes too long for every change.
struct Check {
    name: &'static str,
    /// The page that tells the result whole, if there is one.
    page: Option<&'static str>,
    code: Code,
}

/// The code that a check is about: what the page calls it, and its directories.
type Code = (&'static str, &'static [&'static str]);

const fn check(name: &'static str, page: Option<&'static str>, code: Code) -> Check {
    Check { name, page, code }
}

const SRC: Code = ("`src`", &["src"]);
const ADAPTERS: Code = ("`src`, `adapters`", &["src", "adapters"]);
const PROGRAM: Code = ("`src`, `adapters`, `cli`", &["src", "adapters", "cli"]);

/// Parts of the core, with those that every part may import.
macro_rules! with_imports {
    ($($part:literal),+) => {
        (
            concat!($("`", $part, "`, ",)+ "with imports"),
            &[$($part,)+ "src/driver", "src/http", "src/json", "src/protocol", "src/util", "src/wire"],
        )
    };
}

const AUTH: Code = with_imports!("src/auth");
const CLIENT: Code = with_imports!("src/client");
const SERVER: Code = with_imports!("src/server");
const LINKS: Code = with_imports!("src/client", "src/relay", "src/server");

const SIMULATION: Option<&str> = Some("SIMULATION.md");

const CHECKS: &[Check] = &[
    check("mutants", Some("MUTANTS.md"), ADAPTERS),
    check("fuzz", Some("FUZZING.md"), SRC),
    check("sim", SIMULATION, LINKS),
    check("auth-sim", SIMULATION, AUTH),
    check("fleet-sim", SIMULATION, SERVER),
    check("explore client", SIMULATION, CLIENT),
    check("explore client-http", SIMULATION, CLIENT),
    check("explore server", SIMULATION, SERVER),
    check("explore server-http", SIMULATION, SERVER),
    check("explore server-shared", SIMULATION, SERVER),
    check("explore relay", SIMULATION, LINKS),
    check("explore auth", SIMULATION, AUTH),
    check("miri", None, SRC),
    check("address sanitizer", None, ADAPTERS),
    check("thread sanitizer", None, ADAPTERS),
    check("soak", Some("SOAK.md"), PROGRAM),
];

const INTRODUCTION: &str = "\
# Evidence

These checks take from minutes to hours, so `cargo xtask test` does not run them. Each command writes its row here when it ends. A row has a hash of the code that
the check is about, without tests, comments and blank lines. `cargo xtask test` fails if this page does not say which rows are older than the code. A release needs
`cargo xtask evidence --check`, which fails if there is such a row.
";

/// The text below the table.
const REST: &str = include_str!("evidence.md");

/// A check that runs.
pub(crate) struct Run {
    row: Row,
    start: Instant,
}

impl Run {
    /// Remembers the command, the commit and the code at the beginning.
    pub(crate) fn begin(check: &str, command: &str) -> Result<Run, String> {
        let row = Row {
            check: check.to_owned(),
            command: format!("cargo xtask {command}"),
            commit: commit()?,
            date: date()?,
            seconds: 0,
            cores: cores(),
            code: hash_for(check)?,
            result: String::new(),
        };
        let start = Instant::now();
        Ok(Run { row, start })
    }

    /// Writes the row of a check that passed, with a result for the reader. The code must be the one at the beginning.
    pub(crate) fn end(mut self, result: &str) -> Result<(), String> {
        if hash_for(&self.row.check)? != self.row.code {
            return Err("the code was changed while the check ran: run it again".into());
        }
        self.row.seconds = self.start.elapsed().as_secs();
        self.row.result = result.to_owned();
        record(self.row)
    }
}

/// The last run of a check that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    fn parse(line: &str) -> Option<Row> {
        let cells: Vec<&str> = line.split('\t').collect();
        let &[check, command, commit, date, seconds, cores, code, result] = &*cells else {
            return None;
        };
        Some(Row {
            check: check.into(),
            command: command.into(),
            commit: commit.into(),
            date: date.into(),
            seconds: seconds.parse().ok()?,
            cores: cores.parse().ok()?,
            code: code.into(),
            result: result.into(),
        })
    }

    fn line(&self) -> String {
        let Row {
            check,
            command,
            commit,
            date,
            seconds,
            cores,
            code,
            result,
        } = self;
        format!("{check}\t{command}\t{commit}\t{date}\t{seconds}\t{cores}\t{code}\t{result}\n")
    }
}

/// Writes the page, and prints the checks that have to run again.
pub(crate) fn run() -> Result<(), String> {
    let rows = rows()?;
    write_page(&rows)?;
    for flaw in flaws(&rows)? {
        eprintln!("{flaw}");
    }
    eprintln!("written to {PAGE}");
    Ok(())
}

/// Fails if the page does not show the rows as they are.
pub(crate) fn check_page() -> Outcome {
    if step::read(PAGE)? == page(&rows()?)? {
        return Ok(Done::Passed);
    }
    Err(format!(
        "{PAGE} does not say which checks are older than the code: run `cargo xtask evidence`"
    ))
}

/// Fails if a check did not run on the code as it is.
pub(crate) fn check_all() -> Outcome {
    let flaws = flaws(&rows()?)?;
    if flaws.is_empty() {
        return check_page();
    }
    Err(flaws.join("\n"))
}

/// Replaces the row of a check, and writes the page again.
pub(crate) fn record(row: Row) -> Result<(), String> {
    let mut rows = rows()?;
    rows.retain(|other| other.check != row.check);
    rows.push(row);
    let place = |row: &Row| CHECKS.iter().position(|check| check.name == row.check);
    rows.sort_by_key(place);
    let lines: String = rows.iter().map(Row::line).collect();
    step::write(TABLE, format!("{HEAD}\n{lines}"))?;
    write_page(&rows)
}

/// Returns the hash of the code that a check is about.
pub(crate) fn hash_for(check: &str) -> Result<String, String> {
    let known = CHECKS.iter().find(|known| known.name == check);
    let known = known.ok_or_else(|| format!("there is no check `{check}`"))?;
    Hashes::default().of(known.code.1)
}

pub(crate) fn date() -> Result<String, String> {
    output(Command::new("date").args(["-u", "+%Y-%m-%d"]))
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn rows() -> Result<Vec<Row>, String> {
    let table = fs::read_to_string(root().join(TABLE)).unwrap_or_default();
    let lines = table.lines().skip(1);
    let rows = lines.map(|line| Row::parse(line).ok_or_else(|| format!("{TABLE}: {line}")));
    rows.collect()
}

/// The digest of the code below each directory that a check is about.
#[derive(Default)]
struct Hashes(BTreeMap<&'static str, Vec<u8>>);

impl Hashes {
    /// The hash of the code in these directories: eight bytes in hexadecimal.
    fn of(&mut self, parts: &[&'static str]) -> Result<String, String> {
        let mut hasher = Sha256::new();
        for part in parts {
            if !self.0.contains_key(part) {
                self.0.insert(part, digest(part)?);
            }
            hasher.update(&self.0[part]);
        }
        let bytes = hasher.finalize();
        Ok(bytes[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }
}

/// SHA-256 over the code below a directory.
fn digest(part: &str) -> Result<Vec<u8>, String> {
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

fn states(rows: &[Row]) -> Result<Vec<State<'_>>, String> {
    let mut hashes = Hashes::default();
    let state = |check: &'static Check| {
        let hash = hashes.of(check.code.1)?;
        let row = rows.iter().find(|row| row.check == check.name);
        Ok((check, row, row.is_some_and(|row| row.code == hash)))
    };
    CHECKS.iter().map(state).collect()
}

/// The checks that have to run, with the reason.
fn flaws(rows: &[Row]) -> Result<Vec<String>, String> {
    let mut flaws = Vec::new();
    for (check, row, is_current) in states(rows)? {
        match row {
            None => flaws.push(format!("{}: never run", check.name)),
            Some(row) if !is_current => flaws.push(format!(
                "{}: the code was changed after {}: run `{}`",
                check.name, row.commit, row.command
            )),
            Some(_) => {}
        }
    }
    Ok(flaws)
}

fn write_page(rows: &[Row]) -> Result<(), String> {
    step::write(PAGE, page(rows)?)
}

fn page(rows: &[Row]) -> Result<String, String> {
    let mut page = format!("{INTRODUCTION}\n");
    page += "| check | of | result | state | command | commit | date | duration | machine |\n|---|---|---|---|---|---|---|--:|---|\n";
    for (check, row, is_current) in states(rows)? {
        let (parts, _) = check.code;
        let Some(row) = row else {
            let name = check.name;
            let _ = writeln!(page, "| {name} | {parts} | | **never run** | | | | | |");
            continue;
        };
        let name = match check.page {
            Some(page) => format!("[{}]({page})", check.name),
            None => check.name.to_owned(),
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
        let _ = writeln!(
            page,
            "| {name} | {parts} | {result} | {state} | `{command}` | {commit} | {date} | {minutes} min {seconds} s | {cores} cores |"
        );
    }
    Ok(format!("{page}\n{REST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soak_on(code: &str) -> Row {
        let line =
            format!("soak\tcargo xtask soak --hours 2\tabc\t2026-01-01\t7201\t2\t{code}\tflat");
        Row::parse(&line).expect("it has eight cells")
    }

    #[test]
    fn row_is_what_was_written() {
        let row = soak_on("00");
        assert_eq!(Row::parse(row.line().trim_end()), Some(row));
        assert_eq!(Row::parse("soak\tcargo"), None);
    }

    #[test]
    fn page_says_that_a_row_is_older_than_the_code() {
        let old = page(&[soak_on("00")]).expect("the code can be read");
        assert!(old.contains("| flat | **older than the code** |"), "{old}");
        let code = hash_for("soak").expect("the code can be read");
        let new = page(&[soak_on(&code)]).expect("the code can be read");
        assert!(new.contains("| flat | this code |"), "{new}");
        assert!(new.contains("| 120 min 1 s | 2 cores |"), "{new}");
    }

    #[test]
    fn check_is_about_all_that_its_code_imports() {
        for check in CHECKS {
            let (_, parts) = check.code;
            for part in parts.iter().filter(|part| part.starts_with("src/")) {
                for (path, code) in size::code(part).expect("the code can be read") {
                    for (at, _) in code.match_indices("crate::") {
                        let rest = &code[at + "crate::".len()..];
                        let end = rest.find(|c: char| !c.is_alphanumeric());
                        let import = format!("src/{}", &rest[..end.unwrap_or(rest.len())]);
                        let is_outside = root().join(&import).is_dir()
                            && import != "src/"
                            && !parts.contains(&&*import);
                        assert!(!is_outside, "{}: {path:?} has {import}", check.name);
                    }
                }
            }
        }
    }

    #[test]
    fn check_that_never_ran_and_one_that_is_old_are_flaws() {
        let flaws = flaws(&[soak_on("00")]).expect("the code can be read");
        assert_eq!(flaws.len(), CHECKS.len());
        assert!(flaws.contains(&"miri: never run".to_owned()), "{flaws:?}");
        let old = "soak: the code was changed after abc: run `cargo xtask soak --hours 2`";
        assert!(flaws.contains(&old.to_owned()), "{flaws:?}");
    }
}

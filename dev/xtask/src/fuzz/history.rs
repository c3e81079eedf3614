//! Keeps a row for each run of a fuzz target in `docs/fuzzing.tsv`, and writes `docs/FUZZING.md` from all of them. Runs nothing.

use core::fmt;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use super::report::Run;
use crate::evidence::cores;
use crate::step::{commit, output, read, root, write};

const TABLE: &str = "docs/fuzzing.tsv";
const PAGE: &str = "docs/FUZZING.md";
/// The handwritten part of the page.
const FINDINGS: &str = "fuzz/findings.md";

const COLUMNS: &str = "date\tcommit\tcores\tminutes of the command\ttarget\tCPU seconds\texecutions\t\
    edges at the start\tedges at the end\tfeatures at the start\tfeatures at the end\tinputs\tfindings";

/// One run of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// When the command began. All rows of one command have the same.
    date: String,
    commit: String,
    pub(super) cores: u64,
    /// The time that the command was given.
    pub(super) minutes: u64,
    target: String,
    cpu_seconds: f64,
    executions: u64,
    /// At the start, and at the end. Zero at the start if the corpus breaks a rule.
    edges: [u64; 2],
    features: [u64; 2],
    inputs: u64,
    findings: u64,
}

impl Row {
    /// The cells that all runs of a command share. The command begins now.
    pub(super) fn of_command(minutes: u64) -> Result<Row, String> {
        Ok(Row {
            date: output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?,
            commit: commit()?,
            cores: cores() as u64,
            minutes,
            ..Row::default()
        })
    }

    /// The row of a run that is part of the same command.
    pub(super) fn with(&self, target: &str, run: &Run, has_finding: bool) -> Row {
        let (before, after) = (run.before.unwrap_or_default(), run.after);
        Row {
            target: target.into(),
            cpu_seconds: run.cpu_seconds,
            executions: after.executions,
            edges: [before.edges, after.edges],
            features: [before.features, after.features],
            inputs: after.inputs,
            findings: has_finding.into(),
            ..self.clone()
        }
    }

    fn read(line: &str) -> Option<Row> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [date, commit, cores, minutes, target, cpu, rest @ ..] = &cells[..] else {
            return None;
        };
        let rest: Result<Vec<u64>, _> = rest.iter().map(|cell| cell.parse()).collect();
        let [executions, e0, e1, f0, f1, inputs, findings] = rest.ok()?.try_into().ok()?;
        Some(Row {
            date: (*date).into(),
            commit: (*commit).into(),
            cores: cores.parse().ok()?,
            minutes: minutes.parse().ok()?,
            target: (*target).into(),
            cpu_seconds: cpu.parse().ok()?,
            executions,
            edges: [e0, e1],
            features: [f0, f1],
            inputs,
            findings,
        })
    }
}

/// As a line of the table.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row {
            date,
            commit,
            cores,
            minutes,
            target,
            cpu_seconds,
            executions,
            edges: [e0, e1],
            features: [f0, f1],
            inputs,
            findings,
        } = self;
        write!(
            f,
            "{date}\t{commit}\t{cores}\t{minutes}\t{target}\t{cpu_seconds:.1}\t{executions}\t"
        )?;
        write!(f, "{e0}\t{e1}\t{f0}\t{f1}\t{inputs}\t{findings}")
    }
}

/// Adds a row. It is written at once, so that a run that is cut short keeps the rows before.
pub(super) fn append(row: &Row) -> Result<(), String> {
    let failed = |error| format!("{TABLE} cannot be written: {error}");
    let path = root().join(TABLE);
    let header = if path.exists() {
        ""
    } else {
        &format!("{COLUMNS}\n")
    };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One call, so that the lines of two runs do not mix.
    let line = format!("{header}{row}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(failed)
}

/// Writes the page. Returns the CPU hours of all runs.
pub(super) fn write_page() -> Result<f64, String> {
    if !root().join(Path::new(TABLE)).exists() {
        return Err(format!("there is no {TABLE}: nothing was run yet"));
    }
    let rows = rows(&read(TABLE)?)?;
    write(PAGE, page(&rows, &read(FINDINGS)?))?;
    Ok(Sum::of(&rows).cpu_seconds / 3_600.0)
}

fn rows(table: &str) -> Result<Vec<Row>, String> {
    let lines = table.lines().enumerate().skip(1);
    let row = |(at, line)| Row::read(line).ok_or(format!("line {} of {TABLE} is no row", at + 1));
    lines.map(row).collect()
}

/// The sums of several rows.
#[derive(Default)]
struct Sum {
    runs: usize,
    cpu_seconds: f64,
    executions: u64,
    findings: u64,
}

impl Sum {
    fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Sum {
        rows.into_iter().fold(Sum::default(), |sum, row| Sum {
            runs: sum.runs + 1,
            cpu_seconds: sum.cpu_seconds + row.cpu_seconds,
            executions: sum.executions + row.executions,
            findings: sum.findings + row.findings,
        })
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.cpu_seconds / 3_600.0;
        write!(
            f,
            "{hours:.2} | {} | {}",
            grouped(self.executions),
            self.findings
        )
    }
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn group<'a>(rows: &'a [Row], by: impl Fn(&'a Row) -> &'a str) -> BTreeMap<&'a str, Vec<&'a Row>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows {
        groups.entry(by(row)).or_default().push(row);
    }
    groups
}

fn page(rows: &[Row], findings: &str) -> String {
    let (targets, commands) = (group(rows, |row| &row.target), group(rows, |row| &row.date));
    let all = Sum::of(rows);
    let mut page = format!(
        "# Fuzzing\n\n\
         `cargo xtask fuzz` writes this page, from [`docs/fuzzing.tsv`](fuzzing.tsv) with a row for each run, and from `{FINDINGS}`.\n\n\
         In all: {} commands, {:.2} CPU hours, {} executions of {} targets. Executions and CPU time are those of the fuzzers' own processes, \
         without the time to compile. CPU time is the sum of user and system time as the kernel counts it for each process.\n\n\
         ## Targets\n\n\
         An edge is a branch of the code of the target, the core and the crates that it uses, as libFuzzer counts them (`cov`). A feature is an edge \
         with how often it is taken (`ft`). Edges and features are those of the last run, at its start and at its end. Inputs are those of the corpus \
         on the machine at the end; `fuzz/corpus` has the few that take every edge.\n\n\
         | target | runs | CPU hours | executions | findings | edges | features | inputs |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
        commands.len(),
        all.cpu_seconds / 3_600.0,
        grouped(all.executions),
        targets.len(),
    );
    for (target, rows) in targets {
        let sum = Sum::of(rows.iter().copied());
        let last = rows.iter().max_by_key(|row| &row.date);
        let Some(Row {
            edges: [e0, e1],
            features: [f0, f1],
            inputs,
            ..
        }) = last
        else {
            continue;
        };
        page += &format!(
            "| `{target}` | {} | {sum} | {} → {} | {} → {} | {} |\n",
            sum.runs,
            grouped(*e0),
            grouped(*e1),
            grouped(*f0),
            grouped(*f1),
            grouped(*inputs)
        );
    }
    page += &format!("| all | {} | {all} | | | |\n\n", all.runs);
    page += "## Commands\n\n\
        | began | commit | command | cores | targets | CPU hours | executions | findings |\n|---|---|---|--:|--:|--:|--:|--:|\n";
    for (date, rows) in commands {
        let (sum, first) = (Sum::of(rows.iter().copied()), rows[0]);
        let mut names: Vec<&str> = rows.iter().map(|row| &*row.target).collect();
        names.sort_unstable();
        names.dedup();
        page += &format!(
            "| {date} | {} | `cargo xtask fuzz --minutes {}` | {} | {} | {sum} |\n",
            first.commit,
            first.minutes,
            first.cores,
            names.len()
        );
    }
    page + "\n" + findings
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Row, grouped, page, rows};

    const LINE: &str = "2026-01-02T03:04Z\tabc\t2\t5\tsse\t1800.5\t1234567\t10\t20\t30\t40\t7\t1";

    #[test]
    fn row_is_read_as_it_was_written() {
        let row = Row::read(LINE).expect("a row");
        assert_eq!(row.to_string(), LINE);
        assert_eq!(COLUMNS.split('\t').count(), LINE.split('\t').count());
        assert_eq!(Row::read("a\tb"), None);
        assert!(
            rows(&format!("{COLUMNS}\n{LINE}\nx\n")).is_err_and(|error| error.contains("line 3"))
        );
    }

    #[test]
    fn page_adds_runs_up() {
        let later = LINE.replace("02T", "03T").replace("\t20\t", "\t25\t");
        let table = format!("{COLUMNS}\n{LINE}\n{LINE}\n{later}\n");
        let page = page(&rows(&table).expect("rows"), "## Findings\n");
        let target = "| `sse` | 3 | 1.50 | 3,703,701 | 3 | 10 → 25 | 30 → 40 | 7 |";
        assert!(page.contains(target), "{page}");
        let command = "| 2026-01-02T03:04Z | abc | `cargo xtask fuzz --minutes 5` | 2 | 1 | 1.00 | 2,469,134 | 2 |";
        assert!(page.contains(command), "{page}");
        assert!(page.contains("2 commands, 1.50 CPU hours"), "{page}");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}

//! Keeps a row for each run of a fuzz target in `docs/fuzzing.tsv`, and writes `docs/FUZZING.md` from all of them. Runs nothing.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use fs_err::OpenOptions;
use serde::{Deserialize, Serialize};

use super::report::Run;
use crate::step::{self, commit, cores, read, root, with_commas};

const TABLE: &str = "docs/fuzzing.tsv";
const PAGE: &str = "docs/FUZZING.md";
/// The handwritten part of the page.
const FINDINGS: &str = "fuzz/findings.md";
/// The rest of the page, with places for the figures.
const TEMPLATE: &str = include_str!("page.md");

/// One run of a target. Edges and features at the start are zero if the corpus breaks a rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Row {
    /// When the command began. All rows of one command have the same.
    date: String,
    commit: String,
    pub(super) cores: u64,
    /// The time that the command was given.
    #[serde(rename = "minutes of the command")]
    pub(super) minutes: u64,
    target: String,
    #[serde(rename = "CPU seconds")]
    cpu_seconds: f64,
    executions: u64,
    #[serde(rename = "edges at the start")]
    first_edges: u64,
    #[serde(rename = "edges at the end")]
    edges: u64,
    #[serde(rename = "features at the start")]
    first_features: u64,
    #[serde(rename = "features at the end")]
    features: u64,
    inputs: u64,
    findings: u64,
}

impl Row {
    /// The cells that all runs of a command share. The command begins now.
    pub(super) fn of_command(minutes: u64) -> Result<Row> {
        Ok(Row {
            date: step::date("+%Y-%m-%dT%H:%MZ")?,
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
            cpu_seconds: (run.cpu_seconds * 10.0).round() / 10.0,
            executions: after.executions,
            first_edges: before.edges,
            edges: after.edges,
            first_features: before.features,
            features: after.features,
            inputs: after.inputs,
            findings: has_finding.into(),
            ..self.clone()
        }
    }
}

/// Adds a row. It is written at once, so that a run that is cut short keeps the rows before.
pub(super) fn append(row: &Row) -> Result<()> {
    let path = root().join(TABLE);
    // One call, so that the lines of two runs do not mix.
    let line = step::format_rows(&[row], !path.exists())?;
    eprint!("{line}");
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(file.write_all(line.as_bytes())?)
}

/// Writes the page. Returns the CPU hours of all runs.
pub(super) fn write_page() -> Result<f64> {
    let rows: Vec<Row> = step::parse_rows(&read(TABLE)?).context(TABLE)?;
    step::write_page(PAGE, &(page(&rows) + &read(FINDINGS)?))?;
    Ok(Sum::of(&rows).hours)
}

/// The sums of several rows.
#[derive(Default)]
struct Sum {
    runs: usize,
    hours: f64,
    executions: u64,
    findings: u64,
}

impl Sum {
    fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Sum {
        rows.into_iter().fold(Sum::default(), |sum, row| Sum {
            runs: sum.runs + 1,
            hours: sum.hours + row.cpu_seconds / 3_600.0,
            executions: sum.executions + row.executions,
            findings: sum.findings + row.findings,
        })
    }

    fn cells(&self) -> String {
        let executions = with_commas(self.executions);
        format!("{:.2} | {executions} | {}", self.hours, self.findings)
    }
}

fn group<'a>(rows: &'a [Row], by: impl Fn(&'a Row) -> &'a str) -> BTreeMap<&'a str, Vec<&'a Row>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows {
        groups.entry(by(row)).or_default().push(row);
    }
    groups
}

fn page(rows: &[Row]) -> String {
    let (targets, commands) = (group(rows, |row| &row.target), group(rows, |row| &row.date));
    let all = Sum::of(rows);
    let sum = format!(
        "{} commands, {:.2} CPU hours, {} executions of {} targets",
        commands.len(),
        all.hours,
        with_commas(all.executions),
        targets.len(),
    );
    let targets: String = targets
        .into_values()
        .map(|rows| target_line(&rows))
        .collect();
    let targets = format!("{targets}| all | {} | {} | | | |\n", all.runs, all.cells());
    let commands: String = commands
        .into_values()
        .map(|rows| command_line(&rows))
        .collect();
    TEMPLATE
        .replace("{sum}", &sum)
        .replace("{targets}\n", &targets)
        .replace("{commands}\n", &commands)
}

fn target_line(rows: &[&Row]) -> String {
    let sum = Sum::of(rows.iter().copied());
    let last = rows.iter().max_by_key(|row| &row.date).unwrap_or(&rows[0]);
    let figures = [
        last.first_edges,
        last.edges,
        last.first_features,
        last.features,
        last.inputs,
    ];
    let [e0, e1, f0, f1, inputs] = figures.map(with_commas);
    let (target, cells) = (&last.target, sum.cells());
    format!(
        "| `{target}` | {} | {cells} | {e0} → {e1} | {f0} → {f1} | {inputs} |\n",
        sum.runs
    )
}

fn command_line(rows: &[&Row]) -> String {
    let cells = Sum::of(rows.iter().copied()).cells();
    let mut names: Vec<&str> = rows.iter().map(|row| &*row.target).collect();
    names.sort_unstable();
    names.dedup();
    let Row {
        date,
        commit,
        minutes,
        cores,
        ..
    } = rows[0];
    let targets = names.len();
    format!(
        "| {date} | {commit} | `cargo xtask fuzz --minutes {minutes}` | {cores} | {targets} | {cells} |\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = "date\tcommit\tcores\tminutes of the command\ttarget\tCPU seconds\texecutions\t\
        edges at the start\tedges at the end\tfeatures at the start\tfeatures at the end\tinputs\tfindings";
    const LINE: &str = "2026-01-02T03:04Z\tabc\t2\t5\tsse\t1800.5\t1234567\t10\t20\t30\t40\t7\t1";

    fn rows(table: &str) -> Result<Vec<Row>> {
        step::parse_rows(table)
    }

    #[test]
    fn row_is_read_as_it_was_written() {
        let table = format!("{COLUMNS}\n{LINE}\n");
        let rows = rows(&table).expect("a row");
        assert_eq!(step::format_rows(&rows, true).expect("text"), table);
        let short = self::rows(&format!("{table}x\n")).expect_err("a short line");
        assert!(format!("{short:#}").contains("line: 3"), "{short:#}");
    }

    #[test]
    fn page_adds_runs_up() {
        let later = LINE.replace("02T", "03T").replace("\t20\t", "\t25\t");
        let table = format!("{COLUMNS}\n{LINE}\n{LINE}\n{later}\n");
        let page = page(&rows(&table).expect("rows"));
        let target = "| `sse` | 3 | 1.50 | 3,703,701 | 3 | 10 → 25 | 30 → 40 | 7 |";
        assert!(page.contains(target), "{page}");
        let command = "| 2026-01-02T03:04Z | abc | `cargo xtask fuzz --minutes 5` | 2 | 1 | 1.00 | 2,469,134 | 2 |";
        assert!(page.contains(command), "{page}");
        assert!(page.contains("2 commands, 1.50 CPU hours"), "{page}");
    }
}

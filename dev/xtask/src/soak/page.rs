//! Writes the page of a run, and draws its plots.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;

use super::samples::Samples;
use super::verdict::{PERCENT, Verdict};
use crate::bench::lines::{Chart, Line};
use crate::bench::plot;
use crate::evidence::Row;

/// The page, with places for the figures.
const TEMPLATE: &str = include_str!("page.md");

/// A run with its verdict.
pub(super) struct Run {
    pub(super) samples: Samples,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) summary: Summary,
    /// Text by people about such runs.
    pub(super) findings: String,
    /// Whether the run is too short to judge memory: caches are still being filled.
    pub(super) is_short: bool,
    /// The command, the commit, the date, and the machine.
    pub(super) row: Row,
}

/// The counts of calls, and what went wrong.
#[derive(Deserialize)]
pub(super) struct Summary {
    pub(super) seconds: u64,
    stdio: Part,
    http: Part,
    fleet: Part,
    run: Part,
}

/// The counts of a part. The part of the run as a whole has no calls.
#[derive(Deserialize)]
pub(super) struct Part {
    #[serde(default)]
    pub(super) calls: u64,
    #[serde(default)]
    outcomes: BTreeMap<String, u64>,
    #[serde(default)]
    events: BTreeMap<String, u64>,
    violations: u64,
    texts: Vec<String>,
}

impl Summary {
    /// The parts with calls, and their names for the reader.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, &Part)> {
        let names = ["guard over stdio", "guard over HTTP", "fleet"];
        names
            .into_iter()
            .zip([&self.stdio, &self.http, &self.fleet])
    }
}

const MIB: f64 = (1 << 20) as f64;

/// The processes whose memory is plotted, and the column.
const MEMORY: [(&str, &str, &str); 4] = [
    ("stdio guard", "rss", "Guard over stdio: resident memory"),
    ("http guard", "rss", "Guard over HTTP: resident memory"),
    ("node 1", "rss", "Node of the fleet: resident memory"),
    ("redis", "used", "Redis: memory in use"),
];

/// The processes whose counts are plotted.
const COUNTS: [(&str, &str); 3] = [
    ("stdio guard", "Guard over stdio"),
    ("http guard", "Guard over HTTP"),
    ("node 1", "Node of the fleet"),
];

impl Run {
    /// The reasons for a failure.
    pub(super) fn problems(&self) -> Vec<String> {
        let verdicts = self.verdicts.iter();
        let grown = verdicts.filter(|verdict| self.is_judged(verdict) && !verdict.holds());
        let grown = grown.map(|verdict| {
            let [second, last] = [verdict.second, verdict.last].map(|value| shown(verdict, value));
            let (process, what) = (verdict.rule.process, verdict.rule.what);
            format!("{process}: {what} grew from {second} to {last}")
        });
        let parts = self.summary.parts().chain([("run", &self.summary.run)]);
        let violated = parts.filter(|(_, part)| part.violations > 0);
        let violated = violated.map(|(name, part)| {
            let first = part.texts.first().map_or("unknown", String::as_str);
            format!("{name}: {} violations, the first: {first}", part.violations)
        });
        grown.chain(violated).collect()
    }

    /// Whether a figure says something in a run of this length.
    fn is_judged(&self, verdict: &Verdict) -> bool {
        !(self.is_short && verdict.is_memory())
    }

    pub(super) fn page(&self) -> String {
        let problems = self.problems();
        let verdict = match (problems.is_empty(), self.is_short) {
            (true, true) => {
                "**No call without exactly one outcome. The run is too short to judge memory.**"
                    .to_owned()
            }
            (true, false) => format!(
                "**Verdict: flat within {PERCENT} %, and no call without exactly one outcome.**"
            ),
            (false, _) => format!("**Verdict: failed.**\n\n- {}", problems.join("\n- ")),
        };
        let cores = match self.row.cores {
            2 => "two cores".to_owned(),
            cores => format!("{cores} cores"),
        };
        let findings = match self.findings.as_str() {
            "" => String::new(),
            findings => format!("\n## Findings\n\n{findings}"),
        };
        let seconds = self.summary.seconds;
        let figures = [
            ("{command}", self.row.command.clone()),
            ("{commit}", self.row.commit.clone()),
            ("{date}", self.row.date.clone()),
            (
                "{duration}",
                format!("{} min {} s", seconds / 60, seconds % 60),
            ),
            ("{cores}", cores),
            ("{rests}", self.samples.rests().to_string()),
            ("{verdict}", verdict),
            ("{verdicts}", self.verdict_table()),
            ("{calls}", self.call_table()),
            ("{findings}", findings),
        ];
        let fill = |page: String, (place, text): &(&str, String)| page.replace(place, text);
        figures.iter().fold(TEMPLATE.to_owned(), fill)
    }

    pub(super) fn verdict_table(&self) -> String {
        let mut table = "| process | what | second sixth | last sixth | growth | verdict |\n|---|---|--:|--:|--:|---|\n".to_owned();
        for verdict in &self.verdicts {
            let growth = match verdict.is_memory() {
                true => format!("{:+.1} %", verdict.growth()),
                false => format!("{:+}", verdict.last - verdict.second),
            };
            let result = match verdict.holds() {
                _ if !self.is_judged(verdict) => "not judged: too short",
                true => "flat",
                false => "**grows**",
            };
            let [second, last] = [verdict.second, verdict.last].map(|value| shown(verdict, value));
            let (process, what) = (verdict.rule.process, verdict.rule.what);
            table += &format!("| {process} | {what} | {second} | {last} | {growth} | {result} |\n");
        }
        table
    }

    fn call_table(&self) -> String {
        let mut table = "| part | calls | outcomes | faults and other events | violations |\n|---|--:|---|---|--:|\n".to_owned();
        for (name, part) in self.summary.parts() {
            let (outcomes, events) = (list(&part.outcomes), list(&part.events));
            let (calls, violations) = (part.calls, part.violations);
            table += &format!("| {name} | {calls} | {outcomes} | {events} | {violations} |\n");
        }
        table
    }

    /// The plots, with the names of their files.
    pub(super) fn plots(&self) -> Result<[(&'static str, String); 2]> {
        let memory = MEMORY.map(|(process, column, title)| Chart {
            title: title.to_owned(),
            about: "MiB, by minutes".to_owned(),
            lines: vec![
                self.line("under load", process, column, (false, MIB)),
                self.line("at rest", process, column, (true, MIB)),
            ],
        });
        let counts = COUNTS.map(|(process, title)| Chart {
            title: title.to_owned(),
            about: "counts at rest, by minutes".to_owned(),
            lines: ["descriptors", "threads", "children"]
                .map(|column| self.line(column, process, column, (true, 1.0)))
                .into(),
        });
        Ok([
            ("soak-memory.svg", plot::draw("soak: memory", &memory)?),
            ("soak-counts.svg", plot::draw("soak: counts", &counts)?),
        ])
    }

    /// A line of a column at rest or under load, in a unit.
    fn line(&self, name: &str, process: &str, column: &str, (at_rest, unit): (bool, f64)) -> Line {
        let points = self.samples.series(process, column, at_rest);
        Line {
            name: name.to_owned(),
            is_strong: at_rest,
            points: points
                .into_iter()
                .map(|(seconds, value)| (seconds / 60.0, value / unit))
                .collect(),
        }
    }
}

/// A value for the reader.
fn shown(verdict: &Verdict, value: f64) -> String {
    match verdict.is_memory() {
        true => format!("{:.2} MiB", value / MIB),
        false => value.to_string(),
    }
}

/// The names with their counts.
fn list(counts: &BTreeMap<String, u64>) -> String {
    let entries = counts
        .iter()
        .map(|(name, count)| format!("{name}: {count}"));
    entries.collect::<Vec<_>>().join(", ")
}

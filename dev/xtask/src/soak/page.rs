//! Writes the page of a run, and draws its plots.

use core::fmt::Write;

use serde_json::Value;

use super::samples::Samples;
use super::verdict::{PERCENT, Verdict};
use crate::bench::lines::{Chart, Line};
use crate::bench::plot;

/// A run with its verdict.
pub(super) struct Run {
    pub(super) samples: Samples,
    pub(super) verdicts: Vec<Verdict>,
    /// The counts of calls, and what went wrong.
    pub(super) summary: Value,
    /// Text by people about such runs.
    pub(super) findings: String,
    /// Whether the run is too short to judge memory: caches are still being filled.
    pub(super) is_short: bool,
    /// The command, the commit, the date, and the machine.
    pub(super) about: Value,
}

/// The parts of a run: the name in the summary, and the words for the reader.
const PARTS: [(&str, &str); 3] = [
    ("stdio", "guard over stdio"),
    ("http", "guard over HTTP"),
    ("fleet", "fleet"),
];

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

const INTRODUCTION: &str = "\
`cargo xtask soak --hours N` writes this page. Three things run at the same time for that long, as real processes, while faults happen:

- **A guard over stdio**, with one host that calls from four threads: small and large messages (up to 256 KiB), several at once, with progress, some
  cancelled. Its server is killed, stopped and continued, or stopped for good. In calls, it exits, floods standard error, writes garbage, ends in the
  middle of a line, stops, or kills itself.
- **A guard over HTTP**, with eight hosts at a time: they connect, call in both eras, disconnect in the middle of a stream, resume it, go away without reading
  a reply, and leave half of their sessions behind. Its server has the same faults. Before the run, 1,024 sessions are left behind, so that the guard's table of
  sessions is full from the beginning.
- **A fleet**: three nodes with Redis behind nginx, with 20 clients whose sessions are replaced after 25 calls. Every 12 s, node 2 or node 3 is killed, or, every
  tenth time, Redis is restarted. Node 1 is never killed, so that its memory can be judged.
";

const RULE: &str = "\
From time to time the load and the faults pause. When no call is in flight and each server has answered a call, a sample is taken *at rest*: what a process uses
then is what it keeps. The run is cut into six equal parts. The first is the warm-up. The median at rest of the second part is compared with that of the last:

- Memory may grow by at most 2 %.
- Descriptors, threads and child processes may not grow at all. At a node, the connections that nginx keeps open are not counted: nginx keeps up to 64.
- Keys in Redis may grow by at most 5, because the queue of a dead node is kept for 60 s.
- No sample at rest may show a zombie. At the end, each guard must exit with success within 30 s, and no process of the run may be left.
- Every call must have exactly one outcome, and a reply must be that of its own call.

It does not count as growth that memory falls. Samples under load are drawn in the plots, and not judged.
";

impl Run {
    /// The reasons for a failure.
    pub(super) fn problems(&self) -> Vec<String> {
        let judged = self
            .verdicts
            .iter()
            .filter(|verdict| !(self.is_short && verdict.is_memory()));
        let grown = judged.filter(|verdict| !verdict.holds());
        let mut problems: Vec<String> = grown
            .map(|verdict| {
                format!(
                    "{}: {} grew from {} to {}",
                    verdict.rule.process,
                    verdict.rule.what,
                    shown(verdict, verdict.second),
                    shown(verdict, verdict.last)
                )
            })
            .collect();
        for part in ["stdio", "http", "fleet", "run"] {
            let count = self.summary[part]["violations"].as_u64().unwrap_or(1);
            if count > 0 {
                let text = self.summary[part]["texts"][0].as_str().unwrap_or("unknown");
                problems.push(format!("{part}: {count} violations, the first: {text}"));
            }
        }
        problems
    }

    pub(super) fn page(&self) -> String {
        let problems = self.problems();
        let mut page = format!("# Hours under faults\n\n{INTRODUCTION}\n");
        page += &self.about_table();
        let verdict = if problems.is_empty() && self.is_short {
            "**No call without exactly one outcome. The run is too short to judge memory.**"
                .to_owned()
        } else if problems.is_empty() {
            format!(
                "**Verdict: flat within {PERCENT} %, and no call without exactly one outcome.**"
            )
        } else {
            let list: String = problems.iter().map(|text| format!("\n- {text}")).collect();
            format!("**Verdict: failed.**\n{list}")
        };
        let _ = write!(page, "\n{verdict}\n\n## The rule\n\n{RULE}\n");
        let _ = write!(
            page,
            "## What is kept at rest\n\n{}\n",
            self.verdict_table()
        );
        page += "![memory over time](benchmarks/soak-memory.svg)\n\n![descriptors, threads and processes over time](benchmarks/soak-counts.svg)\n\n";
        let _ = write!(page, "## Calls and faults\n\n{}", self.call_table());
        if !self.findings.is_empty() {
            let _ = write!(page, "\n## Findings\n\n{}", self.findings);
        }
        page
    }

    fn about_table(&self) -> String {
        let text = |name: &str| self.about[name].as_str().unwrap_or("unknown").to_owned();
        let cores = match self.about["cores"].as_u64() {
            Some(2) => "two cores".to_owned(),
            Some(cores) => format!("{cores} cores"),
            None => "unknown".to_owned(),
        };
        let seconds = self.summary["seconds"].as_u64().unwrap_or_default();
        let rows = [
            ("command", format!("`{}`", text("command"))),
            ("commit", text("commit")),
            ("date", text("date")),
            (
                "duration",
                format!("{} min {} s", seconds / 60, seconds % 60),
            ),
            ("machine", cores),
            ("samples at rest", self.samples.rests().to_string()),
        ];
        let rows = rows.map(|(name, value)| format!("| {name} | {value} |\n"));
        format!("| run | |\n|---|---|\n{}", rows.concat())
    }

    pub(super) fn verdict_table(&self) -> String {
        let mut table = "| process | what | second sixth | last sixth | growth | verdict |\n|---|---|--:|--:|--:|---|\n".to_owned();
        for verdict in &self.verdicts {
            let growth = if verdict.is_memory() {
                format!("{:+.1} %", verdict.growth())
            } else {
                format!("{:+}", verdict.last - verdict.second)
            };
            let _ = writeln!(
                table,
                "| {} | {} | {} | {} | {growth} | {} |",
                verdict.rule.process,
                verdict.rule.what,
                shown(verdict, verdict.second),
                shown(verdict, verdict.last),
                match verdict.holds() {
                    _ if self.is_short && verdict.is_memory() => "not judged: too short",
                    true => "flat",
                    false => "**grows**",
                }
            );
        }
        table
    }

    fn call_table(&self) -> String {
        let mut table = "| part | calls | outcomes | faults and other events | violations |\n|---|--:|---|---|--:|\n".to_owned();
        for (part, name) in PARTS {
            let counts = &self.summary[part];
            let _ = writeln!(
                table,
                "| {name} | {} | {} | {} | {} |",
                counts["calls"],
                list(&counts["outcomes"]),
                list(&counts["events"]),
                counts["violations"]
            );
        }
        table
    }

    /// The plots, with the names of their files.
    pub(super) fn plots(&self) -> Result<[(&'static str, String); 2], String> {
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
    if verdict.is_memory() {
        format!("{:.2} MiB", value / MIB)
    } else {
        value.to_string()
    }
}

/// The entries of an object of counts.
fn list(counts: &Value) -> String {
    let entries = counts.as_object().into_iter().flatten();
    let entries: Vec<String> = entries
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    entries.join(", ")
}

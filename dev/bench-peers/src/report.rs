//! Samples as values, and the output lines that report them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::machine;

/// The era of the protocol.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    /// No difference between the eras, or no protocol.
    Both,
    Legacy,
    Modern,
}

/// A sample to take. Each one runs in its own process, so that nothing is left of the one before.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Task {
    pub(crate) work: String,
    pub(crate) case: String,
    pub(crate) era: Era,
    pub(crate) who: String,
    /// The size of the work: in most cases the number of calls.
    pub(crate) size: usize,
}

impl Task {
    pub(crate) fn new(work: &str, case: &str, era: Era, who: &str, size: usize) -> Task {
        Task {
            work: work.into(),
            case: case.into(),
            era,
            who: who.into(),
            size,
        }
    }

    /// Takes the sample in its own process.
    pub(crate) fn run(&self) -> Sample {
        let mut command = self.command();
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.expect("this program can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|_| {
            let (who, status) = (&self.who, output.status);
            eprintln!("{} {} {who}: no sample, {status}", self.work, self.case);
            Sample::default()
        })
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = machine::this_program();
        let task = serde_json::to_string(self).expect("this is JSON");
        command.arg("sample").arg(task);
        command
    }
}

/// The values of one sample by metric. A value is `None` if there was nothing to wait for; `note` says why.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) values: BTreeMap<String, Option<f64>>,
    #[serde(default)]
    pub(crate) note: Option<String>,
}

impl Sample {
    pub(crate) fn with(mut self, metric: &str, value: f64) -> Sample {
        self.values.insert(metric.into(), Some(value));
        self
    }

    pub(crate) fn without(mut self, metric: &str, note: &str) -> Sample {
        self.values.insert(metric.into(), None);
        self.with_note(note)
    }

    pub(crate) fn with_note(mut self, note: &str) -> Sample {
        self.note = Some(note.into());
        self
    }
}

/// A line of the output.
#[derive(Serialize)]
struct Row<'a> {
    work: &'a str,
    case: &'a str,
    era: Era,
    metric: &'a str,
    unit: &'a str,
    who: &'a str,
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// Takes every sample once in each round, so that a change of the machine's speed affects all alike. Prints the median of the rounds with
/// the lowest and the highest.
pub(crate) fn rounds(rounds: usize, tasks: &[Task]) {
    let mut all: Vec<Vec<Sample>> = tasks.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        if let Some(task) = tasks.first() {
            eprintln!("{}, {}: round {round} of {rounds}", task.work, task.case);
        }
        for (task, samples) in tasks.iter().zip(&mut all) {
            samples.push(task.run());
        }
    }
    for (task, samples) in tasks.iter().zip(&all) {
        print_rows(task, samples);
    }
}

/// Prints the rows for the samples of one task.
pub(crate) fn print_rows(task: &Task, samples: &[Sample]) {
    let Some(first) = samples.iter().find(|sample| !sample.values.is_empty()) else {
        return;
    };
    for metric in first.values.keys() {
        let values = samples
            .iter()
            .filter_map(|sample| sample.values.get(metric));
        let values: Option<Vec<f64>> = values.copied().collect();
        let mut values = values.unwrap_or_default();
        values.sort_by(f64::total_cmp);
        let row = Row {
            work: &task.work,
            case: &task.case,
            era: task.era,
            metric,
            unit: unit(metric),
            who: &task.who,
            value: median(&values).map(rounded),
            low: values.first().copied().map(rounded),
            high: values.last().copied().map(rounded),
            note: samples.iter().find_map(|sample| sample.note.as_deref()),
        };
        println!("{}", serde_json::to_string(&row).expect("this is JSON"));
    }
}

/// The unit of each metric.
fn unit(metric: &str) -> &'static str {
    match metric {
        "added" | "p50" | "p50 direct" | "p50 through" | "p99" | "time" => "us",
        "allocations" | "instructions" | "threads" | "wakeups" => "",
        "bytes" | "heap per client" | "heap per pair" | "rss per client" | "rss per pair" => "B",
        "cpu" | "cpu at 64" => "us/call",
        "error_after" | "error_after_kill" | "ready_after" => "ms",
        "throughput at 64" => "calls/s",
        other => unreachable!("{other} has a unit"),
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 0 => Some((sorted[half - 1] + sorted[half]) / 2.0),
        _ => Some(sorted[half]),
    }
}

/// Rounds to the digits that are significant.
fn rounded(value: f64) -> f64 {
    let digits = if value.abs() < 1000.0 { 1000.0 } else { 1.0 };
    (value * digits).round() / digits
}

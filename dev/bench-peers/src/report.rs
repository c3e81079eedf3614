//! What is measured, as values: which sample to take, what it showed, and the lines on standard output that tell of all of them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::machine;

/// Which era of the protocol is spoken.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    /// It makes no difference, or no protocol is spoken.
    Both,
    Legacy,
    Modern,
}

/// One sample to take, in a process of its own, so that nothing is left of the one before.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Task {
    pub(crate) work: String,
    pub(crate) case: String,
    pub(crate) era: Era,
    pub(crate) who: String,
    /// How much of it: in calls, most often.
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

    /// Takes the sample in a process of its own.
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

/// What one sample showed: a value for each metric, or none where there was nothing to wait for, and why.
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
        self.noting(note)
    }

    pub(crate) fn noting(mut self, note: &str) -> Sample {
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

/// Takes every sample once in each round, so that whatever the machine does meanwhile happens to all alike, and tells the median of the
/// rounds with the lowest and the highest.
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
        tell(task, samples);
    }
}

/// Tells what the samples of one task showed.
pub(crate) fn tell(task: &Task, samples: &[Sample]) {
    let Some(first) = samples.iter().find(|sample| !sample.values.is_empty()) else {
        return;
    };
    for metric in first.values.keys() {
        let seen = samples
            .iter()
            .filter_map(|sample| sample.values.get(metric));
        let seen: Option<Vec<f64>> = seen.copied().collect();
        let mut seen = seen.unwrap_or_default();
        seen.sort_by(f64::total_cmp);
        let row = Row {
            work: &task.work,
            case: &task.case,
            era: task.era,
            metric,
            unit: unit(metric),
            who: &task.who,
            value: middle(&seen).map(short),
            low: seen.first().copied().map(short),
            high: seen.last().copied().map(short),
            note: samples.iter().find_map(|sample| sample.note.as_deref()),
        };
        println!("{}", serde_json::to_string(&row).expect("this is JSON"));
    }
}

/// In what each metric is counted.
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

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 0 => Some((sorted[half - 1] + sorted[half]) / 2.0),
        _ => Some(sorted[half]),
    }
}

/// No more digits than mean anything.
fn short(value: f64) -> f64 {
    let digits = if value.abs() < 1000.0 { 1000.0 } else { 1.0 };
    (value * digits).round() / digits
}

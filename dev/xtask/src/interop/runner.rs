//! Runs one row: a program that prints a line of JSON for each step. Must not depend on who the peer is.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use fs_err as fs;
use serde_json::Value;

use super::row::{Row, STEPS};
use super::setup::Setup;

/// The limit for one row. A row that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(180);

/// The limit until a link is ready that loses its first process to the probe.
const READY_WITHIN: Duration = Duration::from_secs(3);

/// How often that is tried, so that other load on the machine does not decide.
const MAX_TRIES: usize = 3;

/// The result of a row.
#[derive(Default)]
pub(super) struct RowResult {
    /// The error of each step, if there is one.
    pub(super) steps: BTreeMap<&'static str, Result<(), String>>,
    /// The agreed version.
    pub(super) version: Option<String>,
    /// The time until the link was ready, if it is measured.
    pub(super) ready_after: Option<Duration>,
    /// The standard error, for a row with failed steps.
    pub(super) log: String,
}

pub(super) fn run_row(row: &Row, setup: &Setup) -> RowResult {
    let steps: Vec<&str> = row.steps().collect();
    let mut result = run_steps(row, setup, &steps);
    if row.is_measured() && setup.checks_time {
        for _ in 1..MAX_TRIES {
            if result.ready_after.is_none_or(|after| after <= READY_WITHIN) {
                break;
            }
            eprintln!("{}: {}; once more", row.name(), result.summary());
            result.ready_after = run_steps(row, setup, &["handshake"]).ready_after;
        }
        result.check_ready_time();
    }
    result.check_row(row);
    eprintln!("{}: {}", row.name(), result.summary());
    result
}

impl RowResult {
    fn record(&mut self, line: &Value) {
        let name = line["step"].as_str().unwrap_or_default();
        let Some(step) = STEPS.into_iter().find(|step| *step == name) else {
            return;
        };
        let note = line["note"].as_str().unwrap_or_default();
        let outcome = match line["ok"] == true {
            true => Ok(()),
            false => Err(note.to_owned()),
        };
        if let Some(version) = line["version"].as_str() {
            self.record_version(version);
        }
        if step == "handshake" {
            self.ready_after = line["ready_after_ms"].as_u64().map(Duration::from_millis);
        }
        // A step that is reported twice fails if one of the reports does.
        let before = self.steps.remove(&step).unwrap_or(Ok(()));
        self.steps.insert(step, before.and(outcome));
    }

    /// A later epoch may agree on another version.
    fn record_version(&mut self, version: &str) {
        self.version = Some(match self.version.take() {
            Some(before) if !before.ends_with(version) => format!("{before}, then {version}"),
            Some(before) => before,
            None => version.to_owned(),
        });
    }

    /// Checks that all expected steps were reported, no others, and that the version is right.
    fn check_row(&mut self, row: &Row) {
        for step in STEPS {
            let is_reported = self.steps.contains_key(&step);
            let problem = match (row.reason_unsupported(step), is_reported) {
                (None, false) => "nothing was said of it",
                (Some(_), true) => "the peer is said not to have it",
                (None, true) | (Some(_), false) => continue,
            };
            self.steps.insert(step, Err(problem.to_owned()));
        }
        if self.version.as_deref() != Some(&row.version) {
            let version = self.version.as_deref().unwrap_or("nothing");
            let problem = format!("{version} instead of {}", row.version);
            self.fail("handshake", problem);
        }
    }

    fn check_ready_time(&mut self) {
        let late = match self.ready_after {
            Some(after) if after <= READY_WITHIN => return,
            Some(after) => format!("ready only after {} ms", after.as_millis()),
            None => "nobody measured when it was ready".to_owned(),
        };
        self.fail("handshake", late);
    }

    /// Keeps the first error of a step.
    fn fail(&mut self, step: &'static str, error: String) {
        let outcome = self.steps.entry(step).or_insert(Ok(()));
        if outcome.is_ok() {
            *outcome = Err(error);
        }
    }

    fn summary(&self) -> String {
        let failed_steps = self.steps.values().filter(|step| step.is_err()).count();
        let ready = self.ready_after;
        let ready = ready.map_or(String::new(), |after| {
            format!(", ready after {} ms", after.as_millis())
        });
        match failed_steps {
            0 => format!("{} steps{ready}", self.steps.len()),
            failed_steps => format!(
                "{failed_steps} of {} steps are WRONG{ready}",
                self.steps.len()
            ),
        }
    }
}

/// Runs these steps.
fn run_steps(row: &Row, setup: &Setup, steps: &[&str]) -> RowResult {
    let mut result = RowResult::default();
    let log = setup.log_file(row);
    let outcome = setup.command(row, steps).and_then(|command| {
        let errors = File::create(&log)?;
        read_lines(command, errors, |line| result.record(&line))
    });
    if let Err(error) = outcome {
        result.fail("handshake", format!("{error:#}"));
    }
    if !row.is_measured() {
        result.ready_after = None;
    }
    result.log = fs::read_to_string(&log).unwrap_or_default();
    result
}

/// Runs a program that must exit by itself, and passes on the lines of JSON that it prints.
fn read_lines(mut command: Command, errors: File, on_line: impl FnMut(Value)) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(errors).spawn()?;
    let stdout = child.stdout.take().context("it has no output")?;
    let reader = thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let lines = lines.filter_map(|line| serde_json::from_str(&line).ok());
        lines.collect::<Vec<Value>>()
    });
    let ended = wait(&mut child);
    let lines = reader.join().unwrap_or_default();
    lines.into_iter().for_each(on_line);
    ended
}

fn wait(child: &mut Child) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    bail!("it hangs")
}

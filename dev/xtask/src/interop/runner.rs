//! How one row is gone through: a program that prints a line of JSON for each step, and what it said. Knows not who it is.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::row::{Row, Step};
use super::stage::Stage;

/// No meeting should take as long as that. Where one does, something hangs.
const DEADLINE: Duration = Duration::from_secs(180);

/// How soon a link must be ready that loses its first process to the probe.
const READY_WITHIN: Duration = Duration::from_secs(3);

/// How often that is tried: what else the machine does meanwhile must not decide.
const TRIES: usize = 3;

/// What was said of a row.
#[derive(Default)]
pub(super) struct Told {
    /// For each step what was wrong, if anything.
    pub(super) steps: BTreeMap<Step, Result<(), String>>,
    /// What was agreed on.
    pub(super) version: Option<String>,
    /// How soon the link was ready, where that is measured.
    pub(super) ready_after: Option<Duration>,
    /// What is to be looked at where something was wrong.
    pub(super) log: String,
}

pub(super) fn go_through(row: &Row, stage: &Stage) -> Told {
    let steps: Vec<Step> = row.steps().collect();
    let mut told = once(row, stage, &steps);
    if row.is_measured() && stage.judges_time {
        for _ in 1..TRIES {
            if told.ready_after.is_none_or(|after| after <= READY_WITHIN) {
                break;
            }
            eprintln!("{}: {}; once more", row.name(), told.sum());
            told.ready_after = once(row, stage, &[Step::Handshake]).ready_after;
        }
        told.judge_the_start();
    }
    told.judge(row);
    eprintln!("{}: {}", row.name(), told.sum());
    told
}

impl Told {
    fn take_in(&mut self, line: &Value) {
        let name = line["step"].as_str().unwrap_or_default();
        let Some(step) = Step::ALL.into_iter().find(|step| step.name() == name) else {
            return;
        };
        let note = line["note"].as_str().unwrap_or_default();
        let outcome = if line["ok"] == true {
            Ok(())
        } else {
            Err(note.to_owned())
        };
        if let Some(version) = line["version"].as_str() {
            self.agreed_on(version);
        }
        if step == Step::Handshake {
            self.ready_after = line["ready_after_ms"].as_u64().map(Duration::from_millis);
        }
        // What was told twice is as good as the worse of the two.
        let before = self.steps.remove(&step).unwrap_or(Ok(()));
        self.steps.insert(step, before.and(outcome));
    }

    /// A later life may agree on something else.
    fn agreed_on(&mut self, version: &str) {
        self.version = Some(match self.version.take() {
            Some(before) if !before.ends_with(version) => format!("{before}, then {version}"),
            Some(before) => before,
            None => version.to_owned(),
        });
    }

    /// Everything was told that must be, nothing else, and the version is the right one.
    fn judge(&mut self, row: &Row) {
        for step in Step::ALL {
            let is_told = self.steps.contains_key(&step);
            let wrong = match (row.lack(step), is_told) {
                (None, false) => "nothing was said of it",
                (Some(_), true) => "the peer is said not to have it",
                (None, true) | (Some(_), false) => continue,
            };
            self.steps.insert(step, Err(wrong.to_owned()));
        }
        if self.version.as_deref() != Some(row.version) {
            let version = self.version.as_deref().unwrap_or("nothing");
            let wrong = format!("{version} instead of {}", row.version);
            self.fail(Step::Handshake, wrong);
        }
    }

    fn judge_the_start(&mut self) {
        let late = match self.ready_after {
            Some(after) if after <= READY_WITHIN => return,
            Some(after) => format!("ready only after {} ms", after.as_millis()),
            None => "nobody measured when it was ready".to_owned(),
        };
        self.fail(Step::Handshake, late);
    }

    /// What is wrong already stays what is wrong.
    fn fail(&mut self, step: Step, why: String) {
        let outcome = self.steps.entry(step).or_insert(Ok(()));
        if outcome.is_ok() {
            *outcome = Err(why);
        }
    }

    fn sum(&self) -> String {
        let wrong = self.steps.values().filter(|step| step.is_err()).count();
        let ready = self.ready_after;
        let ready = ready.map_or(String::new(), |after| {
            format!(", ready after {} ms", after.as_millis())
        });
        match wrong {
            0 => format!("{} steps{ready}", self.steps.len()),
            wrong => format!("{wrong} of {} steps are WRONG{ready}", self.steps.len()),
        }
    }
}

/// Goes through these steps.
fn once(row: &Row, stage: &Stage, steps: &[Step]) -> Told {
    let mut told = Told::default();
    let log = stage.log(row);
    let outcome = stage.command(row, steps).and_then(|command| {
        let errors = File::create(&log).map_err(|error| error.to_string())?;
        lines(command, errors, |line| told.take_in(&line))
    });
    if let Err(why) = outcome {
        told.fail(Step::Handshake, why);
    }
    if !row.is_measured() {
        told.ready_after = None;
    }
    told.log = fs::read_to_string(&log).unwrap_or_default();
    told
}

/// Runs a program that must end by itself, and takes in the lines of JSON that it prints.
fn lines(mut command: Command, errors: File, mut take: impl FnMut(Value)) -> Result<(), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let failed = |error: io::Error| format!("it could not be started: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let reader = child.stdout.take().map(|stdout| {
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let lines = lines.filter_map(|line| serde_json::from_str(&line).ok());
            lines.collect::<Vec<Value>>()
        })
    });
    let ended = wait(&mut child);
    let lines = reader.map(|reader| reader.join().unwrap_or_default());
    lines.unwrap_or_default().into_iter().for_each(&mut take);
    ended
}

fn wait(child: &mut Child) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    Err("it hangs".to_owned())
}

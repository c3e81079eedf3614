//! Runs each test once and records which mutants it reaches.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::cache::Cache;
use crate::run;
use crate::tree::{Program, Tree};
use crate::weave::Id;

/// A test that uses more processor time than this is left out.
const MAX_TEST: Duration = Duration::from_secs(3);

/// The least time of a test, which is the precision of the measurement.
const MIN_TEST: Duration = Duration::from_millis(1);

/// A test that passes without a mutant.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) program: usize,
    pub(crate) name: String,
    /// Processor time.
    pub(crate) duration: Duration,
    /// How many mutants it reaches. A test that reaches few is about them.
    pub(crate) reached: usize,
}

/// The tests, and those that reach each mutant.
#[derive(Debug)]
pub(crate) struct Reach {
    pub(crate) tests: Vec<Test>,
    /// By the number of the mutant: the tests that reach it, the best first.
    pub(crate) by_mutant: Vec<Vec<usize>>,
    /// The tests by program and name.
    names: HashMap<String, usize>,
}

impl Reach {
    /// The test with this name, as in [`Fate::Caught`](crate::run::Fate::Caught).
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }
}

/// Traces all tests of the programs.
pub(crate) fn trace(
    tree: &Tree,
    programs: &[Program],
    last: Id,
    jobs: usize,
) -> Result<Reach, String> {
    let mut names = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        names.extend(list(tree, program)?.into_iter().map(|name| (index, name)));
    }
    let caches: Vec<Cache> = programs.iter().map(Cache::read).collect();
    let startups: Vec<Duration> = programs.iter().map(|it| startup(tree, it)).collect();
    let next = AtomicUsize::new(0);
    let traced = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for job in 0..jobs {
            let (next, traced, names) = (&next, &traced, &names);
            let (caches, startups) = (&caches, &startups);
            scope.spawn(move || {
                let record = tree.copy.join(format!("../trace-{job}"));
                while let Some((program, name)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let held = caches[*program].get(name).cloned();
                    let result = held.unwrap_or_else(|| {
                        let (duration, reached) =
                            trace_one(tree, &programs[*program], name, &record)?;
                        let duration = duration.saturating_sub(startups[*program]);
                        Ok((duration.max(MIN_TEST), reached))
                    });
                    let mut traced = traced
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner());
                    traced.push((*program, name.clone(), result));
                }
            });
        }
    });
    let mut reach = Reach {
        tests: Vec::new(),
        by_mutant: vec![Vec::new(); last as usize + 1],
        names: HashMap::new(),
    };
    let traced = traced
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    for (index, program) in programs.iter().enumerate() {
        let of_program = traced.iter().filter(|(program, ..)| *program == index);
        Cache::write(program, of_program.map(|(_, name, result)| (name, result)));
    }
    for (program, name, result) in traced {
        match result {
            Ok((duration, reached)) => {
                let index = reach.tests.len();
                let full_name = format!("{}: {name}", programs[program].name);
                reach.names.insert(full_name, index);
                for &id in &reached {
                    if let Some(tests) = reach.by_mutant.get_mut(id as usize) {
                        tests.push(index);
                    }
                }
                reach.tests.push(Test {
                    program,
                    name,
                    duration,
                    reached: reached.len(),
                });
            }
            Err(reason) => eprintln!("left out: {}, {name}: {reason}", programs[program].name),
        }
    }
    let score = |test: &Test| test.duration.as_micros() * (test.reached as u128 + 20);
    for tests in &mut reach.by_mutant {
        tests.sort_by_cached_key(|&test| score(&reach.tests[test]));
    }
    Ok(reach)
}

fn list(tree: &Tree, program: &Program) -> Result<Vec<String>, String> {
    let output = Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&tree.copy)
        .output()
        .map_err(|error| format!("{} could not start: {error}", program.name))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(str::to_owned).collect())
}

/// What a test does without a mutant: its processor time and the mutants that it reaches, or why it is left out.
pub(crate) type Traced = Result<(Duration, Vec<Id>), String>;

/// The processor time of a program that runs no test. Tests that run together take it only once.
fn startup(tree: &Tree, program: &Program) -> Duration {
    let record = tree.copy.join("../trace-none");
    let times = (0..3).filter_map(|_| trace_one(tree, program, "", &record).ok());
    times.map(|(time, _)| time).min().unwrap_or_default()
}

/// The whole processor time of a program that runs one test, and the mutants that it reaches.
fn trace_one(tree: &Tree, program: &Program, name: &str, record: &Path) -> Traced {
    let _ = fs::remove_file(record);
    let mut command = Command::new("bash");
    run::limit(&mut command, program, MAX_TEST, run::Report::Times);
    let output = command
        .args(["--exact", "--test-threads", "1", name])
        .current_dir(&tree.copy)
        .env("EVERLINK_MUTANT", "trace")
        .env("EVERLINK_MUTANT_TRACE", record)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("without a mutant it ends with {}", output.status));
    }
    let times = String::from_utf8_lossy(&output.stderr);
    let duration = times.lines().last().map_or(Duration::ZERO, processor_time);
    let bytes = fs::read(record).unwrap_or_default();
    let mut reached: Vec<Id> = bytes
        .chunks_exact(4)
        .map(|bytes| {
            let bytes = bytes.iter().rev();
            bytes.fold(0, |id, &byte| (id << 8) | Id::from(byte))
        })
        .collect();
    reached.sort_unstable();
    reached.dedup();
    Ok((duration, reached))
}

/// The sum of the times in a line such as `0.010 0.002`.
fn processor_time(line: &str) -> Duration {
    let seconds = line
        .split_whitespace()
        .filter_map(|it| it.parse::<f64>().ok());
    let sum = seconds.sum();
    Duration::try_from_secs_f64(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    #[test]
    fn user_and_system_time_are_added() {
        let time = super::processor_time("62.500 0.010");
        assert_eq!(time, Duration::from_millis(62_510));
    }
}

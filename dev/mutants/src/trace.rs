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

/// The shell counts processor time in such steps.
const CLOCK_TICK: Duration = Duration::from_millis(10);

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
    let next = AtomicUsize::new(0);
    let traced = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for job in 0..jobs {
            let (next, traced, names, caches) = (&next, &traced, &names, &caches);
            scope.spawn(move || {
                let record = tree.copy.join(format!("../trace-{job}"));
                while let Some((program, name)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let held = caches[*program].get(name).cloned();
                    let result =
                        held.unwrap_or_else(|| trace_one(tree, &programs[*program], name, &record));
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
    let score = |test: &Test| (test.duration.as_micros() + 500) * (test.reached as u128 + 20);
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

fn trace_one(tree: &Tree, program: &Program, name: &str, record: &Path) -> Traced {
    let _ = fs::remove_file(record);
    let mut command = Command::new("sh");
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
    let times = String::from_utf8_lossy(&output.stdout);
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
    Ok((CLOCK_TICK + duration, reached))
}

/// The sum of the times in a line of the shell's `times`, such as `0m0.010000s 0m0.000000s`.
fn processor_time(line: &str) -> Duration {
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let sum = line.split_whitespace().filter_map(seconds).sum();
    Duration::try_from_secs_f64(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    #[test]
    fn user_and_system_time_are_added() {
        let time = super::processor_time("1m2.500000s 0m0.010000s");
        assert_eq!(time, Duration::from_millis(62_510));
    }
}

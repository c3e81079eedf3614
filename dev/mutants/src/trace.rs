//! Runs each test once and records which mutants it reaches.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::run;
use crate::tree::{Program, Tree};
use crate::weave::Id;

/// A test that takes longer than this is left out.
const MAX_TEST: Duration = Duration::from_secs(20);

/// A test that passes without a mutant.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) program: usize,
    pub(crate) name: String,
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
    let next = AtomicUsize::new(0);
    let traced = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for job in 0..jobs {
            let (next, traced, names) = (&next, &traced, &names);
            scope.spawn(move || {
                let record = tree.copy.join(format!("../trace-{job}"));
                while let Some((program, name)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = trace_one(tree, &programs[*program], name, &record);
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
    };
    let traced = traced
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    for (program, name, result) in traced {
        match result {
            Ok((duration, reached)) => {
                let index = reach.tests.len();
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

/// Runs one test. Returns its duration and the mutants that it reaches.
fn trace_one(
    tree: &Tree,
    program: &Program,
    name: &str,
    record: &Path,
) -> Result<(Duration, Vec<Id>), String> {
    let _ = fs::remove_file(record);
    let start = Instant::now();
    let mut command = Command::new("sh");
    run::limit(&mut command, program, MAX_TEST);
    let output = command
        .args(["--exact", "--test-threads", "1", name])
        .current_dir(&tree.copy)
        .env("EVERLINK_MUTANT", "trace")
        .env("EVERLINK_MUTANT_TRACE", record)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let duration = start.elapsed();
    if !output.status.success() {
        return Err(format!("it fails without a mutant, with {}", output.status));
    }
    let bytes = fs::read(record).unwrap_or_default();
    let mut reached: Vec<Id> = bytes
        .chunks_exact(4)
        .map(|bytes| {
            bytes
                .iter()
                .rev()
                .fold(0, |id, &byte| id << 8 | Id::from(byte))
        })
        .collect();
    reached.sort_unstable();
    reached.dedup();
    Ok((duration, reached))
}

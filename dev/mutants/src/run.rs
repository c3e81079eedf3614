//! Runs each mutant against the tests that reach it, until one fails.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::killers::Killers;
use crate::state::Key;
use crate::trace::{Reach, Test};
use crate::tree::{Program, Tree};
use crate::weave::Id;

/// The most address space of a test program, in KiB. A mutant that allocates for ever ends here.
const MAX_MEMORY: usize = 4 << 20;

/// The first group of tests takes about this processor time. Each further group takes eight times as much.
const FIRST_GROUP: Duration = Duration::from_millis(100);

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// This test failed.
    Caught(String),
    /// A test did not end.
    TimedOut,
    Survived,
    /// No test reaches it.
    Unreached,
}

/// How to run mutants.
pub(crate) struct Runner<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) programs: &'a [Program],
    pub(crate) reach: &'a Reach,
    /// How many test programs run at a time.
    pub(crate) jobs: usize,
    /// The most processor time of the tests for one mutant.
    pub(crate) budget: Duration,
    pub(crate) killers: &'a Killers,
}

/// Runs the mutants, and tells each result.
pub(crate) fn run(
    runner: &Runner<'_>,
    mutants: &[Id],
    key: impl Fn(Id) -> Key + Sync,
    mut tell: impl FnMut(Id, Fate),
) {
    let key = &key;
    let next = AtomicUsize::new(0);
    let (results, received) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..runner.jobs {
            let (next, results) = (&next, results.clone());
            scope.spawn(move || {
                while let Some(&id) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = results.send((id, fate(runner, id, &key(id))));
                }
            });
        }
        drop(results);
        let start = Instant::now();
        for (count, (id, fate)) in received.iter().enumerate() {
            tell(id, fate);
            if (count + 1) % 250 == 0 || count + 1 == mutants.len() {
                let seconds = start.elapsed().as_secs();
                eprintln!("{} of {} mutants in {seconds} s", count + 1, mutants.len());
            }
        }
    });
}

fn fate(runner: &Runner<'_>, id: Id, key: &Key) -> Fate {
    let reach = runner.reach;
    let ordered = runner.killers.order(key, &reach.by_mutant[id as usize]);
    let mut tests = ordered.as_slice();
    if tests.is_empty() {
        return Fate::Unreached;
    }
    let mut limit = FIRST_GROUP;
    let mut spent = Duration::ZERO;
    while !tests.is_empty() && spent < runner.budget {
        let mut total = Duration::ZERO;
        let mut count = 0;
        while let Some(&test) = tests.get(count)
            && (count == 0 || total < limit.min(runner.budget.saturating_sub(spent)))
        {
            total += reach.tests[test].duration;
            count += 1;
        }
        let (group, rest) = tests.split_at(count);
        tests = rest;
        limit *= 8;
        spent += total;
        let mut by_program: BTreeMap<usize, Vec<&Test>> = BTreeMap::new();
        for &test in group {
            let test = &reach.tests[test];
            by_program.entry(test.program).or_default().push(test);
        }
        for (program, tests) in by_program {
            if let Some(fate) = run_group(runner.tree, &runner.programs[program], &tests, id) {
                if let Fate::Caught(name) = &fate
                    && let Some(test) = reach.find(name)
                {
                    runner.killers.note(key, test);
                }
                return fate;
            }
        }
    }
    Fate::Survived
}

/// What a limited command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The output of the program.
    Output,
    /// At last, a line on the error output with the processor time of the program. Only `bash` prints it.
    Times,
}

/// Prepares a command that starts the program with limits. Uses processor time, so that a busy machine catches nothing.
pub(crate) fn limit(command: &mut Command, program: &Program, time: Duration, report: Report) {
    let seconds = time.as_secs() + 1;
    let start = match report {
        Report::Output => "exec \"$0\" \"$@\"",
        Report::Times => "TIMEFORMAT='%3U %3S'; time \"$0\" \"$@\"",
    };
    command
        .arg("-c")
        .arg(format!(
            "ulimit -v {MAX_MEMORY}; ulimit -c 0; ulimit -t {seconds}; {start}"
        ))
        .arg(&program.path)
        .env("RUST_BACKTRACE", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_RNG_SEED", "1");
}

/// Runs tests of one program with a mutant. Returns `None` if all pass.
fn run_group(tree: &Tree, program: &Program, tests: &[&Test], id: Id) -> Option<Fate> {
    let expected: Duration = tests.iter().map(|test| test.duration).sum();
    let mut command = Command::new("sh");
    let time = Duration::from_secs(1) + expected * 4;
    limit(&mut command, program, time, Report::Output);
    let names = tests.iter().map(|test| &test.name);
    let child = command
        .args(["--exact", "--test-threads", "1"])
        .args(names)
        .current_dir(&tree.copy)
        .env("EVERLINK_MUTANT", id.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{} could not start: {error}", program.name);
            return None;
        }
    };
    let (lines, received) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
    }
    let mut fate = None;
    loop {
        match received.recv_timeout(tree.unit.max_silence) {
            Ok(line) => {
                if let Some(test) = line.strip_suffix(" ... FAILED") {
                    let test = test.strip_prefix("test ").unwrap_or(test);
                    fate = Some(Fate::Caught(format!("{}: {test}", program.name)));
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                fate = Some(Fate::TimedOut);
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if fate.is_some() {
        // It may have ended by itself.
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    fate.or_else(|| (!status.success()).then(|| ended(status, program)))
}

/// What it means that a program ended without the report of a failed test.
fn ended(status: std::process::ExitStatus, program: &Program) -> Fate {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        const SIGKILL: i32 = 9;
        const SIGXCPU: i32 = 24;
        if matches!(status.signal(), Some(SIGKILL | SIGXCPU)) {
            return Fate::TimedOut;
        }
    }
    Fate::Caught(format!("{}: {status}", program.name))
}

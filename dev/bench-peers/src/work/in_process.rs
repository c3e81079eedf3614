//! Measures a call between two ends in one process, without system calls: an echo from one application to the other and back.
//!
//! A call includes everything from the text of the caller to the text that it gets: parameters are built and parsed, and the result is
//! built and parsed. `everlink` is its two machines with a buffer in each direction. `rmcp` needs a runtime and uses tokio's in-memory
//! pipe. `serde_json` is the minimum for applications that parse and write texts. The tool is the same, and so are the types of its
//! arguments where a library has none.
//!
//! `floor` and `everlink-json` are for applications that only forward JSON: no text is parsed. rmcp does not support that.
//!
//! Instructions are the difference between a run and one twice as long, counted by Valgrind, so that one-time work cancels out.

use std::hint::black_box;
use std::process::Stdio;
use std::time::Instant;

use alloc_count::count;
use everlink::Payload;

use super::{Effort, in_eras};
use crate::echo::{self, Params, Text};
use crate::peers::{Client as _, everlink as ours, raw, rmcp};
use crate::report::{Sample, Task, print_rows, rounds};

const CASES: [(&str, usize); 3] = [("100 B", 100), ("10 KB", 10_000), ("1 MB", 1_000_000)];
const WHO: [&str; 5] = ["floor", "everlink-json", "serde_json", "everlink", "rmcp"];

pub(crate) fn run(effort: Effort) {
    for (case, bytes) in CASES {
        // All cases take about as long.
        let calls = effort.of(40_000_000 / (bytes + 10_000)).max(5);
        let tasks = in_eras("in_process", case, &WHO, calls);
        rounds(effort.rounds, &tasks);
        count_instructions(&tasks, (100_000 / (bytes + 1_000)).max(2));
    }
}

/// The time and the heap requests of a call.
pub(crate) fn sample(task: &Task) -> Sample {
    let (_, bytes) = CASES
        .into_iter()
        .find(|(case, _)| *case == task.case)
        .expect("it is a case");
    let text = echo::text(bytes);
    let mut call_loop = call_loop(task);
    call_loop(&text, task.size / 5 + 1);
    let start = Instant::now();
    let ((), counts) = count(|| call_loop(&text, task.size));
    let span = start.elapsed();
    let per_call = |total: usize| total as f64 / task.size as f64;
    Sample::default()
        .with("time", span.as_secs_f64() * 1e6 / task.size as f64)
        .with("allocations", per_call(counts.allocs + counts.reallocs))
        .with("bytes", per_call(counts.bytes))
}

/// A function that makes this many calls with this text between both ends of a library.
type CallLoop = Box<dyn FnMut(&str, usize)>;

fn call_loop(task: &Task) -> CallLoop {
    match &*task.who {
        "floor" => {
            let mut pair = raw::InMemory::default();
            Box::new(move |text, calls| {
                let params = params(text).into_raw();
                for _ in 0..calls {
                    black_box(pair.call_with_json(black_box(&params)));
                }
            })
        }
        "everlink-json" => {
            let mut pair = ours::InMemory::new(task.era);
            Box::new(move |text, calls| {
                let params = params(text);
                for _ in 0..calls {
                    black_box(pair.call_with_json(black_box(&params)));
                }
            })
        }
        "serde_json" => {
            let mut pair = raw::InMemory::default();
            Box::new(move |text, calls| {
                for _ in 0..calls {
                    assert_eq!(pair.call(black_box(text)), text.len());
                }
            })
        }
        "everlink" => {
            let mut pair = ours::InMemory::new(task.era);
            Box::new(move |text, calls| {
                for _ in 0..calls {
                    assert_eq!(pair.call(black_box(text)), text.len());
                }
            })
        }
        "rmcp" => {
            let mut pair = rmcp::client(rmcp::in_memory(task.era));
            Box::new(move |text, calls| {
                pair.sequential(calls, text);
            })
        }
        other => unreachable!("{other} takes no part"),
    }
}

fn params(text: &str) -> Payload {
    let params: Params<'_, Text<'_>> = Params::of(text);
    Payload::of(&params).expect("this is JSON")
}

/// Prints the number of instructions of a call, if Valgrind is installed.
pub(crate) fn count_instructions(tasks: &[Task], calls: usize) {
    for task in tasks {
        let count_of = |times: usize| {
            let mut task = task.clone();
            task.size = times * calls;
            instructions(&task)
        };
        let Some(((once, warm), (twice, longer_warm))) = count_of(1).zip(count_of(2)) else {
            eprintln!("{}: no instructions without valgrind", task.work);
            return;
        };
        let per_call = (twice - once) / (longer_warm - warm);
        print_rows(task, &[Sample::default().with("instructions", per_call)]);
    }
}

/// The total number of instructions of a sample, and its number of calls.
fn instructions(task: &Task) -> Option<(f64, f64)> {
    let command = task.command();
    let mut valgrind = std::process::Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(command.get_program()).args(command.get_args());
    let output = valgrind.stdout(Stdio::null()).output().ok()?;
    let report = String::from_utf8_lossy(&output.stderr);
    let total = report
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let total = total?.1.split_whitespace().next()?.parse().ok()?;
    let calls = task.size + task.size / 5 + 1;
    Some((total, calls as f64))
}

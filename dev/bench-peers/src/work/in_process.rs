//! Both ends in one process, without any system call: an echo from one application to the other and back.
//!
//! Everything is in it from the text that the caller has to the text that it is given: parameters are made and read, the result is made and
//! read. `everlink` is its two machines with a buffer in each direction; `rmcp` needs a runtime and gets the pipe that tokio has for
//! memory; `serde_json` does what cannot be left out if texts are to be read and written. The tool is the same, and so are the types of
//! its arguments where a peer has none of its own.
//!
//! `floor` and `everlink-json` are the same for applications that only pass on JSON that they have: no text is read. rmcp has no way for
//! that.
//!
//! Instructions are the difference between a run and one twice as long, as Valgrind counts them, so that what is done once falls out.

use std::hint::black_box;
use std::process::Stdio;
use std::time::Instant;

use alloc_count::count;
use everlink::Payload;

use super::{Effort, in_eras};
use crate::echo::{self, Params, Text};
use crate::peers::{Client as _, everlink as ours, raw, rmcp};
use crate::report::{Sample, Task, rounds, tell};

const CASES: [(&str, usize); 3] = [("100 B", 100), ("10 KB", 10_000), ("1 MB", 1_000_000)];
const WHO: [&str; 5] = ["floor", "everlink-json", "serde_json", "everlink", "rmcp"];

pub(crate) fn run(effort: Effort) {
    for (case, bytes) in CASES {
        // So that all cases take about as long.
        let calls = effort.of(40_000_000 / (bytes + 10_000)).max(5);
        let tasks = in_eras("in_process", case, &WHO, calls);
        rounds(effort.rounds, &tasks);
        count_instructions(&tasks, (100_000 / (bytes + 1_000)).max(2));
    }
}

/// Time, and what is asked of the heap.
pub(crate) fn sample(task: &Task) -> Sample {
    let (_, bytes) = CASES
        .into_iter()
        .find(|(case, _)| *case == task.case)
        .expect("it is a case");
    let text = echo::text(bytes);
    let mut talk = talk(task);
    talk(&text, task.size / 5 + 1);
    let start = Instant::now();
    let ((), counts) = count(|| talk(&text, task.size));
    let span = start.elapsed();
    let per_call = |total: usize| total as f64 / task.size as f64;
    Sample::default()
        .with("time", span.as_secs_f64() * 1e6 / task.size as f64)
        .with("allocations", per_call(counts.allocs + counts.reallocs))
        .with("bytes", per_call(counts.bytes))
}

/// Both ends of a peer, as something that makes so many calls with this text.
type Talk = Box<dyn FnMut(&str, usize)>;

fn talk(task: &Task) -> Talk {
    match &*task.who {
        "floor" => {
            let mut both = raw::InMemory::default();
            Box::new(move |text, calls| {
                let params = params(text).into_raw();
                for _ in 0..calls {
                    black_box(both.call_with_json(black_box(&params)));
                }
            })
        }
        "everlink-json" => {
            let mut both = ours::InMemory::new(task.era);
            Box::new(move |text, calls| {
                let params = params(text);
                for _ in 0..calls {
                    black_box(both.call_with_json(black_box(&params)));
                }
            })
        }
        "serde_json" => {
            let mut both = raw::InMemory::default();
            Box::new(move |text, calls| {
                for _ in 0..calls {
                    assert_eq!(both.call(black_box(text)), text.len());
                }
            })
        }
        "everlink" => {
            let mut both = ours::InMemory::new(task.era);
            Box::new(move |text, calls| {
                for _ in 0..calls {
                    assert_eq!(both.call(black_box(text)), text.len());
                }
            })
        }
        "rmcp" => {
            let mut both = rmcp::client(rmcp::in_memory(task.era));
            Box::new(move |text, calls| {
                both.one_by_one(calls, text);
            })
        }
        other => unreachable!("{other} takes no part"),
    }
}

fn params(text: &str) -> Payload {
    let params: Params<'_, Text<'_>> = Params::of(text);
    Payload::of(&params).expect("this is JSON")
}

/// Tells how many instructions a call takes, where there is Valgrind.
pub(crate) fn count_instructions(tasks: &[Task], calls: usize) {
    for task in tasks {
        let counted = |times: usize| {
            let mut task = task.clone();
            task.size = times * calls;
            instructions(&task)
        };
        let Some(((once, warm), (twice, longer_warm))) = counted(1).zip(counted(2)) else {
            eprintln!("{}: no instructions without valgrind", task.work);
            return;
        };
        let per_call = (twice - once) / (longer_warm - warm);
        tell(task, &[Sample::default().with("instructions", per_call)]);
    }
}

/// How many instructions a sample takes in all, and in how many calls.
fn instructions(task: &Task) -> Option<(f64, f64)> {
    let command = task.command();
    let mut valgrind = std::process::Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(command.get_program()).args(command.get_args());
    let output = valgrind.stdout(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let total = counted?.1.split_whitespace().next()?.parse().ok()?;
    let calls = task.size + task.size / 5 + 1;
    Some((total, calls as f64))
}

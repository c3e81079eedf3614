//! Measures the same work on everlink, on rmcp and on the bare system in one run: `bench-peers [--quick] [--only WORK,…]`
//!
//! Standard output has one JSON object for each measurement; standard error shows the progress. The README lists what is measured. Each
//! file in `work` describes its work and why the comparison is fair.

mod echo;
mod machine;
mod peers;
mod report;
mod work;

use std::process::ExitCode;

use alloc_count::Counting;

use peers::rmcp::HttpMode;
use peers::{everlink, raw, rmcp, script};
use report::Task;
use work::{Effort, death, decode, http, idle, in_process, proxy, stdio};

/// Counts for all libraries alike, at a cost of about 1 ns for each request.
#[global_allocator]
static HEAP: Counting = Counting;

type Run = fn(Effort);

/// All works, in the order in which they run.
const WORKS: [(&str, Run); 7] = [
    ("in_process", in_process::run),
    ("stdio", stdio::run),
    ("http", http::run),
    ("proxy", proxy::run),
    ("death", death::run),
    ("idle", idle::run),
    ("decode", decode::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["sample", task] => sample(task),
        ["serve", who] => serve(who),
        ["on", core, program, ref arguments @ ..] => {
            machine::exec_on_core(core, program, arguments)
        }
        ["relay"] => raw::relay(&mut machine::Placement::of("").server("raw")),
        _ => return measure(&arguments),
    }
    ExitCode::SUCCESS
}

fn measure(arguments: &[&str]) -> ExitCode {
    let mut effort = Effort {
        rounds: 5,
        percent: 100,
    };
    let mut chosen: Vec<&str> = WORKS.map(|(name, _)| name).to_vec();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match (*argument, arguments.as_slice()) {
            ("--quick", _) => {
                effort = Effort {
                    rounds: 2,
                    percent: 25,
                }
            }
            ("--only", [names, ..]) => {
                chosen = names.split(',').collect();
                arguments.next();
            }
            _ => return usage(),
        }
    }
    if !chosen
        .iter()
        .all(|name| WORKS.iter().any(|(it, _)| it == name))
    {
        return usage();
    }
    for (name, run) in WORKS {
        if chosen.contains(&name) {
            run(effort);
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let works = WORKS.map(|(name, _)| name).join(",");
    eprintln!("usage: bench-peers [--quick] [--only {works}]");
    ExitCode::FAILURE
}

/// Takes one sample in this process, and prints it.
fn sample(task: &str) {
    let task: Task = serde_json::from_str(task).expect("the task is JSON");
    let sample = match &*task.work {
        "in_process" => in_process::sample(&task),
        "stdio" => stdio::sample(&task),
        "http" => http::sample(&task),
        "proxy" => proxy::sample(&task),
        "death" => death::sample(&task),
        "idle" => idle::sample(&task),
        "decode" => decode::sample(&task),
        other => unreachable!("{other} has no samples"),
    };
    println!(
        "{}",
        serde_json::to_string(&sample).expect("a sample is JSON")
    );
}

/// Runs one of the servers.
fn serve(who: &str) {
    match who {
        "raw" => raw::serve_pipe(),
        "script" => script::serve(),
        "everlink-stdio" => everlink::serve_threads(),
        "everlink-tokio" => everlink::serve_tokio(),
        "rmcp-stdio" => rmcp::serve_stdio(),
        "rmcp-stdio_pipes" => rmcp::serve_stdio_pipes(),
        "raw-http" => raw::serve_http(),
        "raw-http-tasks" => raw::serve_http_tasks(),
        "everlink-tokio-http" => everlink::serve_http(),
        "rmcp-default-http" => rmcp::serve_http(HttpMode::Default),
        "rmcp-pooled-http" => rmcp::serve_http(HttpMode::Pooled),
        other => panic!("{other} serves nothing"),
    }
}

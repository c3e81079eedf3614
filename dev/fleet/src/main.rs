//! Runs several nodes with a real Redis, kills both, and measures them. `cargo xtask fleet` runs it.
//!
//! - `fleet tests` runs each scenario once.
//! - `fleet chaos --minutes N` lets 200 clients call through nginx while a node is killed every 5 s, and Redis is restarted twice.
//! - `fleet scale [--rmcp PROGRAM]` measures memory and latency with up to 50,000 sessions, and what the store costs.
//! - `fleet sim --runs N --seed S` simulates fleets with faults, without Redis.
//! - `fleet soak --seconds N --out DIRECTORY` runs a guard over stdio, a guard over HTTP and a fleet under faults, and samples their memory.
//! - `fleet front PROGRAM` runs three nodes of another program behind nginx, prints their URL, and ends with its standard input.
//! - `fleet node` is one node.
#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a program with std, which handles only what its servers do"
)]

mod chaos;
mod client;
mod front;
mod gate;
mod node;
mod scale;
mod services;
mod sim;
mod soak;
mod tally;
mod tests;

use std::process::ExitCode;

/// What went wrong.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let at = words.iter().position(|word| word == name);
        let value = at.and_then(|at| words.get(at + 1)?.parse().ok());
        value.unwrap_or(default)
    };
    let done = match words.first().map(String::as_str) {
        Some("front") => front::run(&words[1..]),
        Some("node") => node::run(&words[1..]),
        Some("tests") => tests::run(),
        Some("chaos") => chaos::run(number("--minutes", 1), number("--clients", 200)),
        Some("soak") => soak::run(&words[1..]),
        Some("sim") => sim::run(number("--runs", 1_000), number("--seed", 0)),
        Some("scale") => {
            let rmcp = words.iter().position(|word| word == "--rmcp");
            let rmcp = rmcp.and_then(|at| words.get(at + 1));
            scale::run(number("--most", 50_000), rmcp.map(String::as_str))
        },
        _ => Err(
            "usage: fleet tests | chaos --minutes N | scale | soak --seconds N --out DIRECTORY | sim --runs N --seed S | front PROGRAM | node ..."
                .into(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

//! Runs all attacks, or the named ones, and prints their effect on the good host. Fails if the effect exceeds a limit.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use hostile::attacks::{ATTACKS, named};
use hostile::{Impact, MEMORY_BOUND, Scale, run};

/// The limit for the slowdown of the good host's 99th percentile.
const MAX_SLOWDOWN: f64 = 10.0;

/// The number of runs for each attack. Their median is judged, because other programs may disturb one run.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(everlink) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: hostile PROGRAM [ATTACK...]");
        return ExitCode::from(2);
    };
    let names: Vec<String> = arguments.collect();
    if let Some(unknown) = names.iter().find(|name| named(name).is_none()) {
        eprintln!("there is no attack `{unknown}`");
        return ExitCode::from(2);
    }
    println!(
        "| attack | p99 alone | p99 beside it | times | failed calls | failed newcomers | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut passed = true;
    for attack in ATTACKS {
        if !names.is_empty() && !names.iter().any(|name| name == attack.name) {
            continue;
        }
        let rounds = (0..ROUNDS).map(|_| run(&everlink, &attack, Scale::FULL));
        match rounds.collect::<Result<Vec<Impact>, _>>() {
            Ok(mut rounds) => {
                rounds.sort_by(|left, right| left.slowdown().total_cmp(&right.slowdown()));
                let median = &rounds[ROUNDS / 2];
                let call_failures = rounds.iter().flat_map(|impact| &impact.beside.failures);
                let newcomer_failures = rounds.iter().flat_map(|impact| &impact.newcomers.failures);
                let memory = rounds.iter().map(|impact| impact.peak_memory).max();
                let memory = memory.unwrap_or_default();
                println!(
                    "| {} | {:.2?} | {:.2?} | {:.1} | {} | {} | {} MiB |",
                    attack.name,
                    median.alone.p99(),
                    median.beside.p99(),
                    median.slowdown(),
                    call_failures.clone().count(),
                    newcomer_failures.clone().count(),
                    memory >> 20,
                );
                passed &= median.slowdown() < MAX_SLOWDOWN
                    && call_failures.clone().next().is_none()
                    && newcomer_failures.clone().next().is_none()
                    && memory < MEMORY_BOUND;
                for error in call_failures.chain(newcomer_failures).take(3) {
                    eprintln!("{}: {error}", attack.name);
                }
            }
            Err(error) => {
                eprintln!("{}: {error}", attack.name);
                passed = false;
            }
        }
    }
    if passed {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "the good host felt too much: each call must succeed within {MAX_SLOWDOWN} times its p99, in less than {} MiB",
        MEMORY_BOUND >> 20
    );
    ExitCode::FAILURE
}

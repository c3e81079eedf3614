//! Runs every attack, or those that are named, and prints what the good host felt of each. Fails where it felt too much.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use hostile::attacks::{ATTACKS, named};
use hostile::{Felt, MEMORY_BOUND, Scale, run};

/// The good host's slowest calls may take so many times as long as without the attack.
const MOST_TIMES: f64 = 10.0;

/// Each attack is made so often, and judged by the median: something else may run on this machine for a moment.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let Some(everlink) = words.next().map(PathBuf::from) else {
        eprintln!("usage: hostile PROGRAM [ATTACK...]");
        return ExitCode::from(2);
    };
    let names: Vec<String> = words.collect();
    if let Some(unknown) = names.iter().find(|name| named(name).is_none()) {
        eprintln!("there is no attack `{unknown}`");
        return ExitCode::from(2);
    }
    println!(
        "| attack | p99 alone | p99 beside it | times | failed calls | failed newcomers | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut is_good = true;
    for attack in ATTACKS {
        if !names.is_empty() && !names.iter().any(|name| name == attack.name) {
            continue;
        }
        let rounds = (0..ROUNDS).map(|_| run(&everlink, &attack, Scale::FULL));
        match rounds.collect::<Result<Vec<Felt>, _>>() {
            Ok(mut rounds) => {
                rounds.sort_by(|one, other| one.times().total_cmp(&other.times()));
                let median = &rounds[ROUNDS / 2];
                let failed = rounds.iter().flat_map(|felt| &felt.beside.failures);
                let shut_out = rounds.iter().flat_map(|felt| &felt.newcomers.failures);
                let memory = rounds.iter().map(|felt| felt.peak_memory).max();
                let memory = memory.unwrap_or_default();
                println!(
                    "| {} | {:.2?} | {:.2?} | {:.1} | {} | {} | {} MiB |",
                    attack.name,
                    median.alone.p99(),
                    median.beside.p99(),
                    median.times(),
                    failed.clone().count(),
                    shut_out.clone().count(),
                    memory >> 20,
                );
                is_good &= median.times() < MOST_TIMES
                    && failed.clone().next().is_none()
                    && shut_out.clone().next().is_none()
                    && memory < MEMORY_BOUND;
                for why in failed.chain(shut_out).take(3) {
                    eprintln!("{}: {why}", attack.name);
                }
            }
            Err(error) => {
                eprintln!("{}: {error}", attack.name);
                is_good = false;
            }
        }
    }
    if is_good {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "the good host felt too much: each call must succeed within {MOST_TIMES} times its p99, in less than {} MiB",
        MEMORY_BOUND >> 20
    );
    ExitCode::FAILURE
}

//! Runs every attack, or those that are named, and prints what the good host felt of each. Fails where it felt too much.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use hostile::attacks::{ATTACKS, named};
use hostile::{MEMORY_BOUND, Scale, run};

/// The good host's slowest calls may take so many times as long as without the attack.
const MOST_TIMES: f64 = 10.0;

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
        match run(&everlink, &attack, Scale::FULL) {
            Ok(felt) => {
                let (alone, beside) = (felt.alone.p99(), felt.beside.p99());
                let times = beside.as_secs_f64() / alone.as_secs_f64();
                let (failed, shut_out) = (&felt.beside.failures, &felt.newcomers.failures);
                let memory = felt.peak_memory >> 20;
                println!(
                    "| {} | {alone:.2?} | {beside:.2?} | {times:.1} | {} | {} | {memory} MiB |",
                    attack.name,
                    failed.len(),
                    shut_out.len(),
                );
                for why in failed.iter().chain(shut_out).take(3) {
                    eprintln!("{}: {why}", attack.name);
                }
                is_good &= times < MOST_TIMES
                    && failed.is_empty()
                    && shut_out.is_empty()
                    && felt.peak_memory < MEMORY_BOUND;
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

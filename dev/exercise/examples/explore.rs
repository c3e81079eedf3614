//! Explores machines and prints what there was: `explore [--depth N] [MACHINE...]`.

use std::process::ExitCode;
use std::time::Instant;

use exercise::explore::{Bounds, MACHINES, explore};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut depth = 8;
    let mut machines = Vec::new();
    while let Some(word) = words.next() {
        match &*word {
            "--depth" => depth = words.next().and_then(|n| n.parse().ok()).expect("a depth"),
            _ => machines.push(word),
        }
    }
    if machines.is_empty() {
        machines.extend(MACHINES.map(str::to_owned));
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("machine        letters   states      edges  depth  seconds  merged words continued");
    for machine in machines {
        let start = Instant::now();
        let bounds = Bounds::depth(depth).with_threads(threads).with_pairs(2_000);
        let report = match explore(&machine, bounds) {
            Ok(report) => report,
            Err(violation) => {
                println!("{violation}");
                return ExitCode::FAILURE;
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:<14} {:>7} {:>8} {:>10} {:>6} {seconds:>8.1}  {} ({} differ)",
            report.machine, report.letters, report.states, report.edges, report.depth, report.pairs, report.differing,
        );
    }
    ExitCode::SUCCESS
}

//! Explores machines and prints what was found: `explore [--depth N] [MACHINE...]`.

use std::process::ExitCode;
use std::time::Instant;

use model::explore::{Bounds, MACHINES, explore};

/// How many of the merged sequences are continued, to check the merging.
const PAIRS: usize = 2_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (mut depth, mut wanted) = (None, Vec::new());
    while let Some(word) = words.next() {
        match &*word {
            "--depth" => depth = words.next().and_then(|depth| depth.parse().ok()),
            _ => wanted.push(word),
        }
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "machine      actions   states       edges  depth  seconds  merged sequences continued"
    );
    for (machine, far) in MACHINES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let start = Instant::now();
        let bounds = Bounds::depth(depth.unwrap_or(far));
        match explore(machine, bounds.with_threads(threads).with_pairs(PAIRS)) {
            Ok(report) => {
                println!(
                    "{machine:<12} {:>7} {:>8} {:>11} {:>6} {:>8.1}  {}",
                    report.actions,
                    report.states,
                    report.edges,
                    report.depth,
                    start.elapsed().as_secs_f64(),
                    report.pairs,
                );
                for difference in &report.differing {
                    println!("These were merged, and are not the same:\n{difference}");
                }
                if !report.differing.is_empty() {
                    return ExitCode::FAILURE;
                }
            }
            Err(violation) => {
                println!("{violation}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

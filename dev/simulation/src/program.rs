//! The program of a simulator: reads the arguments, runs many seeds on all cores and prints the result. Must not know what is simulated.

use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::{Report, RunResult, Script, Simulation, Violation, run, run_with_trace, shrink};

/// One seed in 64 runs twice, and both runs must be equal.
const REPEAT_EVERY: u64 = 64;

/// With this many runs, there must be no [gaps](Report::gaps).
const MIN_RUNS_FOR_COVERAGE: u64 = 10_000;

/// A violation with its seed, if there is one.
type SeedViolation<S> = Option<(u64, Violation<<S as Simulation>::Rule>)>;

struct Options<S: Simulation> {
    runs: u64,
    seed: u64,
    threads: u64,
    flaw: Option<S::Rule>,
    flaws: bool,
    show: bool,
}

fn usage<S: Simulation>() -> String {
    format!(
        "{} [--runs N] [--seed S] [--threads N] [--break RULE] [--flaws] [--show]
  --runs N      the number of runs, with the seeds S, S+1, ... (1000)
  --seed S      the first seed (1)
  --threads N   the number of threads (one for each core)
  --break RULE  {}, to see the oracle fail
  --flaws       break each rule in turn, and print how many runs the oracle needs to see it
  --show        print the script of seed S, shrunk if it breaks a rule, and the trace of its run",
        S::CRATE.replace('_', "-"),
        S::BREAK_HELP,
    )
}

/// The `main` function of a simulator.
#[must_use]
pub fn main<S: Simulation>() -> ExitCode {
    let options = match read::<S>(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{}", usage::<S>());
            return ExitCode::from(2);
        }
    };
    if options.show {
        return show::<S>(options.seed, options.flaw);
    }
    // A panic counts as a violation and is reported as one.
    panic::set_hook(Box::new(|_| {}));
    if options.flaws {
        return break_all::<S>(options.seed, options.runs);
    }
    let (report, violation) = run_all(&options);
    println!("{report}");
    if options.runs >= MIN_RUNS_FOR_COVERAGE && violation.is_none() {
        if let Some(gaps) = report.gaps() {
            print!("{gaps}");
            return ExitCode::FAILURE;
        }
    }
    print_result::<S>(violation, options.flaw)
}

fn read<S: Simulation>(mut arguments: impl Iterator<Item = String>) -> Result<Options<S>, String> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut options = Options {
        runs: 1_000,
        seed: 1,
        threads: cores,
        flaw: None,
        flaws: false,
        show: false,
    };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().unwrap_or_default();
            let number = value.parse::<u64>();
            number.map_err(|_| format!("{argument} wants a number, not `{value}`"))
        };
        match &*argument {
            "--runs" => options.runs = number()?,
            "--seed" => options.seed = number()?,
            "--threads" => options.threads = number()?.max(1),
            "--break" => {
                let number = number()?;
                let rule = S::RULES.iter().zip(1..).find(|(_, nth)| *nth == number);
                let (rule, _) = rule.ok_or(format!("there is no rule {number}"))?;
                options.flaw = Some(*rule);
            }
            "--flaws" => options.flaws = true,
            "--show" => options.show = true,
            _ => return Err(format!("`{argument}` is not known")),
        }
    }
    Ok(options)
}

/// Runs all seeds. Returns the total counts, and the violation of the lowest seed.
fn run_all<S: Simulation>(options: &Options<S>) -> (Report<S>, SeedViolation<S>) {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let all = Mutex::new((Report::default(), SeedViolation::<S>::None));
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                let mut thread_report = Report::default();
                while !stop.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= options.runs {
                        break;
                    }
                    let seed = options.seed + nth;
                    let (report, violation) = run_one(seed, options.flaw);
                    thread_report.add(&report);
                    if let Some(violation) = violation {
                        stop.store(true, Ordering::Relaxed);
                        let mut all = all.lock().expect("the lock is not poisoned");
                        if all.1.as_ref().is_none_or(|(first, _)| seed < *first) {
                            all.1 = Some((seed, violation));
                        }
                    }
                }
                all.lock()
                    .expect("the lock is not poisoned")
                    .0
                    .add(&thread_report);
            });
        }
    });
    all.into_inner().expect("the lock is not poisoned")
}

fn run_one<S: Simulation>(seed: u64, flaw: Option<S::Rule>) -> RunResult<S> {
    let script = Script::<S>::from_seed(seed);
    let (report, violation) = run(&script, flaw);
    if violation.is_some() || seed % REPEAT_EVERY != 0 {
        return (report, violation);
    }
    let (second, _) = run(&script, flaw);
    if second.digest == report.digest {
        return (report, None);
    }
    let details = "the same inputs gave other outputs".to_owned();
    let rule = S::RULE_OF_REPEATS;
    (report, Some(Violation { rule, details }))
}

fn show<S: Simulation>(seed: u64, flaw: Option<S::Rule>) -> ExitCode {
    let mut script = Script::<S>::from_seed(seed);
    if let (_, Some(violation)) = run(&script, flaw) {
        script = shrink(&script, violation.rule, flaw);
    }
    let (report, violation) = run_with_trace(&script, flaw);
    println!("{script}\n{}", report.trace.unwrap_or_default());
    match violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
    }
}

/// Breaks each rule until the oracle sees it.
fn break_all<S: Simulation>(first: u64, runs: u64) -> ExitCode {
    let mut exit = ExitCode::SUCCESS;
    println!("{:<28} {:>6}  what the oracle says", "broken rule", "runs");
    for rule in S::RULES {
        let mut seeds = first..first + runs;
        let found = seeds.find_map(|seed| {
            let (_, violation) = run(&Script::<S>::from_seed(seed), Some(*rule));
            Some((seed + 1 - first, violation?))
        });
        let rule_text = rule.to_string();
        match found {
            Some((count, violation)) => {
                let details: String = violation.details.chars().take(80).collect();
                println!("{rule_text:<28} {count:>6}  {details}");
                if violation.rule != *rule {
                    exit = ExitCode::FAILURE;
                }
            }
            None => {
                println!("{rule_text:<28} {runs:>6}  nothing");
                exit = ExitCode::FAILURE;
            }
        }
    }
    exit
}

fn print_result<S: Simulation>(violation: SeedViolation<S>, flaw: Option<S::Rule>) -> ExitCode {
    let Some((seed, violation)) = violation else {
        println!("no rule was broken");
        return ExitCode::SUCCESS;
    };
    println!("\nseed {seed}: {violation}\n");
    println!("as a test, as small as could be found:\n");
    let small = shrink(&Script::<S>::from_seed(seed), violation.rule, flaw);
    let name = S::CRATE;
    println!("#[test]\nfn seed_{seed}() {{\n    {name}::play(\n        \"");
    for line in small.to_string().lines() {
        println!("        {line}");
    }
    println!("        \",\n    );\n}}");
    ExitCode::FAILURE
}

//! Plays many runs on all cores and says what was seen. `cargo xtask sim` is the short way to call it.

use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use everlink_sim::{Broken, Rule, Script, Tally, run, shrink, tell};

const USAGE: &str = "everlink-sim [--runs N] [--seed S] [--threads N] [--break RULE] [--show]
  --runs N      so many runs, of the seeds S, S+1, ... (1000)
  --seed S      the first seed (1)
  --threads N   on so many threads (one for each core)
  --break RULE  with a machine that breaks the rule of this number, to see the oracle fail
  --show        print the script of seed S, made small if it breaks a rule, and the story of what happens in it";

/// One run in so many is played twice, and must be the same.
const TWICE: u64 = 64;

/// So many runs should see everything.
const ENOUGH: u64 = 10_000;

struct Asked {
    runs: u64,
    seed: u64,
    threads: u64,
    flaw: Option<Rule>,
    shows: bool,
}

fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if asked.shows {
        return show(asked.seed, asked.flaw);
    }
    // A panic is a rule that is broken, and is told as such.
    panic::set_hook(Box::new(|_| {}));
    let (tally, broken) = play_all(&asked);
    println!("{tally}");
    let blind_spots = tally.blind_spots();
    if asked.runs >= ENOUGH && broken.is_none() && !blind_spots.is_empty() {
        println!("\nnot seen, or too seldom:\n  {}", blind_spots.join("\n  "));
        return ExitCode::FAILURE;
    }
    verdict(broken, asked.flaw)
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut asked = Asked {
        runs: 1_000,
        seed: 1,
        threads: cores,
        flaw: None,
        shows: false,
    };
    while let Some(word) = words.next() {
        let mut number = || {
            let given = words.next().unwrap_or_default();
            let number = given.parse::<u64>();
            number.map_err(|_| format!("{word} wants a number, not `{given}`"))
        };
        match &*word {
            "--runs" => asked.runs = number()?,
            "--seed" => asked.seed = number()?,
            "--threads" => asked.threads = number()?.max(1),
            "--break" => {
                let number = number()?;
                let rule = Rule::ALL.into_iter().find(|rule| *rule as u64 == number);
                asked.flaw = Some(rule.ok_or(format!("there is no rule {number}"))?);
            }
            "--show" => asked.shows = true,
            _ => return Err(format!("`{word}` is not known")),
        }
    }
    Ok(asked)
}

/// All that was seen, and the first run that broke a rule.
fn play_all(asked: &Asked) -> (Tally, Option<(u64, Broken)>) {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let all = Mutex::new((Tally::default(), None::<(u64, Broken)>));
    thread::scope(|scope| {
        for _ in 0..asked.threads {
            scope.spawn(|| {
                let mut own = Tally::default();
                while !is_over.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= asked.runs {
                        break;
                    }
                    let seed = asked.seed + nth;
                    let (tally, broken) = play_one(seed, asked.flaw);
                    own.add(&tally);
                    if let Some(broken) = broken {
                        is_over.store(true, Ordering::Relaxed);
                        let mut all = all.lock().expect("nobody panics with it");
                        if all.1.as_ref().is_none_or(|(first, _)| seed < *first) {
                            all.1 = Some((seed, broken));
                        }
                    }
                }
                all.lock().expect("nobody panics with it").0.add(&own);
            });
        }
    });
    all.into_inner().expect("nobody panics with it")
}

fn play_one(seed: u64, flaw: Option<Rule>) -> (Tally, Option<Broken>) {
    let script = Script::of_seed(seed);
    let (tally, broken) = run(&script, flaw);
    if broken.is_some() || seed % TWICE != 0 {
        return (tally, broken);
    }
    let (again, _) = run(&script, flaw);
    if again.digest() == tally.digest() {
        return (tally, None);
    }
    (tally, Some(Broken::of_two_runs()))
}

fn show(seed: u64, flaw: Option<Rule>) -> ExitCode {
    let mut script = Script::of_seed(seed);
    if let (_, Some(broken)) = run(&script, flaw) {
        script = shrink(&script, broken.rule, flaw);
    }
    let (tally, broken) = tell(&script, flaw);
    println!("{script}\n{}", tally.story().unwrap_or_default());
    match broken {
        None => ExitCode::SUCCESS,
        Some(broken) => {
            println!("{broken}");
            ExitCode::FAILURE
        }
    }
}

fn verdict(broken: Option<(u64, Broken)>, flaw: Option<Rule>) -> ExitCode {
    let Some((seed, broken)) = broken else {
        println!("no rule was broken");
        return ExitCode::SUCCESS;
    };
    println!("\nseed {seed}: {broken}\n");
    println!("as a test, as small as could be found:\n");
    let small = shrink(&Script::of_seed(seed), broken.rule, flaw);
    println!("#[test]\nfn seed_{seed}() {{\n    everlink_sim::play(\n        \"");
    for line in small.to_string().lines() {
        println!("        {line}");
    }
    println!("        \",\n    );\n}}");
    ExitCode::FAILURE
}

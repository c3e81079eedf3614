//! `cargo xtask fuzz`: the fuzzers, one after the other, and what they found made small enough to keep.
//!
//! `engine` is how a target is built and called; `report` how a run is read and shown; `keep` what is committed of a corpus.

mod engine;
mod keep;
mod report;

use core::time::Duration;
use std::fs;
use std::path::PathBuf;

use crate::step::{root, target};

use engine::Engine;
use report::Report;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    what: What,
    /// None are all.
    targets: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// What has grown becomes what is committed.
    Minimise,
    /// All targets together run for so long.
    Run(Duration),
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let Asked { what, targets } = understand(arguments)?;
    let targets = chosen(&targets)?;
    let engine = Engine::build()?;
    match what {
        What::Minimise => keep::minimise(&engine, &targets),
        What::Run(time) => hunt(&engine, &targets, time),
    }
}

/// Runs each target for its share of the time, whatever becomes of those before.
fn hunt(engine: &Engine, targets: &[Target], time: Duration) -> Result<(), String> {
    let share = time / u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let mut report = Report::default();
    for target in targets {
        eprintln!("{} for {} s", target.name, share.as_secs());
        report.add(&target.name, engine.run(target, share)?);
    }
    eprintln!("\n{}", report.as_table());
    report.verdict()
}

/// The targets with these names, or all.
fn chosen(names: &[String]) -> Result<Vec<Target>, String> {
    let known = Target::all()?;
    if let Some(name) = names
        .iter()
        .find(|name| !known.iter().any(|target| target.name == **name))
    {
        let known: Vec<&str> = known.iter().map(|target| target.name.as_str()).collect();
        return Err(format!(
            "there is no target `{name}`; there are {}",
            known.join(", ")
        ));
    }
    let is_meant = |target: &Target| names.is_empty() || names.contains(&target.name);
    Ok(known.into_iter().filter(is_meant).collect())
}

/// A fuzz target, by the name of its file.
#[derive(Debug)]
struct Target {
    name: String,
}

impl Target {
    /// All that there are, in the order of their names.
    fn all() -> Result<Vec<Target>, String> {
        let directory = root().join("fuzz/fuzz_targets");
        let entries = fs::read_dir(&directory)
            .map_err(|error| format!("{} cannot be read: {error}", directory.display()))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|file| file.strip_suffix(".rs").map(str::to_owned))
            .collect();
        names.sort();
        Ok(names.into_iter().map(|name| Target { name }).collect())
    }

    /// What is committed, and replayed by the tests.
    fn committed(&self) -> PathBuf {
        root().join("fuzz/corpus").join(&self.name)
    }

    /// What has grown on this machine.
    fn grown(&self) -> PathBuf {
        target().join("fuzz-corpus").join(&self.name)
    }

    /// Where what breaks a rule is put.
    fn artifacts(&self) -> PathBuf {
        root().join("fuzz/artifacts").join(&self.name)
    }

    /// Words worth trying. Where bytes are a script, whole phrases of it were found to help nothing.
    fn dictionary(&self) -> Option<PathBuf> {
        self.is_text()
            .then(|| root().join("fuzz/dictionary/texts.dict"))
    }

    /// The longest input that is tried: room for lines beyond their limit, or for as many things as are ever played.
    fn longest(&self) -> u32 {
        if self.is_text() { 4_096 } else { 1_024 }
    }

    /// Whether its bytes are text, and not a script.
    fn is_text(&self) -> bool {
        ["line", "message", "sse"].contains(&&*self.name)
    }
}

fn understand(arguments: &[String]) -> Result<Asked, String> {
    let (mut what, mut targets) = (None, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let wanted = match argument.as_str() {
            "--minimise" => What::Minimise,
            "--minutes" => {
                let number = arguments.next().and_then(|text| text.parse::<u32>().ok());
                let minutes = number.ok_or("--minutes must be followed by a number")?;
                What::Run(Duration::from_secs(60) * minutes)
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option `{option}`"));
            }
            name => {
                targets.push(name.to_owned());
                continue;
            }
        };
        if what.replace(wanted).is_some() {
            return Err("--minutes and --minimise cannot be combined".into());
        }
    }
    let what = what.ok_or("say --minutes NUMBER or --minimise")?;
    Ok(Asked { what, targets })
}

#[cfg(test)]
mod tests {
    use super::{Asked, Duration, What, understand};

    fn of(line: &str) -> Result<Asked, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        understand(&words)
    }

    #[test]
    fn targets_and_minutes_come_in_any_order() {
        let asked = Asked {
            what: What::Run(Duration::from_secs(300)),
            targets: vec!["line".into(), "sse".into()],
        };
        assert_eq!(of("line --minutes 5 sse"), Ok(asked));
        let asked = Asked {
            what: What::Minimise,
            targets: Vec::new(),
        };
        assert_eq!(of("--minimise"), Ok(asked));
    }

    #[test]
    fn what_is_to_be_done_must_be_said_once() {
        assert!(of("").is_err());
        assert!(of("line").is_err());
        assert!(of("--minutes").is_err());
        assert!(of("--minutes soon").is_err());
        assert!(of("--minutes 5 --minimise").is_err());
        assert!(of("--minute 5").is_err());
    }
}

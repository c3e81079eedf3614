//! `cargo xtask fuzz`: the fuzzers, one after the other, and what they found made small enough to keep.
//!
//! `engine` is how a target is built and called; `report` how a run is read and shown; `keep` what is committed of a corpus.

mod engine;
mod keep;
mod report;

use core::num::NonZeroU32;
use core::time::Duration;
use std::fs;
use std::path::PathBuf;

use crate::step::{root, target};

use engine::Engine;
use report::Report;

/// Lets the targets with these names run, or all, for so many minutes together.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (time, names) = understand(arguments)?;
    let targets = Target::named(names)?;
    hunt(&Engine::build()?, &targets, time)
}

/// What has grown of the corpora of the targets with these names, or of all, becomes what is committed.
pub(crate) fn minimise(names: &[String]) -> Result<(), String> {
    let targets = Target::named(names)?;
    keep::minimise(&Engine::build()?, &targets)
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

/// A fuzz target, by the name of its file.
#[derive(Debug)]
struct Target {
    name: String,
}

impl Target {
    /// Those with these names, or all.
    fn named(names: &[String]) -> Result<Vec<Target>, String> {
        let all = Target::all()?;
        let strange = |name: &&String| !all.iter().any(|target| target.name == **name);
        if let Some(name) = names.iter().find(strange) {
            let all: Vec<&str> = all.iter().map(|target| &*target.name).collect();
            let all = all.join(", ");
            return Err(format!("there is no target `{name}`; there are {all}"));
        }
        let is_meant = |target: &Target| names.is_empty() || names.contains(&target.name);
        Ok(all.into_iter().filter(is_meant).collect())
    }

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
        ["again", "line", "message", "sse"].contains(&&*self.name)
    }
}

/// The minutes, and the names behind them.
fn understand(arguments: &[String]) -> Result<(Duration, &[String]), String> {
    let read = arguments.split_first();
    // No time would be no limit to it.
    let read = read.and_then(|(number, names)| Some((number.parse::<NonZeroU32>().ok()?, names)));
    let (minutes, names) = read.ok_or("--minutes must be followed by a number")?;
    Ok((Duration::from_secs(60) * minutes.get(), names))
}

#[cfg(test)]
mod tests {
    use super::{Target, understand};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn names_follow_the_minutes() {
        let of = |line: &str| {
            let words = words(line);
            let understood = understand(&words);
            understood.map(|(time, names)| format!("{} {}", time.as_secs(), names.join(" ")))
        };
        assert_eq!(of("5 line sse"), Ok("300 line sse".to_owned()));
        assert_eq!(of("1"), Ok("60 ".to_owned()));
        assert!(of("").is_err());
        assert!(of("soon").is_err());
        assert!(of("line 5").is_err());
        assert!(of("0").is_err());
    }

    #[test]
    fn targets_are_found_by_their_names() {
        let of = |line: &str| {
            let targets = Target::named(&words(line))?;
            Ok::<_, String>(targets.into_iter().map(|target| target.name).collect())
        };
        assert_eq!(of("sse line"), Ok(words("line sse")));
        assert!(of("").is_ok_and(|all: Vec<String>| all.len() > 2));
        assert!(of("lines").is_err());
        assert!(of("--minimise").is_err());
    }
}

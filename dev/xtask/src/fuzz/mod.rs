//! `cargo xtask fuzz`: runs the fuzz targets one after the other, and minimises their corpora.
//!
//! `engine` builds and runs a target, `report` parses and shows a run, and `corpus` chooses the committed inputs.

mod corpus;
mod engine;
mod report;

use core::num::NonZeroU32;
use core::time::Duration;
use std::fs;
use std::path::PathBuf;

use crate::step::{root, target};

use engine::Engine;
use report::Report;

/// Runs the targets with these names, or all, for this many minutes in total.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (time, names) = parse_arguments(arguments)?;
    let targets = Target::by_names(names)?;
    run_targets(&Engine::build()?, &targets, time)
}

/// Replaces the committed corpora of the targets with these names, or of all, by what the local corpora need.
pub(crate) fn minimise(names: &[String]) -> Result<(), String> {
    let targets = Target::by_names(names)?;
    corpus::minimise(&Engine::build()?, &targets)
}

/// Runs each target for its share of the time, whether or not the earlier ones fail.
fn run_targets(engine: &Engine, targets: &[Target], time: Duration) -> Result<(), String> {
    let share = time / u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let mut report = Report::default();
    for target in targets {
        eprintln!("{} for {} s", target.name, share.as_secs());
        report.add(&target.name, engine.run(target, share)?);
    }
    eprintln!("\n{}", report.as_table());
    report.result()
}

/// A fuzz target, by the name of its file.
#[derive(Debug)]
struct Target {
    name: String,
}

impl Target {
    /// The targets with these names, or all.
    fn by_names(names: &[String]) -> Result<Vec<Target>, String> {
        let all = Target::all()?;
        let is_unknown = |name: &&String| !all.iter().any(|target| target.name == **name);
        if let Some(name) = names.iter().find(is_unknown) {
            let all: Vec<&str> = all.iter().map(|target| &*target.name).collect();
            let all = all.join(", ");
            return Err(format!("there is no target `{name}`; there are {all}"));
        }
        let is_requested = |target: &Target| names.is_empty() || names.contains(&target.name);
        Ok(all.into_iter().filter(is_requested).collect())
    }

    /// All targets, in the order of their names.
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

    /// The committed corpus, which the tests replay.
    fn committed_corpus(&self) -> PathBuf {
        root().join("fuzz/corpus").join(&self.name)
    }

    /// The local corpus on this machine.
    fn local_corpus(&self) -> PathBuf {
        target().join("fuzz-corpus").join(&self.name)
    }

    /// The directory for inputs that break a rule.
    fn artifacts(&self) -> PathBuf {
        root().join("fuzz/artifacts").join(&self.name)
    }

    /// The dictionary for texts. For scripts, phrases were found not to help.
    fn dictionary(&self) -> Option<PathBuf> {
        self.is_text()
            .then(|| root().join("fuzz/dictionary/texts.dict"))
    }

    /// The length limit for inputs: room for lines beyond their limit, or for the longest script that is run.
    fn max_len(&self) -> u32 {
        if self.is_text() { 4_096 } else { 1_024 }
    }

    /// Whether its bytes are text, and not a script.
    fn is_text(&self) -> bool {
        let texts = [
            "again",
            "auth_challenge",
            "auth_document",
            "auth_redirect",
            "line",
            "message",
            "sse",
        ];
        texts.contains(&&*self.name)
    }
}

/// Parses the minutes and the names after them.
fn parse_arguments(arguments: &[String]) -> Result<(Duration, &[String]), String> {
    let parsed = arguments.split_first();
    // Zero would mean no limit.
    let parsed =
        parsed.and_then(|(number, names)| Some((number.parse::<NonZeroU32>().ok()?, names)));
    let (minutes, names) = parsed.ok_or("--minutes must be followed by a number")?;
    Ok((Duration::from_secs(60) * minutes.get(), names))
}

#[cfg(test)]
mod tests {
    use super::{Target, parse_arguments};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn minutes_come_before_names() {
        let parse = |line: &str| {
            let words = words(line);
            let parsed = parse_arguments(&words);
            parsed.map(|(time, names)| format!("{} {}", time.as_secs(), names.join(" ")))
        };
        assert_eq!(parse("5 line sse"), Ok("300 line sse".to_owned()));
        assert_eq!(parse("1"), Ok("60 ".to_owned()));
        assert!(parse("").is_err());
        assert!(parse("soon").is_err());
        assert!(parse("line 5").is_err());
        assert!(parse("0").is_err());
    }

    #[test]
    fn targets_are_selected_by_name() {
        let parse = |line: &str| {
            let targets = Target::by_names(&words(line))?;
            Ok::<_, String>(targets.into_iter().map(|target| target.name).collect())
        };
        assert_eq!(parse("sse line"), Ok(words("line sse")));
        assert!(parse("").is_ok_and(|all: Vec<String>| all.len() > 2));
        assert!(parse("lines").is_err());
        assert!(parse("--minimise").is_err());
    }
}

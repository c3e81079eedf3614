//! `cargo xtask fuzz`: runs the fuzz targets on all cores up to the first finding, and minimises their corpora.
//!
//! `engine` builds and runs a target, `report` parses the output of a run, `history` keeps all runs and writes the page, and `corpus` chooses the
//! committed inputs.

mod corpus;
mod engine;
mod history;
mod report;

use core::num::NonZeroU32;
use core::time::Duration;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use fs_err as fs;
use pico_args::Arguments;

use crate::evidence;
use crate::step::{self, check_names, in_parallel, root, target, words};

use engine::Engine;
use history::Row;

/// Runs the targets with these names, or all, for this many minutes.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let words = words(arguments)?;
    let (minutes, names) = minutes_and_names(&words)?;
    let targets = Target::by_names(names)?;
    let engine = Engine::build()?;
    let row = Row::of_command(minutes.get().into())?;
    let evidence = evidence::Run::begin("fuzz", &format!("fuzz --minutes {minutes}"))?;
    let result = run_targets(&engine, &targets, &row);
    let hours = history::write_page()?;
    result?;
    if !names.is_empty() {
        return Ok(());
    }
    let count = targets.len();
    evidence.end(&format!(
        "{count} targets, no finding; {hours:.1} CPU hours in all runs"
    ))
}

/// Writes the page again, from all runs and from the text about the findings.
pub(crate) fn write_page() -> Result<()> {
    history::write_page().map(drop)
}

/// Replaces the committed corpora of the targets with these names, or of all, by what the local corpora need.
pub(crate) fn minimise(arguments: Arguments) -> Result<()> {
    let targets = Target::by_names(&words(arguments)?)?;
    corpus::minimise(&Engine::build()?, &targets)
}

/// Runs the targets on all cores, each for the same time, up to the first finding. Each run becomes a row like this one.
fn run_targets(engine: &Engine, targets: &[Target], row: &Row) -> Result<()> {
    let (queue, share) = plan(targets.len() as u64, row.cores, row.minutes);
    let stop = target().join(format!("fuzz-stop-{}", std::process::id()));
    let results = in_parallel(row.cores as usize, &queue, |at| {
        if stop.exists() {
            return Ok(());
        }
        let result = run_target(engine, &targets[*at], share, &stop, row);
        if result.is_err() {
            // The fuzzers look for a file that is not empty.
            let _ = fs::write(&stop, "a finding");
        }
        result
    });
    let _ = fs::remove_file(&stop);
    let errors = results.into_iter().filter_map(Result::err);
    let errors: Vec<String> = errors.map(|error| format!("{error:#}")).collect();
    step::check_none(&errors)
}

/// The order in which the targets run, by their places, and the time for each run. Each target runs as often as it takes to occupy all cores to the
/// end.
fn plan(targets: u64, cores: u64, minutes: u64) -> (Vec<usize>, Duration) {
    let rounds = (1..=cores).find(|rounds| rounds * targets % cores == 0);
    let runs = rounds.unwrap_or(1) * targets;
    let queue = (0..runs).map(|run| (run % targets) as usize).collect();
    (queue, Duration::from_secs(minutes * 60 * cores / runs))
}

/// Runs a target once, and keeps the row. A finding is an error.
fn run_target(
    engine: &Engine,
    target: &Target,
    share: Duration,
    stop: &Path,
    row: &Row,
) -> Result<()> {
    let run = engine.run(target, share, stop)?;
    let finding = run.finding(&target.name);
    history::append(&row.with(&target.name, &run, finding.is_some()))?;
    match finding {
        Some(finding) => bail!(finding),
        None => Ok(()),
    }
}

/// A fuzz target, by the name of its file.
#[derive(Debug)]
struct Target {
    name: String,
}

impl Target {
    /// The targets with these names, or all, in the order of their names.
    fn by_names(names: &[String]) -> Result<Vec<Target>> {
        let files = step::files("fuzz/fuzz_targets", ".rs")?;
        let stems = files.iter().filter_map(|file| file.file_stem());
        let all: Vec<String> = stems
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        check_names(names, all.iter().map(String::as_str))?;
        let requested = all
            .into_iter()
            .filter(|name| names.is_empty() || names.contains(name));
        Ok(requested.map(|name| Target { name }).collect())
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
        let texts = "again auth_challenge auth_document auth_redirect header line message sse url";
        texts.split(' ').any(|text| text == self.name)
    }
}

/// The minutes and the names after them.
fn minutes_and_names(words: &[String]) -> Result<(NonZeroU32, &[String])> {
    let parsed = words.split_first();
    // Zero would mean no limit.
    let parsed = parsed.and_then(|(minutes, names)| Some((minutes.parse().ok()?, names)));
    parsed.context("--minutes must be followed by a number")
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::{Target, minutes_and_names, plan};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn minutes_come_before_names() {
        let parse = |line: &str| {
            let words = words(line);
            let parsed = minutes_and_names(&words).ok();
            parsed.map(|(minutes, names)| format!("{minutes} {}", names.join(" ")))
        };
        assert_eq!(parse("5 line sse"), Some("5 line sse".to_owned()));
        assert_eq!(parse("1"), Some("1 ".to_owned()));
        assert!(parse("").is_none());
        assert!(parse("soon").is_none());
        assert!(parse("line 5").is_none());
        assert!(parse("0").is_none());
    }

    #[test]
    fn all_cores_are_busy_to_the_end_and_each_target_has_the_same_time() {
        let seconds = Duration::from_secs;
        assert_eq!(plan(2, 2, 1), (vec![0, 1], seconds(60)));
        assert_eq!(plan(1, 2, 1), (vec![0, 0], seconds(60)));
        assert_eq!(plan(3, 2, 1), (vec![0, 1, 2, 0, 1, 2], seconds(20)));
        assert_eq!(plan(4, 8, 1), ([0, 1, 2, 3].repeat(2), seconds(60)));
        assert_eq!(plan(3, 1, 2), (vec![0, 1, 2], seconds(40)));
    }

    #[test]
    fn targets_are_selected_by_name() {
        let parse = |line: &str| {
            let targets = Target::by_names(&words(line)).ok()?;
            Some(targets.into_iter().map(|target| target.name).collect())
        };
        assert_eq!(parse("sse line"), Some(words("line sse")));
        assert!(parse("").is_some_and(|all: Vec<String>| all.len() > 2));
        assert!(parse("lines").is_none());
    }
}

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
use std::sync::Mutex;
use std::{fs, thread};

use crate::evidence;
use crate::step::{root, target};

use engine::Engine;
use history::Row;

/// Runs the targets with these names, or all, for this many minutes.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (minutes, names) = parse_arguments(arguments)?;
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
pub(crate) fn write_page() -> Result<(), String> {
    history::write_page().map(drop)
}

/// Replaces the committed corpora of the targets with these names, or of all, by what the local corpora need.
pub(crate) fn minimise(names: &[String]) -> Result<(), String> {
    let targets = Target::by_names(names)?;
    corpus::minimise(&Engine::build()?, &targets)
}

/// Runs the targets on all cores, each for the same time, up to the first finding. Each run becomes a row like this one.
fn run_targets(engine: &Engine, targets: &[Target], row: &Row) -> Result<(), String> {
    let (queue, share) = plan(targets.len() as u64, row.cores, row.minutes);
    let stop = target().join(format!("fuzz-stop-{}", std::process::id()));
    let queue = Mutex::new(queue.into_iter());
    let results: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let fails = |why: String| {
        results.lock().expect("no thread panics").push(why);
        // The fuzzers look for a file that is not empty.
        let _ = fs::write(&stop, "a finding");
    };
    let work = || {
        loop {
            let next = queue.lock().expect("no thread panics").next();
            let Some(at) = next.filter(|_| !stop.exists()) else {
                return;
            };
            if let Err(why) = run_target(engine, &targets[at], share, &stop, row) {
                fails(why);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..row.cores {
            scope.spawn(work);
        }
    });
    let _ = fs::remove_file(&stop);
    let results = results.into_inner().unwrap_or_default();
    if results.is_empty() {
        Ok(())
    } else {
        Err(results.concat())
    }
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
) -> Result<(), String> {
    let run = engine.run(target, share, stop)?;
    let finding = run.finding(&target.name);
    let row = row.with(&target.name, &run, finding.is_some());
    eprintln!("{row}");
    history::append(&row)?;
    finding.map_or(Ok(()), Err)
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
            "header",
            "line",
            "message",
            "sse",
            "url",
        ];
        texts.contains(&&*self.name)
    }
}

/// Parses the minutes and the names after them.
fn parse_arguments(arguments: &[String]) -> Result<(NonZeroU32, &[String]), String> {
    let parsed = arguments.split_first();
    // Zero would mean no limit.
    let parsed =
        parsed.and_then(|(number, names)| Some((number.parse::<NonZeroU32>().ok()?, names)));
    parsed.ok_or_else(|| "--minutes must be followed by a number".into())
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::{Target, parse_arguments, plan};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn minutes_come_before_names() {
        let parse = |line: &str| {
            let words = words(line);
            let parsed = parse_arguments(&words);
            parsed.map(|(minutes, names)| format!("{minutes} {}", names.join(" ")))
        };
        assert_eq!(parse("5 line sse"), Ok("5 line sse".to_owned()));
        assert_eq!(parse("1"), Ok("1 ".to_owned()));
        assert!(parse("").is_err());
        assert!(parse("soon").is_err());
        assert!(parse("line 5").is_err());
        assert!(parse("0").is_err());
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
            let targets = Target::by_names(&words(line))?;
            Ok::<_, String>(targets.into_iter().map(|target| target.name).collect())
        };
        assert_eq!(parse("sse line"), Ok(words("line sse")));
        assert!(parse("").is_ok_and(|all: Vec<String>| all.len() > 2));
        assert!(parse("lines").is_err());
        assert!(parse("--minimise").is_err());
    }
}

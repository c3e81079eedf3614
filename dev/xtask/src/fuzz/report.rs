//! What a fuzzer says while it runs, read and shown. Runs nothing.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::engine::FLAGS;
use crate::step::root;

/// The most lines that are kept of what is said beside the figures.
const LINES: usize = 200;

/// What became of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    before: Option<Figures>,
    after: Figures,
    /// What it said last, beside the figures.
    said: Vec<String>,
    /// The last input that was written down.
    written: Option<PathBuf>,
    crashed: bool,
}

/// What a fuzzer has to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    branches: u64,
    features: u64,
    inputs: u64,
}

impl Run {
    /// It says another line.
    pub(super) fn hear(&mut self, line: &str) {
        if let Some(figures) = Figures::read(line) {
            self.after = figures;
            if line.contains("INITED") {
                self.before = Some(figures);
            }
            return;
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.written = Some(path.trim_end().into());
        }
        if self.said.len() == LINES {
            self.said.remove(0);
        }
        self.said.push(line.to_owned());
    }

    /// It ended. That it failed without an input to show for it is an error.
    pub(super) fn end(&mut self, succeeds: bool) -> Result<(), String> {
        if succeeds {
            return Ok(());
        }
        let said = self.said.join("\n");
        if self.written.is_none() {
            return Err(format!("{said}\n\nthe fuzzer could not run"));
        }
        eprintln!("{said}");
        self.crashed = true;
        Ok(())
    }

    /// What broke a rule, if something did.
    fn crash(&self) -> Option<&Path> {
        self.written.as_deref().filter(|_| self.crashed)
    }
}

impl Figures {
    /// Reads a line such as `#512 NEW    cov: 12 ft: 34 corp: 5/67b lim: 8 exec/s: 9 rss: 10Mb`.
    fn read(line: &str) -> Option<Figures> {
        let (executions, rest) = line.strip_prefix('#')?.split_once('\t')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            let (number, _) = words
                .get(at + 1)?
                .split_once('/')
                .unwrap_or((words[at + 1], ""));
            number.parse().ok()
        };
        Some(Figures {
            executions: executions.parse().ok()?,
            branches: after("cov:")?,
            features: after("ft:")?,
            inputs: after("corp:").unwrap_or_default(),
        })
    }
}

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<(String, Run)>);

impl Report {
    pub(super) fn add(&mut self, target: &str, run: Run) {
        self.0.push((target.to_owned(), run));
    }

    pub(super) fn as_table(&self) -> String {
        let mut table = format!(
            "{:<14} {:>12} {:>16} {:>16} {:>18}  {}",
            "target", "executions", "inputs", "branches", "features", "crashes"
        );
        for (target, run) in &self.0 {
            let (before, after) = (run.before.unwrap_or_default(), run.after);
            let grown = |of: fn(&Figures) -> u64| format!("{} -> {}", of(&before), of(&after));
            let written = write!(
                table,
                "\n{target:<14} {:>12} {:>16} {:>16} {:>18}  {}",
                after.executions,
                grown(|figures| figures.inputs),
                grown(|figures| figures.branches),
                grown(|figures| figures.features),
                u8::from(run.crashed),
            );
            written.expect("a text takes everything");
        }
        table
    }

    /// An error that says how each crash is replayed, if there was one.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let mut verdict = String::new();
        for (target, run) in &self.0 {
            let Some(crash) = run.crash() else {
                continue;
            };
            let path = crash.strip_prefix(root()).unwrap_or(crash).display();
            let written = write!(
                verdict,
                "\n\n{target} broke a rule with {path}\n  \
                 cargo +nightly fuzz run {} {target} {path}\n  \
                 cargo run --package model --example show -- {target} {path}",
                FLAGS.join(" ")
            );
            written.expect("a text takes everything");
        }
        if verdict.is_empty() {
            Ok(())
        } else {
            Err(verdict)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, Report, Run};

    #[test]
    fn figures_are_read_from_what_the_fuzzer_says() {
        let line = "#512\tNEW    cov: 12 ft: 34 corp: 5/67b lim: 8 exec/s: 9 rss: 10Mb L: 4/8 MS: 1 EraseBytes-";
        let figures = Figures {
            executions: 512,
            branches: 12,
            features: 34,
            inputs: 5,
        };
        assert_eq!(Figures::read(line), Some(figures));
        assert_eq!(Figures::read("INFO: Seed: 1"), None);
        assert_eq!(Figures::read("#0 0x55 in rust_panic"), None);
    }

    #[test]
    fn a_crash_is_the_verdict_and_says_how_to_replay_it() {
        let mut run = Run::default();
        run.hear("#2\tINITED cov: 1 ft: 1 corp: 1/1b exec/s: 0 rss: 1Mb");
        run.hear("artifact_prefix='a/'; Test unit written to a/crash-1");
        assert_eq!(run.end(false), Ok(()));
        let mut report = Report::default();
        report.add("line", Run::default());
        report.add("sse", run);
        let verdict = report.verdict().unwrap_err();
        assert!(verdict.contains("sse a/crash-1"), "{verdict}");
        assert!(!verdict.contains("line"), "{verdict}");
        assert!(report.as_table().contains("sse"));
    }

    #[test]
    fn a_run_that_ends_well_is_no_crash_whatever_was_written() {
        let mut run = Run::default();
        run.hear("artifact_prefix='a/'; Test unit written to a/slow-unit-1");
        assert_eq!(run.end(true), Ok(()));
        let mut report = Report::default();
        report.add("line", run);
        assert_eq!(report.verdict(), Ok(()));
    }

    #[test]
    fn a_fuzzer_that_cannot_run_is_an_error() {
        let mut run = Run::default();
        run.hear("==1== ERROR: no such directory");
        assert!(run.end(false).unwrap_err().contains("no such directory"));
    }
}

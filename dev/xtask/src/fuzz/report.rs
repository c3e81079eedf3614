//! Parses and shows the output of a fuzzer. Must not run one.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::engine::FLAGS;
use crate::step::root;

/// The limit for kept lines beside the figures.
const MAX_LINES: usize = 200;

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    before: Option<Figures>,
    after: Figures,
    /// The last lines beside the figures.
    output: Vec<String>,
    /// The last input that the fuzzer wrote to a file.
    written_input: Option<PathBuf>,
    crashed: bool,
}

/// The figures in a status line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    branches: u64,
    features: u64,
    inputs: u64,
}

impl Run {
    /// Reads a line of the output.
    pub(super) fn read_line(&mut self, line: &str) {
        if let Some(figures) = Figures::read(line) {
            self.after = figures;
            if line.contains("INITED") {
                self.before = Some(figures);
            }
            return;
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.written_input = Some(path.trim_end().into());
        }
        if self.output.len() == MAX_LINES {
            self.output.remove(0);
        }
        self.output.push(line.to_owned());
    }

    /// Ends the run. A failure without an input is an error.
    pub(super) fn end(&mut self, succeeds: bool) -> Result<(), String> {
        if succeeds {
            return Ok(());
        }
        let output = self.output.join("\n");
        if self.written_input.is_none() {
            return Err(format!("{output}\n\nthe fuzzer could not run"));
        }
        eprintln!("{output}");
        self.crashed = true;
        Ok(())
    }

    /// The input that broke a rule, if there is one.
    fn crashing_input(&self) -> Option<&Path> {
        self.written_input.as_deref().filter(|_| self.crashed)
    }
}

impl Figures {
    /// Parses a line such as `#512 NEW    cov: 12 ft: 34 corp: 5/67b lim: 8 exec/s: 9 rss: 10Mb`.
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
            let before_and_after =
                |of: fn(&Figures) -> u64| format!("{} -> {}", of(&before), of(&after));
            let appended = write!(
                table,
                "\n{target:<14} {:>12} {:>16} {:>16} {:>18}  {}",
                after.executions,
                before_and_after(|figures| figures.inputs),
                before_and_after(|figures| figures.branches),
                before_and_after(|figures| figures.features),
                u8::from(run.crashed),
            );
            appended.expect("a text takes everything");
        }
        table
    }

    /// An error that says how to replay each crash, if there is one.
    pub(super) fn result(&self) -> Result<(), String> {
        let mut result = String::new();
        for (target, run) in &self.0 {
            let Some(crashing_input) = run.crashing_input() else {
                continue;
            };
            let path = crashing_input
                .strip_prefix(root())
                .unwrap_or(crashing_input)
                .display();
            let appended = write!(
                result,
                "\n\n{target} broke a rule with {path}\n  \
                 cargo +nightly fuzz run {} {target} {path}\n  \
                 cargo run --package model --example show -- {target} {path}",
                FLAGS.join(" ")
            );
            appended.expect("a text takes everything");
        }
        if result.is_empty() {
            Ok(())
        } else {
            Err(result)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, Report, Run};

    #[test]
    fn figures_are_parsed_from_a_status_line() {
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
    fn crash_is_an_error_that_says_how_to_replay_it() {
        let mut run = Run::default();
        run.read_line("#2\tINITED cov: 1 ft: 1 corp: 1/1b exec/s: 0 rss: 1Mb");
        run.read_line("artifact_prefix='a/'; Test unit written to a/crash-1");
        assert_eq!(run.end(false), Ok(()));
        let mut report = Report::default();
        report.add("line", Run::default());
        report.add("sse", run);
        let result = report.result().unwrap_err();
        assert!(result.contains("sse a/crash-1"), "{result}");
        assert!(!result.contains("line"), "{result}");
        assert!(report.as_table().contains("sse"));
    }

    #[test]
    fn successful_run_is_no_crash_even_if_an_input_was_written() {
        let mut run = Run::default();
        run.read_line("artifact_prefix='a/'; Test unit written to a/slow-unit-1");
        assert_eq!(run.end(true), Ok(()));
        let mut report = Report::default();
        report.add("line", run);
        assert_eq!(report.result(), Ok(()));
    }

    #[test]
    fn fuzzer_that_cannot_run_is_an_error() {
        let mut run = Run::default();
        run.read_line("==1== ERROR: no such directory");
        assert!(run.end(false).unwrap_err().contains("no such directory"));
    }
}

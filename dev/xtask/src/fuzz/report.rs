//! Parses the output of a fuzzer. Must not run one.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::engine::FLAGS;
use crate::step::root;

/// The limit for kept lines beside the figures.
const MAX_LINES: usize = 200;

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// After the corpora were read. `None` if they break a rule.
    pub(super) before: Option<Figures>,
    pub(super) after: Figures,
    pub(super) cpu_seconds: f64,
    /// The last lines beside the figures.
    output: Vec<String>,
    /// The last input that the fuzzer wrote to a file.
    written_input: Option<PathBuf>,
    crashed: bool,
}

/// The figures in a status line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) executions: u64,
    pub(super) edges: u64,
    pub(super) features: u64,
    pub(super) inputs: u64,
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
    pub(super) fn end(&mut self, succeeds: bool, cpu_seconds: f64) -> Result<()> {
        self.cpu_seconds = cpu_seconds;
        if succeeds {
            return Ok(());
        }
        let output = self.output.join("\n");
        ensure!(
            self.written_input.is_some(),
            "{output}\n\nthe fuzzer could not run"
        );
        eprintln!("{output}");
        self.crashed = true;
        Ok(())
    }

    /// The input that broke a rule and how to replay it, if there is one.
    pub(super) fn finding(&self, target: &str) -> Option<String> {
        let input = self.written_input.as_deref().filter(|_| self.crashed)?;
        let path = input.strip_prefix(root()).unwrap_or(input).display();
        Some(format!(
            "\n\n{target} broke a rule with {path}\n  \
             cargo +nightly fuzz run {} {target} {path}\n  \
             cargo run --package model --example show -- {target} {path}",
            FLAGS.join(" ")
        ))
    }
}

impl Figures {
    /// Parses a line such as `#512 NEW    cov: 12 ft: 34 corp: 5/67b lim: 8 exec/s: 9 rss: 10Mb`.
    fn read(line: &str) -> Option<Figures> {
        let (executions, rest) = line.strip_prefix('#')?.split_once('\t')?;
        let after = |name: &str| {
            let mut words = rest.split_whitespace();
            words.find(|word| *word == name)?;
            words.next()?.split('/').next()?.parse().ok()
        };
        Some(Figures {
            executions: executions.parse().ok()?,
            edges: after("cov:")?,
            features: after("ft:")?,
            inputs: after("corp:").unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, Run};

    #[test]
    fn figures_are_parsed_from_a_status_line() {
        let line = "#512\tNEW    cov: 12 ft: 34 corp: 5/67b lim: 8 exec/s: 9 rss: 10Mb L: 4/8 MS: 1 EraseBytes-";
        let figures = Figures {
            executions: 512,
            edges: 12,
            features: 34,
            inputs: 5,
        };
        assert_eq!(Figures::read(line), Some(figures));
        assert_eq!(Figures::read("INFO: Seed: 1"), None);
        assert_eq!(Figures::read("#0 0x55 in rust_panic"), None);
    }

    #[test]
    fn crash_is_a_finding_that_says_how_to_replay_it() {
        let mut run = Run::default();
        run.read_line("#2\tINITED cov: 1 ft: 1 corp: 1/1b exec/s: 0 rss: 1Mb");
        run.read_line("artifact_prefix='a/'; Test unit written to a/crash-1");
        run.end(false, 1.5).expect("a finding");
        let finding = run.finding("sse").expect("a finding");
        assert!(finding.contains("sse a/crash-1"), "{finding}");
    }

    #[test]
    fn successful_run_is_no_finding_even_if_an_input_was_written() {
        let mut run = Run::default();
        run.read_line("artifact_prefix='a/'; Test unit written to a/slow-unit-1");
        run.end(true, 0.0).expect("a run");
        assert_eq!(run.finding("line"), None);
    }

    #[test]
    fn fuzzer_that_cannot_run_is_an_error() {
        let mut run = Run::default();
        run.read_line("==1== ERROR: no such directory");
        let error = run.end(false, 0.0).unwrap_err();
        assert!(error.to_string().contains("no such directory"));
    }
}

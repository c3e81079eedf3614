//! The results: a table for the terminal, one for the page, and the errors. Must not run anything.

use core::fmt::Write;

use super::row::{Ours, Row, Step};
use super::runner::RowResult;

#[derive(Default)]
pub(super) struct Report {
    rows: Vec<(&'static Row, RowResult)>,
}

impl Report {
    pub(super) fn add(&mut self, row: &'static Row, result: RowResult) {
        self.rows.push((row, result));
    }

    /// Fails if a step failed or is missing.
    pub(super) fn result(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        for (row, result) in &self.rows {
            let before = problems.len();
            for (step, outcome) in &result.steps {
                if let Err(error) = outcome {
                    problems.push(format!("{}, {}: {error}", row.name(), step.name()));
                }
            }
            if problems.len() > before {
                let lines: Vec<&str> = result.log.lines().collect();
                let last = &lines[lines.len().saturating_sub(20)..];
                problems.extend(last.iter().map(|line| format!("    {line}")));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(format!("something went wrong:\n{}", problems.join("\n")))
        }
    }

    /// The results for a terminal.
    pub(super) fn as_table(&self) -> String {
        let mut reasons = Reasons::default();
        let mut table = String::new();
        for ours in [Ours::Client, Ours::Server] {
            let _ = writeln!(table, "{}", heading(ours));
            let _ = write!(table, "{:<37} {:<23} {:<27}", "", "", "version");
            for step in &Step::ALL[1..] {
                let _ = write!(table, " {:<8}", step.name());
            }
            table.push('\n');
            for (row, result) in self.rows_of(ours) {
                let version = result.version.as_deref().unwrap_or_default();
                let _ = write!(
                    table,
                    "{:<37} {:<23} {version:<27}",
                    row.title,
                    row.transport_and_era()
                );
                for step in &Step::ALL[1..] {
                    let _ = write!(table, " {:<8}", reasons.cell(row, result, *step));
                }
                if let Some(after) = result.ready_after {
                    let _ = write!(table, " ready after {} ms", after.as_millis());
                }
                table.push('\n');
            }
            table.push('\n');
        }
        table + &reasons.list()
    }

    /// The results for the page. They do not differ from run to run unless something fails.
    pub(super) fn as_markdown(&self) -> String {
        let mut reasons = Reasons::default();
        let mut page = String::from(INTRODUCTION);
        for ours in [Ours::Client, Ours::Server] {
            let _ = write!(
                page,
                "\n## {}\n\n| peer | over | agreed on |",
                heading(ours)
            );
            for step in &Step::ALL[1..] {
                let _ = write!(page, " {} |", step.name());
            }
            page.push('\n');
            page.push_str(&"|---".repeat(Step::ALL.len() + 2));
            page.push_str("|\n");
            for (row, result) in self.rows_of(ours) {
                let version = match result.steps.get(&Step::Handshake) {
                    Some(Ok(())) => row.version,
                    Some(Err(_)) | None => "NO",
                };
                let _ = write!(
                    page,
                    "| {} | {} | {version} |",
                    row.title,
                    row.transport_and_era()
                );
                for step in &Step::ALL[1..] {
                    let _ = write!(page, " {} |", reasons.cell(row, result, *step));
                }
                page.push('\n');
            }
        }
        let _ = write!(page, "\n{}", reasons.list());
        page
    }

    fn rows_of(&self, ours: Ours) -> impl Iterator<Item = &(&'static Row, RowResult)> {
        self.rows.iter().filter(move |(row, _)| row.ours == ours)
    }
}

const INTRODUCTION: &str = "# Real peers

Made by `cargo xtask interop`, which installs published servers and SDKs of other projects and runs the same steps with each.

- agreed on: the version. A peer that speaks both eras detects the right one, unless the row says `legacy`. A server that `starts late` is silent for
  longer than the probe waits. One of these servers still reports that it is modern. The other accepts the older era in its first process, and the link
  treats the next process as modern. The three oldest servers do not survive the probe: a second process must be ready within three seconds of the start.
- list, call, error: the tools, a result of one, a failure of one.
- progress: every report arrives, in order.
- cancel: a call is cancelled, and the server confirms it. `server-everything` cannot confirm it: no answer to that call may appear. A proxy checks
  that if the client no longer reads.
- ask: the server needs a name from the client for its answer.
- watch, news: a watched resource changes; a list changes, and the new one is read.
- kill: `kill -9` while the server runs a call. With our client, that call fails with the reason and may have run, and the next one works
  without further action: in a new process, or with one that listens at the same address again. With a client of another project, a new connection works.
";

fn heading(ours: Ours) -> &'static str {
    match ours {
        Ours::Client => "Our client, servers of others",
        Ours::Server => "Our server, clients of others",
    }
}

/// The reasons why a step is missing, each with a number.
#[derive(Default)]
struct Reasons(Vec<&'static str>);

impl Reasons {
    fn cell(&mut self, row: &Row, result: &RowResult, step: Step) -> String {
        match (result.steps.get(&step), row.reason_unsupported(step)) {
            (Some(Ok(())), _) => "yes".to_owned(),
            (None, Some(reason)) => format!("- ({})", self.number(reason)),
            (Some(Err(_)), _) | (None, None) => "NO".to_owned(),
        }
    }

    fn number(&mut self, reason: &'static str) -> usize {
        let known = self.0.iter().position(|known| *known == reason);
        1 + known.unwrap_or_else(|| {
            self.0.push(reason);
            self.0.len() - 1
        })
    }

    fn list(&self) -> String {
        let mut list = String::new();
        for (index, reason) in self.0.iter().enumerate() {
            let _ = writeln!(list, "{}. {reason}", index + 1);
        }
        list
    }
}

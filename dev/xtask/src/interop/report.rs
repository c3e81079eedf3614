//! What came of it: a matrix for the terminal and one to be written down, and what was wrong. Knows no meeting.

use core::fmt::Write;

use super::meeting::Told;
use super::row::{Ours, Row, Step};

#[derive(Default)]
pub(super) struct Report {
    rows: Vec<(&'static Row, Told)>,
}

impl Report {
    pub(super) fn add(&mut self, row: &'static Row, told: Told) {
        self.rows.push((row, told));
    }

    /// Fails where a step did, or is missing.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        for (row, told) in &self.rows {
            let before = wrong.len();
            for (step, outcome) in &told.steps {
                if let Err(why) = outcome {
                    wrong.push(format!("{}, {}: {why}", row.name(), step.name()));
                }
            }
            if wrong.len() > before {
                let lines: Vec<&str> = told.log.lines().collect();
                let last = &lines[lines.len().saturating_sub(20)..];
                wrong.extend(last.iter().map(|line| format!("    {line}")));
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!("something went wrong:\n{}", wrong.join("\n")))
        }
    }

    /// For a terminal.
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
            for (row, told) in self.of(ours) {
                let version = told.version.as_deref().unwrap_or_default();
                let _ = write!(table, "{:<37} {:<23} {version:<27}", row.title, row.way());
                for step in &Step::ALL[1..] {
                    let _ = write!(table, " {:<8}", reasons.word(row, told, *step));
                }
                if let Some(after) = told.ready_after {
                    let _ = write!(table, " ready after {} ms", after.as_millis());
                }
                table.push('\n');
            }
            table.push('\n');
        }
        table + &reasons.list()
    }

    /// To be written down: nothing in it differs from run to run as long as all is well.
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
            for (row, told) in self.of(ours) {
                let version = match told.steps.get(&Step::Handshake) {
                    Some(Ok(())) => row.version,
                    Some(Err(_)) | None => "NO",
                };
                let _ = write!(page, "| {} | {} | {version} |", row.title, row.way());
                for step in &Step::ALL[1..] {
                    let _ = write!(page, " {} |", reasons.word(row, told, *step));
                }
                page.push('\n');
            }
        }
        let _ = write!(page, "\n{}", reasons.list());
        page
    }

    fn of(&self, ours: Ours) -> impl Iterator<Item = &(&'static Row, Told)> {
        self.rows.iter().filter(move |(row, _)| row.ours == ours)
    }
}

const INTRODUCTION: &str = "# Real peers

Made by `cargo xtask interop`, which installs the servers and SDKs of others as they are published and goes through the same steps with each.

- agreed on: the version. Whoever speaks both eras finds out by itself which one to speak, unless the row says `legacy`. A server that `starts late`
  is silent for longer than the probe waits: one says all the same that it is modern, the other takes the older era in its first process and is known
  for what it is in the next. The three oldest servers do not survive the probe: a second process must be ready within three seconds of the start.
- list, call, error: the tools, a result of one, a failure of one.
- progress: every report arrives, in order.
- cancel: a call is cancelled, and the server itself says that it knows. `server-everything` has no word for it: no answer to that call may be seen, by a
  tap in the wire where the client itself would not look any more.
- ask: the server needs a name from the client for its answer.
- watch, news: a resource that is watched changes; a list changes, and the new one is read.
- kill: `kill -9` while the server runs a call. With our client, that call says what happened and that it may have run, and the next one works
  without further ado: in a new process, or with one that listens at the same address again. With a client of others, a new connection works.
";

fn heading(ours: Ours) -> &'static str {
    match ours {
        Ours::Client => "Our client, servers of others",
        Ours::Server => "Our server, clients of others",
    }
}

/// Why something is not there, each with a number.
#[derive(Default)]
struct Reasons(Vec<&'static str>);

impl Reasons {
    fn word(&mut self, row: &Row, told: &Told, step: Step) -> String {
        match (told.steps.get(&step), row.lack(step)) {
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

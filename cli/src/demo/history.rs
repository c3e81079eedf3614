//! Stores what happens during the demo: the outcome of each call, and how many servers ended without being asked to. Evaluates nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, io, process};

use everlink::client::{Delivery, FailureKind};

#[derive(Debug, Default)]
pub(super) struct History {
    /// Every call, indexed by its number.
    pub(super) calls: Vec<CallRecord>,
    /// The number of servers that ended without being asked to.
    pub(super) deaths: u32,
    /// How many times the link became ready again.
    pub(super) reconnects: u32,
    /// The time from each unplanned end of a server until the link was ready again.
    pub(super) recovery_times: Vec<Duration>,
    /// Violations of the rules that were noticed during the demo.
    pub(super) violations: Vec<String>,
}

#[derive(Debug)]
pub(super) struct CallRecord {
    pub(super) kind: CallKind,
    /// `None` while the call is open. It stays `None` if the call hangs.
    pub(super) outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A list request. Servers do not write it to the diary.
    List,
    /// A tool call that may run twice.
    Repeatable,
    /// A tool call that must not run twice.
    Once,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Failed {
        kind: FailureKind,
        delivery: Delivery,
    },
    /// The driver of the link ended before the call had an outcome.
    Lost,
    /// The link did not accept the call.
    Refused,
    Reply,
}

impl History {
    /// Adds a call and returns its number.
    pub(super) fn add_call(&mut self, kind: CallKind) -> usize {
        self.calls.push(CallRecord {
            kind,
            outcome: None,
        });
        self.calls.len() - 1
    }

    pub(super) fn settle(&mut self, number: usize, outcome: Outcome) {
        self.calls[number].outcome = Some(outcome);
    }
}

/// The file in which the servers note the calls that they run. Dropping this removes the file.
pub(super) struct Diary(PathBuf);

impl Diary {
    pub(super) fn create() -> io::Result<Diary> {
        let name = format!("everlink-demo-{}.diary", process::id());
        let path = env::temp_dir().join(name);
        File::create_new(&path).map_err(|error| {
            let text = format!("{} cannot be created: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(Diary(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns how many times each of these calls ran.
    pub(super) fn read(&self, calls: usize) -> io::Result<Vec<u32>> {
        let mut runs = vec![0; calls];
        for line in fs::read_to_string(&self.0)?.lines() {
            let number = line.parse().ok();
            let run = number.and_then(|number: usize| runs.get_mut(number));
            *run.ok_or_else(|| {
                io::Error::other(format!("`{line}` in the diary is not the number of a call"))
            })? += 1;
        }
        Ok(runs)
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

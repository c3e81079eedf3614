//! What the demo writes down while it runs: what came of each call, and what happened to the servers. Judges nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, io, process};

use everlink::client::{Delivery, FailureKind};

#[derive(Debug, Default)]
pub(super) struct Book {
    /// Every call, by its number.
    pub(super) calls: Vec<Entry>,
    /// Servers that ended without having been asked to.
    pub(super) deaths: u32,
    /// Times that the link was ready again.
    pub(super) reconnects: u32,
    /// How long it took from each death until the link was ready.
    pub(super) comebacks: Vec<Duration>,
    /// What was seen that must not be.
    pub(super) broken: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) wish: Wish,
    /// Nothing while it is open, and for good if it hung.
    pub(super) outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A list, which the servers do not write down.
    List,
    /// A tool that may be run twice.
    Repeatable,
    /// A tool that may not.
    Once,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Failed {
        kind: FailureKind,
        delivery: Delivery,
    },
    /// Whoever drove the link ended before it said a word.
    Lost,
    /// It was never accepted.
    Refused,
    Reply,
}

impl Book {
    /// A call is made; this is its number.
    pub(super) fn begin(&mut self, wish: Wish) -> usize {
        self.calls.push(Entry {
            wish,
            outcome: None,
        });
        self.calls.len() - 1
    }

    pub(super) fn settle(&mut self, number: usize, outcome: Outcome) {
        self.calls[number].outcome = Some(outcome);
    }
}

/// The file in which the servers write down what they run. Gone with this.
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

    /// How often each of so many calls ran.
    pub(super) fn read(&self, calls: usize) -> io::Result<Vec<u32>> {
        let mut runs = vec![0; calls];
        for line in fs::read_to_string(&self.0)?.lines() {
            let number = line.parse().ok();
            let run = number.and_then(|number: usize| runs.get_mut(number));
            *run.ok_or_else(|| io::Error::other(format!("`{line}` in the diary is no call")))? += 1;
        }
        Ok(runs)
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

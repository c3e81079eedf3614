//! Remembers in the target directory which mutants were caught, so that a later run can leave them out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::run::Fate;

/// A mutant, independent of its number and line.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) file: String,
    /// The hash of the file's code.
    pub(crate) code: String,
    pub(crate) function: String,
    pub(crate) change: String,
    /// Counts the same change in the same function.
    pub(crate) ordinal: usize,
}

impl Key {
    fn line(&self) -> String {
        let Key {
            file,
            code,
            function,
            change,
            ordinal,
        } = self;
        format!("{file}\t{code}\t{function}\t{change}\t{ordinal}")
    }
}

/// The mutants that were caught, and a file to which more are appended.
#[derive(Debug)]
pub(crate) struct State {
    /// With the test that caught each.
    caught: BTreeMap<String, String>,
    file: Option<File>,
}

impl State {
    pub(crate) fn read(path: &Path) -> State {
        let text = fs::read_to_string(path).unwrap_or_default();
        let entry = |line: &str| {
            let (key, test) = line.rsplit_once('\t')?;
            Some((key.to_owned(), test.to_owned()))
        };
        State {
            caught: text.lines().filter_map(entry).collect(),
            file: File::options().create(true).append(true).open(path).ok(),
        }
    }

    pub(crate) fn is_caught(&self, key: &Key) -> bool {
        self.caught.contains_key(&key.line())
    }

    /// The test that caught a mutant.
    pub(crate) fn killer(&self, key: &Key) -> Option<&str> {
        self.caught.get(&key.line()).map(String::as_str)
    }

    /// Appends a mutant that was caught, with the test that caught it.
    pub(crate) fn note(&mut self, key: &Key, fate: &Fate) {
        let by = match fate {
            Fate::Caught(test) => test.as_str(),
            Fate::TimedOut => "time",
            Fate::Survived | Fate::Unreached => return,
        };
        if let Some(file) = &mut self.file {
            // A lost note costs one more run.
            let _ = writeln!(file, "{}\t{by}", key.line());
        }
    }
}

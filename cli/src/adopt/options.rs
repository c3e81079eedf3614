//! The options of `everlink adopt`.

use std::path::PathBuf;

use clap::Args as Arguments;
use clap::builder::{PossibleValue, PossibleValuesParser};

use super::hosts::HOSTS;

#[derive(Debug, Arguments)]
pub(crate) struct Adopt {
    /// Guard the servers: change the files
    #[arg(long, conflicts_with_all = ["undo", "check"])]
    pub(super) write: bool,
    /// Remove the guards that --write added
    #[arg(long, conflicts_with = "check")]
    pub(super) undo: bool,
    /// Change nothing, and exit with status 1 if a server that can be guarded is not
    #[arg(long)]
    pub(super) check: bool,
    /// Only the files of this host; can be given more than once
    #[arg(long, value_name = "HOST", value_parser = host_names())]
    pub(super) host: Vec<String>,
    /// Only this file, wherever it is; can be given more than once. With --host, the file is read as one of that host; otherwise its name and its keys
    /// tell what it is
    #[arg(long, value_name = "PATH")]
    pub(super) file: Vec<PathBuf>,
    /// Only servers of this name; can be given more than once
    #[arg(long, value_name = "NAME")]
    pub(super) server: Vec<String>,
    /// The program that hosts start as the guard: a name in their PATH, or an absolute path [default: chosen for each host, see --help]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["undo", "check"])]
    pub(super) program: Option<String>,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What the command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Check,
    Show,
    Undo,
    Write,
}

impl Adopt {
    pub(super) fn mode(&self) -> Mode {
        match (self.write, self.undo, self.check) {
            (true, _, _) => Mode::Write,
            (_, true, _) => Mode::Undo,
            (_, _, true) => Mode::Check,
            _ => Mode::Show,
        }
    }

    /// Whether a server with this name is selected.
    pub(super) fn selects(&self, name: &str) -> bool {
        self.server.is_empty() || self.server.iter().any(|selected| selected == name)
    }
}

fn host_names() -> PossibleValuesParser {
    let names = HOSTS.iter();
    PossibleValuesParser::new(names.map(|host| PossibleValue::new(host.id).help(host.title)))
}

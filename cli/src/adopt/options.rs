//! The options of `everlink adopt`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args as Arguments, Parser};

use super::hosts::HOSTS;
use crate::args::{Args, Command};
use crate::guard::check_options;
use crate::stderr_copy::ServerStderr;
use crate::{Failure, usage_error};

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
    /// Options for the guards, after `--`: those of `everlink guard`. They are the same for all servers, so none may name a port, a file of one server or
    /// another kind of host
    #[arg(last = true, value_name = "GUARD OPTIONS", conflicts_with_all = ["undo", "check"])]
    pub(super) guard_options: Vec<String>,
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

    /// Checks the options for the guards, as the guard itself would.
    pub(super) fn check_guard_options(&self) -> Result<(), Failure> {
        let options = self.guard_options.iter().map(String::as_str);
        let words = ["everlink", "guard"].into_iter().chain(options);
        let parsed = Args::try_parse_from(words.chain(["--", "server"]));
        let parsed = parsed.map_err(|error| {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            usage_error(format!("the options for the guards: {first}"))
        })?;
        let Command::Guard(guard) = parsed.command else {
            return Err(usage_error(
                "the options for the guards: they are not options",
            ));
        };
        let is_one_server = guard.target.command_line.len() == 1;
        let target = &guard.target;
        let has_port = guard.status.is_some_and(|address| address.port() != 0);
        let refusal = if !is_one_server {
            "write the options alone, without the command of a server"
        } else if guard.listen != "stdio" {
            "--listen does not fit, because the hosts speak to a guard over its standard streams"
        } else if has_port {
            "--status needs port 0, as in 127.0.0.1:0, because each guard needs a port of its own; its log says which it has"
        } else if target.record_options.record.is_some() {
            "--record does not fit, because all guards would be given one file"
        } else if target.cwd.is_some() || !target.env.is_empty() {
            "--cwd and --env belong to one server; write them into the file of the host"
        } else if matches!(target.server_stderr, Some(ServerStderr::File(_))) {
            "--server-stderr does not fit with a file, because all guards would write to it; use inherit, prefix or off"
        } else {
            return check_options(&guard)
                .and_then(|()| target.check_sign_in_options(false))
                .map_err(|error| usage_error(format!("the options for the guards: {error}")));
        };
        Err(usage_error(format!(
            "the options for the guards: {refusal}"
        )))
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

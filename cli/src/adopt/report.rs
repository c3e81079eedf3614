//! Shows what `everlink adopt` found and did, as text or as JSON. Never shows the arguments of a server, which may be secret.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Failure;
use crate::output::{print, single_line, warn};

use super::files::ConfigFile;
use super::hosts::{Host, Scope};
use super::options::Mode;
use super::plan::{Outcome, PlannedServer};
use super::tree::SyntaxError;

/// The result of the command.
pub(super) struct Report {
    mode: Mode,
    pub(super) files: Vec<FileReport>,
    pub(super) problems: Vec<Problem>,
    /// The places without a file, if no file was found at all.
    pub(super) searched: Vec<PathBuf>,
}

/// What was found in a file and done with it.
pub(super) struct FileReport {
    pub(super) host: Option<&'static Host>,
    scope: Scope,
    path: PathBuf,
    target: PathBuf,
    pub(super) servers: Vec<PlannedServer>,
    /// The name of the guard's program in this file, if guards are added.
    program: Option<String>,
    pub(super) is_changed: bool,
    /// How the last guards were removed.
    pub(super) undone: Option<Undone>,
    /// The backup that was made before the file was changed. `None` if none was made.
    pub(super) backup: Option<PathBuf>,
}

/// How the last guards of a file were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// The guards were taken out of a file that had been changed since.
    Edited,
    /// The file has the bytes of a backup again.
    Restored,
}

/// A file that was left alone because of an error.
pub(super) struct Problem {
    host: Option<&'static Host>,
    path: PathBuf,
    message: String,
    place: Option<(usize, usize)>,
}

impl Problem {
    pub(super) fn new(host: Option<&'static Host>, path: &Path, message: String) -> Problem {
        Problem {
            host,
            path: path.to_owned(),
            message,
            place: None,
        }
    }

    pub(super) fn at(mut self, error: &SyntaxError) -> Problem {
        self.place = Some((error.line, error.column));
        self
    }

    fn as_json(&self) -> Value {
        json!({
            "host": self.host.map(|host| host.id),
            "path": self.path.to_string_lossy(),
            "error": self.message,
            "line": self.place.map(|(line, _)| line),
            "column": self.place.map(|(_, column)| column),
        })
    }
}

impl FileReport {
    pub(super) fn new(
        host: Option<&'static Host>,
        scope: Scope,
        file: &ConfigFile,
        servers: Vec<PlannedServer>,
        program: Option<String>,
    ) -> FileReport {
        FileReport {
            host,
            scope,
            path: file.path.clone(),
            target: file.target.clone(),
            servers,
            program,
            is_changed: false,
            undone: None,
            backup: None,
        }
    }

    fn count(&self, is_counted: impl Fn(Outcome) -> bool) -> usize {
        let servers = self.servers.iter();
        servers.filter(|server| is_counted(server.outcome)).count()
    }

    fn as_text(&self) -> String {
        let title = self.host.map_or("File", |host| host.title);
        let scope = match self.scope {
            Scope::Project => " (project)",
            Scope::User => "",
        };
        let mut text = format!("{title}{scope}: {}", self.path.display());
        if self.target != self.path {
            let _ = write!(text, " -> {}", self.target.display());
        }
        let mut text = single_line(&text);
        let label = |server: &PlannedServer| single_line(&server.label());
        let labels = self
            .servers
            .iter()
            .map(|server| label(server).chars().count());
        let width = labels.max().unwrap_or(0);
        for server in &self.servers {
            let outcome = single_line(&self.outcome(server));
            let _ = write!(text, "\n  {:width$}  {outcome}", label(server));
        }
        if self.servers.is_empty() {
            text.push_str("\n  no servers");
        }
        let can_be_guarded = self.count(|outcome| outcome == Outcome::Guard) > 0;
        if let Some(program) = self.program.as_ref().filter(|_| can_be_guarded) {
            let line = format!("guard: {program} guard --");
            let _ = write!(text, "\n  {}", single_line(&line));
        }
        if let Some(backup) = &self.backup {
            let line = format!("backup: {}", backup.display());
            let _ = write!(text, "\n  {}", single_line(&line));
        }
        text.push_str(match self.undone {
            Some(Undone::Edited) => {
                "\n  changed since --write, so only the guards are removed; backup deleted"
            }
            Some(Undone::Restored) => "\n  the same as before --write; backup deleted",
            None => "",
        });
        text
    }

    fn outcome(&self, server: &PlannedServer) -> String {
        let program = server.program.as_deref().unwrap_or_default();
        match server.outcome {
            Outcome::Guard if self.is_changed => format!("is guarded now: {program}"),
            Outcome::Guard => format!("can be guarded: {program}"),
            Outcome::Guarded => "is guarded".to_owned(),
            Outcome::Kept(reason) => format!("stays guarded: {reason}"),
            Outcome::LeftAlone(reason) => format!("is left alone: {reason}"),
            Outcome::Unguard => format!("is no longer guarded: {program}"),
        }
    }

    fn as_json(&self) -> Value {
        let server = |server: &PlannedServer| {
            let (state, reason) = match server.outcome {
                Outcome::Guard if self.is_changed => ("guarded", None),
                Outcome::Guarded => ("guarded", None),
                Outcome::Kept(reason) => ("guarded", Some(reason.id())),
                Outcome::LeftAlone(reason) => ("left-alone", Some(reason.id())),
                Outcome::Guard | Outcome::Unguard => ("unguarded", None),
            };
            let changes = matches!(server.outcome, Outcome::Guard | Outcome::Unguard);
            json!({
                "name": server.id.name,
                "table": server.id.table,
                "program": server.program,
                "state": state,
                "reason": reason,
                "changed": self.is_changed && changes,
            })
        };
        json!({
            "host": self.host.map(|host| host.id),
            "scope": match self.scope {
                Scope::Project => "project",
                Scope::User => "user",
            },
            "path": self.path.to_string_lossy(),
            "target": self.target.to_string_lossy(),
            "program": self.program,
            "changed": self.is_changed,
            "backup": self.backup.as_ref().map(|path| path.to_string_lossy()),
            "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
        })
    }
}

impl PlannedServer {
    /// The name, and the project in which the server is used if the file has several.
    fn label(&self) -> String {
        match &self.id.table[..] {
            [_, project, _] => format!("{} ({project})", self.id.name),
            _ => self.id.name.clone(),
        }
    }
}

impl Report {
    pub(super) fn new(mode: Mode) -> Report {
        Report {
            mode,
            files: Vec::new(),
            problems: Vec::new(),
            searched: Vec::new(),
        }
    }

    /// Returns the exit status of the program: 4 after a problem, 1 if `--check` found a server without a guard, else 0.
    pub(super) fn status(&self) -> u8 {
        match self.mode {
            _ if !self.problems.is_empty() => 4,
            Mode::Check if self.count(|outcome| outcome == Outcome::Guard) > 0 => 1,
            _ => 0,
        }
    }

    fn count(&self, is_counted: impl Fn(Outcome) -> bool + Copy) -> usize {
        self.files.iter().map(|file| file.count(is_counted)).sum()
    }

    pub(super) fn print(&self, is_json: bool) -> Result<(), Failure> {
        if is_json {
            print(&json!({
                "files": self.files.iter().map(FileReport::as_json).collect::<Vec<_>>(),
                "problems": self.problems.iter().map(Problem::as_json).collect::<Vec<_>>(),
                "searched": self.searched.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            }))?;
            return Ok(());
        }
        for file in &self.files {
            print(&file.as_text())?;
        }
        if !self.searched.is_empty() {
            print(&"No configuration of a host was found. There is no file at:")?;
            for path in &self.searched {
                print(&format_args!("  {}", single_line(&path.to_string_lossy())))?;
            }
        } else if !self.files.is_empty() {
            print(&format_args!("\n{}", self.summary()))?;
        } else if self.mode == Mode::Undo {
            print(&self.summary())?;
        }
        for problem in &self.problems {
            warn(&single_line(&format!(
                "{}: {}",
                problem.path.display(),
                problem.message
            )));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let can = self.count(|outcome| outcome == Outcome::Guard);
        let guarded = self.count(|outcome| matches!(outcome, Outcome::Guarded | Outcome::Kept(_)));
        let left_alone = self.count(|outcome| matches!(outcome, Outcome::LeftAlone(_)));
        let removed = self.count(|outcome| outcome == Outcome::Unguard);
        let left_alone = format!("{} left alone.", is(left_alone));
        match self.mode {
            Mode::Undo if removed == 0 => "There is nothing to undo.".to_owned(),
            Mode::Undo => format!(
                "The guards of {} are removed. Restart the hosts.",
                servers(removed)
            ),
            Mode::Check | Mode::Show | Mode::Write if can == 0 => {
                format!(
                    "There is nothing to do: {} guarded, {left_alone}",
                    is(guarded)
                )
            }
            Mode::Check | Mode::Show => format!(
                "{} can be guarded, {} already guarded, {left_alone}\nNothing was changed. Quit the hosts, then run `everlink adopt --write`.",
                servers(can),
                is(guarded)
            ),
            Mode::Write => format!(
                "{} guarded now, {} before, {left_alone}\nRestart the hosts. Later, `everlink adopt --check` shows whether a host has overwritten its file, and `everlink adopt --undo` removes the guards.",
                is_servers(can),
                was(guarded)
            ),
        }
    }
}

fn servers(count: usize) -> String {
    match count {
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    }
}

fn is(count: usize) -> String {
    match count {
        1 => "1 is".to_owned(),
        count => format!("{count} are"),
    }
}

fn is_servers(count: usize) -> String {
    match count {
        1 => "1 server is".to_owned(),
        count => format!("{count} servers are"),
    }
}

fn was(count: usize) -> String {
    match count {
        1 => "1 was".to_owned(),
        count => format!("{count} were"),
    }
}

//! Implements `everlink adopt`: guards the servers in the configuration of the hosts on this machine.
//!
//! `options` has the options. `hosts` says where each host keeps its configuration, and `files` reads and replaces these files. `tree` reads JSON and
//! TOML, `servers` finds the servers, and `guard_command` recognises a guard. `plan` decides what changes, and `edit` changes the text. `program`
//! decides with which words a host starts this program, and `report` shows what was done.

mod edit;
mod files;
mod guard_command;
mod hosts;
mod options;
mod plan;
mod program;
mod report;
mod servers;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, slice};

use crate::{Failure, usage_error};

use files::{Backup, ConfigFile};
use hosts::{ANY_JSON, HOSTS, Host, Machine, Scope, Shape, System};
pub(crate) use options::Adopt;
use options::Mode;
use plan::{Plan, ProgramWords};
use program::Program;
use report::{FileReport, Problem, Report, Undone};
use servers::{Document, is_recognised};

pub(crate) fn run(args: &Adopt) -> Result<ExitCode, Failure> {
    let mode = args.mode();
    args.check_guard_options()?;
    let program = Program::find(args.program.as_deref())?;
    let candidates = candidates(args)?;
    let mut report = Report::new(mode);
    let mut planned = Vec::new();
    for candidate in &candidates {
        match Planned::read(candidate, args, &program) {
            Ok(Some(file)) => planned.push(file),
            Ok(None) => {}
            Err(problem) => report.problems.push(problem),
        }
    }
    check_names(args, &planned, report.problems.is_empty())?;
    if planned.is_empty() && report.problems.is_empty() {
        report.searched = candidates.into_iter().map(|file| file.path).collect();
    }
    for file in planned {
        match mode {
            Mode::Undo if file.report.servers.is_empty() => {}
            Mode::Show | Mode::Check => report.files.push(file.report),
            Mode::Write | Mode::Undo => file.commit(mode, &mut report),
        }
    }
    report.print(args.json)?;
    Ok(ExitCode::from(report.status()))
}

/// A file that may exist.
struct Candidate {
    host: Option<&'static Host>,
    scope: Scope,
    path: PathBuf,
    shapes: &'static [Shape],
    /// Whether the command line names this file, so that its absence is an error.
    is_given: bool,
}

impl Candidate {
    /// Reads the servers of the file.
    fn document(&self, file: &ConfigFile, args: &Adopt) -> Result<Document, Problem> {
        let problem = |message: String| Problem::new(self.host, &self.path, message);
        let document = Document::read(file.text.clone(), self.shapes).map_err(|error| {
            let mut message =
                format!("{error}; the file is left alone: correct it and run the command again");
            let backups = file.backups().unwrap_or_default();
            if let Some(backup) = backups.last().filter(|_| args.undo) {
                message += &format!(", or replace it by its backup {}", backup.path.display());
            }
            problem(message).at(&error)
        })?;
        if self.host.is_none() && !is_recognised(&file.text, self.shapes) {
            let message = "it has no table of servers under a known key; if it is the configuration of a known host, name that host with --host";
            return Err(problem(message.to_owned()));
        }
        Ok(document)
    }
}

/// Returns the files that the options select.
fn candidates(args: &Adopt) -> Result<Vec<Candidate>, Failure> {
    let variable = |name: &str| env::var_os(name);
    let machine = Machine {
        system: System::CURRENT,
        current_directory: env::current_dir()?,
        variable: &variable,
    };
    let is_selected =
        |host: &&Host| args.host.is_empty() || args.host.iter().any(|id| id == host.id);
    let hosts = HOSTS.iter().filter(is_selected);
    let mut known: Vec<Candidate> = Vec::new();
    for host in hosts {
        for (scope, path) in host.paths(&machine) {
            known.push(Candidate {
                host: Some(host),
                scope,
                path,
                shapes: slice::from_ref(&host.shape),
                is_given: false,
            });
        }
    }
    if args.file.is_empty() {
        // A project in the home directory has the files of the user.
        return Ok(each_once(known));
    }
    if args.host.len() > 1 {
        return Err(usage_error("--file needs at most one --host"));
    }
    let given = args.file.iter();
    let given = given.map(|path| given_file(path, args.host.first(), &known, &machine));
    Ok(each_once(given.collect()))
}

/// Keeps the first of several paths to one file. The second plan would be for a text that the first one has replaced.
fn each_once(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut paths: Vec<PathBuf> = Vec::new();
    candidates.retain(|candidate| {
        let path = fs::canonicalize(&candidate.path);
        let path = path.unwrap_or_else(|_| candidate.path.clone());
        let is_new = !paths.contains(&path);
        paths.push(path);
        is_new
    });
    candidates
}

/// Returns a file of the command line: one of a known place, or else one in the shape of the given host, or else one in any shape.
fn given_file(
    path: &Path,
    host: Option<&String>,
    known: &[Candidate],
    machine: &Machine<'_>,
) -> Candidate {
    let absolute = machine.current_directory.join(path);
    let candidate = known.iter().find(|candidate| candidate.path == absolute);
    let host = candidate
        .and_then(|candidate| candidate.host)
        .or_else(|| Host::by_id(host?));
    let is_toml = path
        .extension()
        .is_some_and(|extension| extension == "toml");
    let shapes = match host.or_else(|| Host::by_id("codex").filter(|_| is_toml)) {
        Some(host) => slice::from_ref(&host.shape),
        None => ANY_JSON,
    };
    Candidate {
        host,
        scope: candidate.map_or(Scope::User, |candidate| candidate.scope),
        path: path.to_owned(),
        shapes,
        is_given: true,
    }
}

/// Fails if `--server` names a server that no file has: that is most likely a typing mistake. Does not fail if a file could not be read, because that
/// file may have the server.
fn check_names(args: &Adopt, planned: &[Planned], are_all_read: bool) -> Result<(), Failure> {
    let is_known = |name: &String| {
        let mut servers = planned.iter().flat_map(|file| &file.document.servers);
        servers.any(|server| server.id.name == *name)
    };
    match args.server.iter().find(|name| !is_known(name)) {
        Some(name) if are_all_read => Err(usage_error(format!(
            "no configuration has a server with the name `{name}`; `everlink adopt` lists all servers"
        ))),
        _ => Ok(()),
    }
}

/// A file that was read, and what is to be done.
struct Planned {
    file: ConfigFile,
    document: Document,
    /// The older versions that can be read, with their files. Empty unless guards are removed.
    backups: Vec<(Backup, Document)>,
    text: Option<String>,
    report: FileReport,
}

impl Planned {
    /// Reads a file and plans its change. `None` if there is no such file, or if it has none of the selected servers.
    fn read(
        candidate: &Candidate,
        args: &Adopt,
        program: &Program,
    ) -> Result<Option<Planned>, Problem> {
        let problem = |message: String| Problem::new(candidate.host, &candidate.path, message);
        let file = match ConfigFile::read(&candidate.path).map_err(problem)? {
            Some(file) => file,
            None if candidate.is_given => return Err(problem("there is no such file".to_owned())),
            None => return Ok(None),
        };
        let document = candidate.document(&file, args)?;
        let selects = |name: &str| args.selects(name);
        let (backups, program, plan) = match args.mode() {
            Mode::Undo => {
                let backups = read_backups(&file, &document).map_err(problem)?;
                let documents = backups.iter().map(|(_, document)| document.clone());
                let documents: Vec<Document> = documents.collect();
                let plan = plan::undo(&document, &documents, &selects, !args.server.is_empty());
                (backups, None, plan)
            }
            Mode::Check | Mode::Show | Mode::Write => {
                let is_desktop = candidate.host.is_none_or(|host| host.is_desktop);
                let words = |is_desktop, scope| {
                    let words = program.words_for(is_desktop, scope);
                    words.map_err(|error| problem(error.to_owned()))
                };
                let words = ProgramWords {
                    usual: words(is_desktop, candidate.scope)?,
                    // A desktop has another PATH, too.
                    with_own_path: words(true, Scope::User)?,
                };
                let plan = plan::guard(&document, &words, &args.guard_options, &selects);
                (Vec::new(), Some(words.usual.join(" ")), plan)
            }
        };
        let Plan { text, servers } = plan;
        let report = FileReport::new(candidate.host, candidate.scope, &file, servers, program);
        let planned = Planned {
            file,
            document,
            backups,
            text,
            report,
        };
        let mut servers = planned.document.servers.iter();
        let is_wanted = args.server.is_empty() || servers.any(|server| selects(&server.id.name));
        Ok(is_wanted.then_some(planned))
    }

    /// Writes the file if it changes.
    fn commit(mut self, mode: Mode, report: &mut Report) {
        let Some(text) = self.text.take() else {
            report.files.push(self.report);
            return;
        };
        let result = match mode {
            Mode::Undo => self.restore(&text),
            Mode::Check | Mode::Show | Mode::Write => self.write(&text),
        };
        match result {
            Ok(()) => {
                self.report.is_changed = true;
                report.files.push(self.report);
            }
            Err(message) => {
                let host = self.report.host;
                report
                    .problems
                    .push(Problem::new(host, &self.file.path, message));
            }
        }
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let backups = read_backups(&self.file, &self.document)?;
        let backups: Vec<Document> = backups.into_iter().map(|(_, document)| document).collect();
        let backup = match plan::needs_backup(&self.document, &backups) {
            true => {
                let backup = self.file.write_backup();
                Some(backup.map_err(|error| format!("its backup cannot be written: {error}"))?)
            }
            false => None,
        };
        self.file.replace(text).map_err(|error| {
            if let Some(backup) = &backup {
                let _ = fs::remove_file(backup);
            }
            error.to_string()
        })?;
        self.report.backup = backup;
        Ok(())
    }

    /// Removes the guards, and the backups if no guard is left that they are for.
    fn restore(&mut self, text: &str) -> Result<(), String> {
        self.file.replace(text).map_err(|error| error.to_string())?;
        let (files, documents): (Vec<Backup>, Vec<Document>) = self.backups.drain(..).unzip();
        let document = self.document.with_text(text.to_owned());
        if document.is_ok_and(|document| !plan::has_added_guards(&document, &documents)) {
            self.report.undone = Some(match documents.iter().any(|old| old.text == text) {
                true => Undone::Restored,
                false => Undone::Edited,
            });
            for backup in files {
                // A backup that stays behind does no harm.
                let _ = fs::remove_file(backup.path);
            }
        }
        Ok(())
    }
}

/// Returns the older versions of a file that can be read, oldest first.
fn read_backups(file: &ConfigFile, document: &Document) -> Result<Vec<(Backup, Document)>, String> {
    let backups = file.backups();
    let backups = backups.map_err(|error| format!("its backups cannot be found: {error}"))?;
    let read = |backup: Backup| {
        let document = document.with_text(backup.text.clone()).ok()?;
        Some((backup, document))
    };
    Ok(backups.into_iter().filter_map(read).collect())
}

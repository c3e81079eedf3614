//! Decides with which words a host starts this program.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Failure, usage_error};

use super::guard_command::is_everlink;
use super::hosts::Scope;

/// The name under which people install this program.
const NAME: &str = "everlink";

const UNKNOWN_NAME: &str = "the file name of the guard must be `everlink`, or start with `everlink-`, so that its servers are recognised as guarded";

/// A program that keeps this one in a cache, which it may empty.
#[derive(Debug, PartialEq, Eq)]
struct Runner {
    name: &'static str,
    arguments: &'static [&'static str],
    /// The directory of the cache in which programs are.
    cache: &'static str,
}

const RUNNERS: [Runner; 2] = [
    Runner {
        name: "npx",
        arguments: &["-y", NAME],
        cache: "_npx",
    },
    Runner {
        name: "uvx",
        arguments: &[NAME],
        cache: "archive-v0",
    },
];

impl Runner {
    /// Returns the runner that started this program.
    fn of(executable: &Path) -> Option<&'static Runner> {
        let mut runners = RUNNERS.iter();
        runners.find(|runner| executable.iter().any(|part| part == runner.cache))
    }
}

/// The names of this program on this machine.
pub(super) struct Program {
    /// The value of `--program`.
    given: Option<String>,
    /// Where the name leads to this program: the first file of the name in `PATH`, if that is this program.
    in_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    /// The runner that started this program, and its file, if that is in `PATH`.
    runner: Option<(&'static Runner, Option<PathBuf>)>,
}

impl Program {
    pub(super) fn find(given: Option<&str>) -> Result<Program, Failure> {
        if let Some(given) = given {
            check(given)?;
        }
        let executable = env::current_exe().ok();
        let in_path = executable.as_deref().and_then(find_this_program);
        let runner = executable.as_deref().and_then(Runner::of);
        Ok(Program {
            given: given.map(str::to_owned),
            in_path,
            executable,
            runner: runner.map(|runner| (runner, find_in_path(runner.name))),
        })
    }

    /// Returns the words that a configuration has. A host that is started from a desktop may not have the `PATH` of a shell, so its own files get an
    /// absolute path. Other people use the files of a project, so these get a name. If a runner started this program, it also starts the guards.
    pub(super) fn words_for(
        &self,
        is_desktop: bool,
        scope: Scope,
    ) -> Result<Vec<String>, &'static str> {
        if let Some(given) = &self.given {
            return Ok(vec![given.clone()]);
        }
        let has_path = !is_desktop || scope == Scope::Project;
        if let Some((runner, file)) = &self.runner {
            let file = file.as_ref().filter(|_| !has_path);
            let file = file.and_then(|file| file.to_str()).unwrap_or(runner.name);
            let arguments = runner.arguments.iter().copied();
            return Ok([file]
                .into_iter()
                .chain(arguments)
                .map(str::to_owned)
                .collect());
        }
        if has_path && self.in_path.is_some() {
            return Ok(vec![NAME.to_owned()]);
        }
        // The path in `PATH` is often a link that outlives an update.
        let path = self.in_path.as_ref().or(self.executable.as_ref());
        let path = path.and_then(|path| path.to_str());
        if path.is_some_and(|path| !is_everlink(path)) {
            return Err(UNKNOWN_NAME);
        }
        let path = path.ok_or(
            "the path of this program is unknown or not UTF-8: name it with --program PATH",
        )?;
        Ok(vec![path.to_owned()])
    }
}

/// Rejects what no host can start.
fn check(given: &str) -> Result<(), Failure> {
    let has_variable = given.starts_with(['$', '%']);
    let is_relative = given.contains(['/', '\\']) && !Path::new(given).is_absolute();
    if given.is_empty() || is_relative && !has_variable {
        return Err(usage_error(format!(
            "--program {given}: give a name that hosts find in PATH, or an absolute path; each host has another current directory"
        )));
    }
    if !is_everlink(given) {
        return Err(usage_error(format!("--program {given}: {UNKNOWN_NAME}")));
    }
    Ok(())
}

/// Returns where `PATH` leads to this program. `None` if the first file of its name is another program.
fn find_this_program(executable: &Path) -> Option<PathBuf> {
    let found = find_in_path(NAME)?;
    let is_same = found.canonicalize().ok()? == executable.canonicalize().ok()?;
    is_same.then_some(found)
}

/// Finds the first file of a name in `PATH`. `None` if its directory is not absolute.
fn find_in_path(name: &str) -> Option<PathBuf> {
    let file_name = format!("{name}{}", env::consts::EXE_SUFFIX);
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|directory| directory.join(&file_name));
    files
        .find(|file| file.is_file())
        .filter(|file| file.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(executable: &str, in_path: Option<&str>) -> Program {
        let executable = PathBuf::from(executable);
        let runner = Runner::of(&executable);
        Program {
            given: None,
            in_path: in_path.map(PathBuf::from),
            runner: runner.map(|runner| (runner, Some("/opt/runner".into()))),
            executable: Some(executable),
        }
    }

    fn words(program: &Program, is_desktop: bool, scope: Scope) -> String {
        let words = program.words_for(is_desktop, scope).expect("words");
        words.join(" ")
    }

    #[test]
    fn desktop_hosts_get_the_absolute_path_and_others_the_name() {
        let installed = program("/store/1.0/everlink", Some("/home/ada/bin/everlink"));
        assert_eq!(
            words(&installed, true, Scope::User),
            "/home/ada/bin/everlink"
        );
        assert_eq!(words(&installed, true, Scope::Project), "everlink");
        assert_eq!(words(&installed, false, Scope::User), "everlink");
        let elsewhere = program("/store/1.0/everlink", None);
        for (is_desktop, scope) in [(true, Scope::User), (false, Scope::Project)] {
            assert_eq!(words(&elsewhere, is_desktop, scope), "/store/1.0/everlink");
        }
    }

    #[test]
    fn runner_that_started_this_program_starts_the_guards() {
        let uvx = "/home/ada/.cache/uv/archive-v0/x1/bin/everlink";
        let uvx = program(uvx, Some(uvx));
        assert_eq!(words(&uvx, false, Scope::User), "uvx everlink");
        assert_eq!(words(&uvx, true, Scope::Project), "uvx everlink");
        assert_eq!(words(&uvx, true, Scope::User), "/opt/runner everlink");
        let npx = "/home/ada/.npm/_npx/x1/node_modules/@everlink/cli-linux-x64/bin/everlink";
        let npx = program(npx, None);
        assert_eq!(words(&npx, false, Scope::User), "npx -y everlink");
    }

    #[test]
    fn given_program_is_a_name_or_an_absolute_path() {
        let absolute = if cfg!(windows) {
            r"C:\tools\everlink.exe"
        } else {
            "/opt/everlink"
        };
        for given in ["everlink", absolute, "${userHome}/bin/everlink"] {
            assert!(check(given).is_ok(), "{given}");
        }
        for given in ["", "./everlink", "bin/everlink", "guard", "/opt/e"] {
            assert!(check(given).is_err(), "{given}");
        }
    }
}

//! Decides under which name a host starts this program.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Failure, usage_error};

use super::guard_command::is_everlink;
use super::hosts::Scope;

/// The name under which people install this program.
const NAME: &str = "everlink";

const UNKNOWN_NAME: &str = "the file name of the guard must be `everlink`, or start with `everlink-`, so that its servers are recognised as guarded";

/// The names of this program on this machine.
pub(super) struct Program {
    /// The value of `--program`.
    given: Option<String>,
    /// Where the name leads to this program: the first file of the name in `PATH`, if that is this program.
    in_path: Option<PathBuf>,
    executable: Option<PathBuf>,
}

impl Program {
    pub(super) fn find(given: Option<&str>) -> Result<Program, Failure> {
        if let Some(given) = given {
            check(given)?;
        }
        let executable = env::current_exe().ok();
        let in_path = executable.as_deref().and_then(find_in_path);
        Ok(Program {
            given: given.map(str::to_owned),
            in_path,
            executable,
        })
    }

    /// Returns what a configuration says. A host that is started from a desktop may not have the `PATH` of a shell, so its own files get the
    /// absolute path. Other people use the files of a project, so these get the name.
    pub(super) fn name_for(&self, is_desktop: bool, scope: Scope) -> Result<String, &'static str> {
        if let Some(given) = &self.given {
            return Ok(given.clone());
        }
        let has_path = !is_desktop || scope == Scope::Project;
        if has_path && self.in_path.is_some() {
            return Ok(NAME.to_owned());
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
        Ok(path.to_owned())
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

/// Finds the first file of the name in `PATH`. `None` if that is another program, or if its directory is not absolute.
fn find_in_path(executable: &Path) -> Option<PathBuf> {
    let file_name = format!("{NAME}{}", env::consts::EXE_SUFFIX);
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|directory| directory.join(&file_name));
    let found = files.find(|file| file.is_file())?;
    let is_same = found.canonicalize().ok()? == executable.canonicalize().ok()?;
    (is_same && found.is_absolute()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn desktop_hosts_get_the_absolute_path_and_others_the_name() {
        let program = |in_path: Option<&str>| Program {
            given: None,
            in_path: in_path.map(PathBuf::from),
            executable: Some("/store/1.0/everlink".into()),
        };
        let name = |program: &Program, is_desktop, scope| {
            program.name_for(is_desktop, scope).expect("a name")
        };
        let installed = program(Some("/home/ada/bin/everlink"));
        assert_eq!(
            name(&installed, true, Scope::User),
            "/home/ada/bin/everlink"
        );
        assert_eq!(name(&installed, true, Scope::Project), "everlink");
        assert_eq!(name(&installed, false, Scope::User), "everlink");
        let elsewhere = program(None);
        for (is_desktop, scope) in [(true, Scope::User), (false, Scope::Project)] {
            assert_eq!(name(&elsewhere, is_desktop, scope), "/store/1.0/everlink");
        }
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

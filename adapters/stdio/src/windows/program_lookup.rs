//! Finds the file of a program by its name, the way a Windows shell does: in the directories of `PATH`, with the extensions of `PATHEXT`.
//!
//! `std` adds only `.exe` to a name. Tools such as `npx` and `uvx` are often installed as a script, for example `npx.cmd`. With the full name of a
//! script, `std` runs it through `cmd.exe` and quotes its arguments safely. So this module only has to find the full name.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{self, Path, PathBuf};
use std::process::Command;

/// The extensions of files that `std` can run. `PATHEXT` also lists files that need another program, such as `.vbs`.
const RUNNABLE: [&str; 4] = ["com", "exe", "bat", "cmd"];

/// The order of the extensions if `PATHEXT` is not set. It is the default of Windows.
const DEFAULT_PATHEXT: &str = ".COM;.EXE;.BAT;.CMD";

/// The names of one program's file, and the directories to look in.
pub(super) struct Lookup {
    /// The possible file names, the preferred one first. They start with a directory if the command's program does.
    names: Vec<PathBuf>,
    /// `None` if the names already say where the file is.
    directories: Option<Vec<PathBuf>>,
}

impl Lookup {
    /// Prepares the lookup for the program of this command. Reads `PATH` now, because another program may have been installed since the last spawn.
    pub(super) fn of(command: &Command) -> Lookup {
        let program = Path::new(command.get_program());
        let has_directory = program.file_name() != Some(command.get_program());
        Lookup {
            names: names(program, &pathext()),
            directories: (!has_directory).then(|| {
                let path = variable(command, "PATH").unwrap_or_default();
                // An empty entry is not the current directory: a program there is only found if `PATH` says so.
                env::split_paths(&path)
                    .filter(|directory| !directory.as_os_str().is_empty())
                    .collect()
            }),
        }
    }

    /// Returns the file of a program that `std` cannot find or does not prefer. `None` if `std` finds the program by itself, or nothing is there.
    ///
    /// The path is absolute, because `cmd.exe` reads a relative one from the directory of the new process.
    pub(super) fn script(&self) -> Option<PathBuf> {
        let file = self.first_file()?;
        let file = (!has_extension(&file, "exe")).then_some(file)?;
        path::absolute(file).ok()
    }

    fn first_file(&self) -> Option<PathBuf> {
        let Some(directories) = &self.directories else {
            return self.names.iter().find(|name| name.is_file()).cloned();
        };
        let candidates = directories
            .iter()
            .flat_map(|directory| self.names.iter().map(|name| directory.join(name)));
        candidates.into_iter().find(|file| file.is_file())
    }

    /// Says which files were looked for, for the text of an error.
    pub(super) fn describe(&self) -> String {
        let names: Vec<_> = self
            .names
            .iter()
            .map(|name| name.to_string_lossy())
            .collect();
        let names = names.join(", ");
        match &self.directories {
            Some(directories) => {
                let count = directories.len();
                format!("looked for {names} in the {count} directories of PATH")
            }
            None => format!("looked for {names}"),
        }
    }
}

/// Returns the possible file names of a program. A name without an extension means no file of exactly that name: next to `npx.cmd`, `npm` installs a
/// script `npx` for other systems.
fn names(program: &Path, extensions: &[String]) -> Vec<PathBuf> {
    let is_complete = RUNNABLE
        .iter()
        .any(|runnable| has_extension(program, runnable));
    let complete = is_complete.then(|| program.to_owned());
    // `python3.11` has no extension, but a dot in its name. So the extension is added, not replaced.
    let with_extension = extensions.iter().map(|extension| {
        let mut name = program.as_os_str().to_owned();
        name.push(extension);
        PathBuf::from(name)
    });
    complete.into_iter().chain(with_extension).collect()
}

/// The extensions of `PATHEXT` that `std` can run, in their order, each with its dot.
fn pathext() -> Vec<String> {
    let listed = env::var("PATHEXT").unwrap_or_else(|_| DEFAULT_PATHEXT.into());
    let extensions = listed.split(';').map(str::to_ascii_lowercase);
    extensions
        .filter(|extension| {
            RUNNABLE
                .iter()
                .any(|runnable| extension.strip_prefix('.') == Some(runnable))
        })
        .collect()
}

/// The value of this variable for the command's process. Names of variables ignore case on Windows.
fn variable(command: &Command, name: &str) -> Option<OsString> {
    let set = command
        .get_envs()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    match set {
        Some((_, value)) => value.map(OsStr::to_owned),
        None => env::var_os(name),
    }
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension()
        .is_some_and(|it| it.eq_ignore_ascii_case(extension))
}

/// Returns the same command for another program file. An argument of `raw_arg` becomes an ordinary one, because `std` does not tell them apart.
pub(super) fn with_program(command: &mut Command, program: &Path) -> Command {
    let mut other = Command::new(program);
    if is_environment_cleared(command) {
        other.env_clear();
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        other.current_dir(directory);
    }
    other.args(command.get_args());
    other
}

/// Whether the command's process inherits no variable. `std` has no method for this. But a removed variable is only listed if there is something to
/// remove it from.
fn is_environment_cleared(command: &mut Command) -> bool {
    const UNUSED: &str = "EVERLINK_UNUSED_VARIABLE";
    command.env_remove(UNUSED);
    command.get_envs().all(|(name, _)| name != UNUSED)
}

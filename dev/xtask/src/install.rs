//! Programs that others wrote, as they are published: how they are installed below the target directory and run. Knows no particular one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::step::{Done, Outcome, cargo_with, target};

/// The interpreter of an environment with what this file of requirements wants.
pub(crate) fn python(requirements: &Path) -> Result<PathBuf, String> {
    let wanted = fs::read_to_string(requirements)
        .map_err(|error| format!("{} cannot be read: {error}", requirements.display()))?;
    // Whatever wants the same shares it.
    let name: String = wanted
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || letter == '.' {
                letter
            } else {
                '-'
            }
        })
        .collect();
    let directory = target().join("peers/python").join(name.trim_matches('-'));
    let python = directory.join("bin/python");
    installed(&directory, &wanted, || {
        succeed(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&directory),
        )?;
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ];
        succeed(Command::new(&python).args(pip).arg(requirements))
    })?;
    Ok(python)
}

/// A directory with these packages for Node.
pub(crate) fn node_modules(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let directory = target().join("peers").join(name);
    installed(&directory, &packages.join("\n"), || {
        let npm = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        succeed(Command::new("npm").args(npm).arg(&directory).args(packages))
    })?;
    Ok(directory)
}

/// A program of a package written in Rust, of this very version.
pub(crate) fn rust_program(package: &str, version: &str) -> Result<PathBuf, String> {
    let directory = target().join("peers").join(package);
    installed(&directory, &format!("{package} {version}"), || {
        let build = directory.join("build");
        let done = cargo_with(
            &format!("install {package} --version ={version} --locked --force"),
            |command| {
                command.arg("--root").arg(&directory);
                // Apart from all that is built here. And it is to be there soon; it need not be fast.
                command
                    .env("CARGO_TARGET_DIR", &build)
                    .env("CARGO_PROFILE_RELEASE_LTO", "off")
                    .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
            },
        )?;
        // What it was made of is many times as large.
        let _ = fs::remove_dir_all(build);
        Ok(done)
    })?;
    let program = directory.join("bin").join(package);
    Ok(program.with_extension(env::consts::EXE_EXTENSION))
}

/// Installs what is wanted in a directory, unless a note there says that it was done already.
fn installed(
    directory: &Path,
    wanted: &str,
    install: impl FnOnce() -> Outcome,
) -> Result<(), String> {
    let note = directory.join("installed");
    if fs::read_to_string(&note).is_ok_and(|is| is == wanted) {
        return Ok(());
    }
    let words: Vec<&str> = wanted.split_whitespace().collect();
    eprintln!("installing {}", words.join(" "));
    let failed = |error| format!("{} cannot be written: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    install()?;
    fs::write(&note, wanted).map_err(failed)
}

/// Says that these programs are missing, if one is. Where everything is to be checked, that is an error.
pub(crate) fn lacks(programs: &[&str]) -> Option<Outcome> {
    let missing = programs.iter().find(|program| !has(program))?;
    Some(without(missing))
}

/// The outcome of a step whose program is not installed: skipped, or an error where `CI` is set.
pub(crate) fn without(missing: &str) -> Outcome {
    if env::var_os("CI").is_some() {
        Err(format!(
            "`{missing}` is not installed, and CI is set: nothing is to be left out"
        ))
    } else {
        Ok(Done::Skipped(format!("`{missing}` is not installed")))
    }
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Outcome {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(Done::Passed),
        Ok(status) => Err(format!("`{name}` ended with {status}")),
        Err(error) => Err(format!("`{name}` could not start: {error}")),
    }
}

/// The number after this option, or another one where it is not there. Nothing else may be said.
pub(crate) fn number(arguments: &[String], option: &str, usual: u32) -> Result<u32, String> {
    match arguments {
        [] => Ok(usual),
        [word, number] if word == option => number
            .parse()
            .map_err(|_| format!("{option} must be followed by a number")),
        _ => Err(format!("what may be said is {option} NUMBER")),
    }
}

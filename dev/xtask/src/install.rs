//! Installs and runs programs of other projects below the target directory. Must not depend on a particular program.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::step::{self, Done, Outcome, cargo_with, target};

/// The interpreter of an environment with the packages of this requirements file.
pub(crate) fn python(requirements: &Path) -> Result<PathBuf, String> {
    let wanted = step::read(requirements)?;
    // Equal requirements share one environment.
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
    install_once(&directory, &wanted, || {
        run_command(
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
        run_command(Command::new(&python).args(pip).arg(requirements))
    })?;
    Ok(python)
}

/// A directory with the source of a Python package, such as `mcp==2.3.0`, from its source distribution.
pub(crate) fn python_source(python: &Path, package: &str) -> Result<PathBuf, String> {
    let name = package.replace("==", "-");
    let directory = target().join("peers/python-source").join(&name);
    install_once(&directory, package, || {
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps"];
        let mut download = Command::new(python);
        download
            .args(pip)
            .args(["--disable-pip-version-check", "--no-binary", ":all:"])
            .arg("--dest")
            .arg(&directory)
            .arg(package);
        run_command(&mut download)?;
        let archive = directory.join(format!("{name}.tar.gz"));
        let unpack = ["-m", "tarfile", "--extract"];
        run_command(
            Command::new(python)
                .args(unpack)
                .arg(archive)
                .arg(&directory),
        )
    })?;
    Ok(directory.join(name))
}

/// A directory with these Node packages installed.
pub(crate) fn node_modules(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let directory = target().join("peers").join(name);
    install_once(&directory, &packages.join("\n"), || {
        let npm = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        run_command(Command::new("npm").args(npm).arg(&directory).args(packages))
    })?;
    Ok(directory)
}

/// A program of a Rust package, in exactly this version.
pub(crate) fn rust_program(package: &str, version: &str) -> Result<PathBuf, String> {
    let directory = target().join("peers").join(package);
    install_once(&directory, &format!("{package} {version}"), || {
        let build = directory.join("build");
        let outcome = cargo_with(
            &format!("install {package} --version ={version} --locked --force"),
            |command| {
                command.arg("--root").arg(&directory);
                // A separate target directory, and no optimisation: build time matters, and speed does not.
                command
                    .env("CARGO_TARGET_DIR", &build)
                    .env("CARGO_PROFILE_RELEASE_LTO", "off")
                    .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
            },
        )?;
        // The build directory is many times as large as the program.
        let _ = fs::remove_dir_all(build);
        Ok(outcome)
    })?;
    let program = directory.join("bin").join(package);
    Ok(program.with_extension(env::consts::EXE_EXTENSION))
}

/// Installs the nightly compiler with rustup if there is none.
pub(crate) fn nightly_compiler() -> Result<(), String> {
    let rustup = |words: &[&str]| run_command(Command::new("rustup").args(words)).map(drop);
    if rustup(&["run", "nightly", "rustc", "--version"]).is_ok() {
        return Ok(());
    }
    rustup(&["toolchain", "install", "nightly", "--profile", "minimal"])
}

/// Whether the compiler has the standard library for this target. Installs it with rustup if it is missing.
pub(crate) fn rust_target(name: &str) -> bool {
    let has_library = || {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command.args(["--print", "target-libdir", "--target", name]);
        let output = command.stderr(Stdio::null()).output();
        let directory = output
            .ok()
            .and_then(|output| String::from_utf8(output.stdout).ok());
        directory.is_some_and(|directory| {
            !directory.trim().is_empty() && Path::new(directory.trim()).is_dir()
        })
    };
    if !has_library() {
        eprintln!("installing the target {name}");
        let _ = run_command(Command::new("rustup").args(["target", "add", name]));
    }
    has_library()
}

/// Whether this program is installed. If not, root installs these packages with `apt-get`, if the system has that.
pub(crate) fn system_program(program: &str, packages: &str) -> bool {
    if !is_installed(program) && is_installed("apt-get") && is_root() {
        eprintln!("installing {packages}");
        let words = ["install", "--yes", "--quiet", "--no-install-recommends"];
        let mut command = Command::new("apt-get");
        command
            .args(words)
            .args(packages.split_whitespace())
            .stdout(Stdio::null());
        let _ = run_command(command.env("DEBIAN_FRONTEND", "noninteractive"));
    }
    is_installed(program)
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Runs the installation, unless a file in the directory says that it was done.
fn install_once(
    directory: &Path,
    wanted: &str,
    install: impl FnOnce() -> Outcome,
) -> Result<(), String> {
    let note = directory.join("installed");
    if fs::read_to_string(&note).is_ok_and(|current| current == wanted) {
        return Ok(());
    }
    let packages: Vec<&str> = wanted.split_whitespace().collect();
    eprintln!("installing {}", packages.join(" "));
    let failed = |error| format!("{} cannot be written: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    install()?;
    fs::write(&note, wanted).map_err(failed)
}

/// Returns a skipped step or an error if one of these programs is missing.
pub(crate) fn skip_without(programs: &[&str]) -> Option<Outcome> {
    let missing = programs.iter().find(|program| !is_installed(program))?;
    Some(missing_program(missing))
}

/// The outcome of a step whose program is missing: skipped, or an error if `CI` is set.
pub(crate) fn missing_program(missing: &str) -> Outcome {
    if env::var_os("CI").is_some() {
        Err(format!(
            "`{missing}` is not installed, and CI is set: nothing is to be left out"
        ))
    } else {
        Ok(Done::Skipped(format!("`{missing}` is not installed")))
    }
}

/// The outcome of a step that needs more than a usual machine has, and could not install it.
pub(crate) fn skipped(missing: &str) -> Outcome {
    Ok(Done::Skipped(format!(
        "{missing} is missing and could not be installed"
    )))
}

fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command that must succeed.
pub(crate) fn run_command(command: &mut Command) -> Outcome {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(Done::Passed),
        Ok(status) => Err(format!("`{name}` ended with {status}")),
        Err(error) => Err(format!("`{name}` could not start: {error}")),
    }
}

/// The number after this option, or the default without arguments. No other arguments are allowed.
pub(crate) fn number_option(
    arguments: &[String],
    option: &str,
    default: u32,
) -> Result<u32, String> {
    match arguments {
        [] => Ok(default),
        [word, number] if word == option => number
            .parse()
            .map_err(|_| format!("{option} must be followed by a number")),
        _ => Err(format!("what may be said is {option} NUMBER")),
    }
}

//! Installs programs of other projects below the target directory. Must not depend on a particular program.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fs_err as fs;
use xshell::cmd;

use crate::step::{cargo_in, read, shell, skip, succeeds, target};

/// The interpreter of an environment with the packages of this requirements file.
pub(crate) fn python(requirements: &Path) -> Result<PathBuf> {
    let wanted = read(requirements)?;
    // Equal requirements share one environment.
    let name = wanted.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let directory = target().join("peers/python").join(name.trim_matches('-'));
    let python = directory.join("bin/python");
    install_once(&directory, &wanted, || {
        let shell = shell()?;
        cmd!(shell, "python3 -m venv --clear {directory}").run()?;
        let pip = cmd!(shell, "{python} -m pip install --quiet");
        Ok(pip
            .args(["--disable-pip-version-check", "--requirement"])
            .arg(requirements)
            .run()?)
    })?;
    Ok(python)
}

/// A directory with the source of a Python package, such as `mcp==2.3.0`, from its source distribution.
pub(crate) fn python_source(python: &Path, package: &str) -> Result<PathBuf> {
    let name = package.replace("==", "-");
    let directory = target().join("peers/python-source").join(&name);
    install_once(&directory, package, || {
        let shell = shell()?;
        let pip = cmd!(shell, "{python} -m pip download --quiet --no-deps");
        pip.args(["--disable-pip-version-check", "--no-binary", ":all:"])
            .args([Path::new("--dest"), &directory, Path::new(package)])
            .run()?;
        let archive = directory.join(format!("{name}.tar.gz"));
        Ok(cmd!(shell, "{python} -m tarfile --extract {archive} {directory}").run()?)
    })?;
    Ok(directory.join(name))
}

/// A directory with these Node packages installed.
pub(crate) fn node_modules(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let directory = target().join("peers").join(name);
    install_once(&directory, &packages.join("\n"), || {
        let shell = shell()?;
        let npm = cmd!(shell, "npm install --silent --no-audit --no-fund");
        Ok(npm.arg("--prefix").arg(&directory).args(packages).run()?)
    })?;
    Ok(directory)
}

/// A program of a Rust package, in exactly this version.
pub(crate) fn rust_program((package, version): (&str, &str)) -> Result<PathBuf> {
    let directory = target().join("peers").join(package);
    install_once(&directory, &format!("{package} {version}"), || {
        let build = directory.join("build");
        let install = format!("install {package} --version ={version} --locked --force --root");
        // A separate target directory, and no optimisation: build time matters, and speed does not.
        cargo_in(&shell()?, &install)
            .arg(&directory)
            .env("CARGO_TARGET_DIR", &build)
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .run()?;
        // The build directory is many times as large as the program.
        let _ = fs::remove_dir_all(build);
        Ok(())
    })?;
    let program = directory.join("bin").join(package);
    Ok(program.with_extension(env::consts::EXE_EXTENSION))
}

/// Installs the nightly compiler with rustup if there is none.
pub(crate) fn nightly_compiler() -> Result<()> {
    let shell = shell()?;
    if succeeds(cmd!(shell, "rustup run nightly rustc --version")) {
        return Ok(());
    }
    Ok(cmd!(shell, "rustup toolchain install nightly --profile minimal").run()?)
}

/// Installs the standard library for this target with rustup if it is missing. Skips the step if that fails.
pub(crate) fn need_target(name: &str) -> Result<()> {
    let shell = shell()?;
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let has_library = || {
        let directory = cmd!(shell, "{rustc} --print target-libdir --target {name}");
        let directory = directory.ignore_stderr().read();
        directory.is_ok_and(|directory| Path::new(&directory).is_dir())
    };
    if !has_library() {
        eprintln!("installing the target {name}");
        let _ = cmd!(shell, "rustup target add {name}").run();
    }
    need(has_library(), &format!("the target {name}"))
}

/// Skips the step if this program is not installed. Before, root installs these packages with `apt-get`, if the system has that.
pub(crate) fn need_program(program: &str, packages: &str) -> Result<()> {
    if !is_installed(program) && is_installed("apt-get") && is_root() {
        let shell = shell()?;
        let apt = |words: &str| {
            let apt = cmd!(shell, "apt-get --quiet").args(words.split_whitespace());
            apt.env("DEBIAN_FRONTEND", "noninteractive")
                .ignore_stdout()
                .run()
        };
        let install = format!("install --yes --no-install-recommends {packages}");
        // The lists of the packages may be missing or old.
        let _ = apt(&install).or_else(|_| apt("update").and_then(|()| apt(&install)));
    }
    need(is_installed(program), &format!("`{program}`"))
}

/// Skips the step if one of these programs is missing. If `CI` is set, this is an error.
pub(crate) fn need_programs(programs: &[&str]) -> Result<()> {
    for program in programs {
        let is_there = is_installed(program);
        ensure!(
            is_there || env::var_os("CI").is_none(),
            "`{program}` is not installed, and CI is set: nothing is to be left out"
        );
        need(is_there, &format!("`{program}`"))?;
    }
    Ok(())
}

fn need(is_there: bool, what: &str) -> Result<()> {
    match is_there {
        true => Ok(()),
        false => Err(skip(format!("{what} is not installed"))),
    }
}

fn is_root() -> bool {
    let shell = shell();
    shell.is_ok_and(|shell| cmd!(shell, "id -u").read().is_ok_and(|user| user == "0"))
}

fn is_installed(program: &str) -> bool {
    let is_there = format!("command -v {program}");
    shell().is_ok_and(|shell| succeeds(cmd!(shell, "sh -c {is_there}")))
}

/// Runs the installation, unless a file in the directory says that it was done.
fn install_once(
    directory: &Path,
    wanted: &str,
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let note = directory.join("installed");
    if fs::read_to_string(&note).is_ok_and(|current| current == wanted) {
        return Ok(());
    }
    eprintln!(
        "installing {}",
        wanted.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    fs::create_dir_all(directory)?;
    install()?;
    Ok(fs::write(&note, wanted)?)
}

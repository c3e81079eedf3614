//! `cargo xtask windows`: runs the tests of processes and of the program for Windows, in Wine. The last function checks other systems by compiling only.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::install::{missing_program, run_command, skip_without};
use crate::step::{self, Done, Outcome, cargo, cargo_with, target};

const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: &str = "aarch64-apple-darwin";

/// The C compiler, which is also the linker.
const COMPILER: &str = "x86_64-w64-mingw32-gcc";

/// Debian's packages with the compiler and with Wine.
const PACKAGES: [&str; 3] = ["gcc-mingw-w64-x86-64", "wine", "wine64"];

/// The library that Rust programs need and Wine 8 lacks.
const RANDOM_LIBRARY: &str = "bcryptprimitives.dll";

/// The options that leave out the packages for Unix: they use its signals and `/proc`.
const UNIX_ONLY: &str = "--exclude conformance --exclude driver-tests --exclude everlink-driver-tests --exclude everlink-fleet --exclude hostile --exclude smol-driver";

/// Builds two test programs and the program `everlink` for Windows, and runs them. Builds nothing else, because all dependencies are built anew.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = prepare()? {
        return Ok(skipped);
    }
    let prefix = wine_prefix()?;
    let runner = format!(
        "CARGO_TARGET_{}_RUNNER",
        WINDOWS.to_uppercase().replace('-', "_")
    );
    let arguments = format!(
        "test --target {WINDOWS} --package everlink-stdio --package everlink-cli --test processes --test windows"
    );
    cargo_with(&arguments, |command| {
        in_wine(command, &prefix).env(runner, "wine");
    })
}

/// Lints all packages that are meant for Windows.
pub(crate) fn lint() -> Outcome {
    if let Some(skipped) = prepare()? {
        return Ok(skipped);
    }
    cargo(&format!(
        "clippy --target {WINDOWS} --workspace {UNIX_ONLY} --lib --bins --test processes --test windows --all-features -- --deny warnings"
    ))
}

/// Lints all packages that are meant for this system, whichever it is.
pub(crate) fn lint_here() -> Outcome {
    cargo(&format!(
        "clippy --workspace {UNIX_ONLY} --lib --bins --all-features -- --deny warnings"
    ))
}

/// Runs the tests of published packages on this system. On Windows, these are the tests that also run in Wine.
pub(crate) fn test_here() -> Outcome {
    let tests = match cfg!(windows) {
        true => "--test processes --test windows",
        // Some tests run an example.
        false => "--lib --bins --tests --examples",
    };
    let packages = "--package everlink-handle --package everlink-stdio --package everlink-http --package everlink-tokio --package everlink-types --package everlink-tools --package everlink-cli";
    cargo(&format!("test {packages} {tests}"))
}

/// Compiles the libraries for macOS, and runs nothing. Without HTTP, whose cryptography needs a C compiler for macOS.
pub(crate) fn check_macos() -> Outcome {
    if !add_target(MACOS) {
        return missing_program(&format!("the target {MACOS}"));
    }
    cargo(&format!(
        "check --target {MACOS} --package everlink --package everlink-handle --package everlink-stdio --package everlink-tokio --package everlink-types --package everlink-tools --no-default-features"
    ))
}

/// Installs the target, the compiler and Wine if they are missing. Returns why the step is skipped, if one of them cannot be installed.
fn prepare() -> Result<Option<Done>, String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let reason = "Wine runs these programs on Linux with x86-64 only";
        return Ok(Some(Done::Skipped(reason.into())));
    }
    if !add_target(WINDOWS) {
        return missing_program(&format!("the target {WINDOWS}")).map(Some);
    }
    let programs = [COMPILER, "wine"];
    if skip_without(&programs).is_some() && is_root() {
        install_packages();
    }
    skip_without(&programs).transpose()
}

/// Installs the packages, if this machine has `apt-get`. Errors are ignored: the caller looks for the programs afterwards.
fn install_packages() {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        run_command(&mut command)
    };
    eprintln!("installing {}", PACKAGES.join(" "));
    let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
    let _ = apt(&["update", "--quiet"]).and_then(|_| apt(&[&install[..], &PACKAGES].concat()));
}

fn is_root() -> bool {
    let user = Command::new("id").arg("--user").output();
    user.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Adds a target to the compiler, unless it is there. Returns whether it is there now.
fn add_target(target: &str) -> bool {
    let has_target = || {
        let mut compiler = Command::new("rustc");
        compiler.args(["--print", "target-libdir", "--target", target]);
        let output = compiler.stderr(Stdio::null()).output();
        output.is_ok_and(|output| {
            let directory = String::from_utf8_lossy(&output.stdout);
            output.status.success() && Path::new(directory.trim()).is_dir()
        })
    };
    if !has_target() {
        let _ = run_command(Command::new("rustup").args(["target", "add", target]));
    }
    has_target()
}

/// Creates the directory in which Wine keeps its Windows system, unless it is there.
fn wine_prefix() -> Result<PathBuf, String> {
    let prefix = target().join("wine");
    let failed = |error| format!("{} cannot be created: {error}", prefix.display());
    fs::create_dir_all(&prefix).map_err(failed)?;
    let system = prefix.join("drive_c/windows/system32");
    if !system.is_dir() {
        let mut boot = Command::new("wineboot");
        run_command(in_wine(boot.arg("--init"), &prefix))?;
    }
    let library = system.join(RANDOM_LIBRARY);
    if !library.is_file() {
        let source = step::root().join("dev/xtask/wine/bcryptprimitives.c");
        let mut compiler = Command::new(COMPILER);
        compiler.args(["-shared", "-o"]).arg(library);
        run_command(compiler.arg(source).arg("-ladvapi32"))?;
    }
    Ok(prefix)
}

/// Sets the variables that Wine needs: its directory, no messages of its own, and no download of .NET and a browser engine.
fn in_wine<'a>(command: &'a mut Command, prefix: &Path) -> &'a mut Command {
    command
        .env(
            "WINEPREFIX",
            env::current_dir().unwrap_or_default().join(prefix),
        )
        .env("WINEDEBUG", "-all")
        .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
}

//! `cargo xtask windows`: runs the tests of processes and of the program for Windows, in Wine. `check_macos` only compiles. `lint_here` and `test_here` run on
//! macOS and Windows themselves.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;
use xshell::{Cmd, cmd};

use crate::install::{need_program, need_programs, need_target};
use crate::step::{cargo, cargo_in, shell, skip, target};

const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: &str = "aarch64-apple-darwin";

/// The C compiler, which is also the linker.
const COMPILER: &str = "x86_64-w64-mingw32-gcc";

/// Debian's packages with the compiler and with Wine.
const PACKAGES: &str = "gcc-mingw-w64-x86-64 wine wine64";

/// The library that Rust programs need and Wine 8 lacks.
const RANDOM_LIBRARY: &str = "bcryptprimitives.dll";

/// The options that leave out the packages for Unix: they use its signals and `/proc`.
const UNIX_ONLY: &str = "--exclude conformance --exclude driver-tests --exclude everlink-driver-tests --exclude everlink-fleet --exclude hostile --exclude smol-driver";

/// Builds two test programs and the program `everlink` for Windows, and runs them. Builds nothing else, because all dependencies are built anew.
pub(crate) fn check() -> Result<()> {
    prepare()?;
    let prefix = wine_prefix()?;
    let test = format!(
        "test --target {WINDOWS} --package everlink-stdio --package everlink-cli --test processes --test windows"
    );
    let target = WINDOWS.to_uppercase().replace('-', "_");
    in_wine(cargo_in(&shell()?, &test), &prefix)
        .env(format!("CARGO_TARGET_{target}_RUNNER"), "wine")
        .run()?;
    Ok(())
}

/// Lints all packages that are meant for Windows.
pub(crate) fn lint() -> Result<()> {
    prepare()?;
    cargo(&format!(
        "clippy --target {WINDOWS} --workspace {UNIX_ONLY} --lib --bins --test processes --test windows --all-features -- --deny warnings"
    ))
}

/// Lints all packages that are meant for this system, whichever it is.
pub(crate) fn lint_here() -> Result<()> {
    cargo(&format!(
        "clippy --workspace {UNIX_ONLY} --lib --bins --all-features -- --deny warnings"
    ))
}

/// Runs the tests of the adapters and of the program on this system, without those of the core, `everlink-auth`, `everlink-redis` and
/// `everlink-driver-tests`. On Windows, these are the tests that also run in Wine.
pub(crate) fn test_here() -> Result<()> {
    let tests = match cfg!(windows) {
        true => "--test processes --test windows",
        // Some tests run an example.
        false => "--lib --bins --tests --examples",
    };
    let packages = "--package everlink-handle --package everlink-stdio --package everlink-http --package everlink-tokio --package everlink-types --package everlink-tools --package everlink-cli";
    cargo(&format!("test {packages} {tests}"))
}

/// Compiles the core and the adapters for macOS, and runs nothing. Leaves out HTTP, OAuth, Redis and the program: their cryptography needs a C compiler
/// for macOS.
pub(crate) fn check_macos() -> Result<()> {
    need_target(MACOS)?;
    cargo(&format!(
        "check --target {MACOS} --package everlink --package everlink-handle --package everlink-stdio --package everlink-tokio --package everlink-types --package everlink-tools --no-default-features"
    ))
}

/// Installs the target, the compiler and Wine if they are missing. Skips the step if one of them cannot be installed.
fn prepare() -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(skip("Wine runs these programs on Linux with x86-64 only"));
    }
    need_target(WINDOWS)?;
    let programs = [COMPILER, "wine"];
    let _ = programs.map(|program| need_program(program, PACKAGES));
    need_programs(&programs)
}

/// Creates the directory in which Wine keeps its Windows system, unless it is there.
fn wine_prefix() -> Result<PathBuf> {
    let (shell, prefix) = (shell()?, target().join("wine"));
    fs::create_dir_all(&prefix)?;
    let system = prefix.join("drive_c/windows/system32");
    if !system.is_dir() {
        in_wine(cmd!(shell, "wineboot --init"), &prefix).run()?;
    }
    let library = system.join(RANDOM_LIBRARY);
    if !library.is_file() {
        let source = "dev/xtask/wine/bcryptprimitives.c";
        cmd!(shell, "{COMPILER} -shared -o {library} {source} -ladvapi32").run()?;
    }
    Ok(prefix)
}

/// Sets the variables that Wine needs: its directory, no messages of its own, and no download of .NET and a browser engine.
fn in_wine<'a>(command: Cmd<'a>, prefix: &Path) -> Cmd<'a> {
    command
        .env("WINEPREFIX", prefix)
        .env("WINEDEBUG", "-all")
        .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
}

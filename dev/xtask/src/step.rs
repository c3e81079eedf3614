//! Runs the steps of a command, prints them and counts them. Must not depend on a particular step.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A step: its title, and the function that runs it.
pub(crate) type Step = (&'static str, fn() -> Outcome);

/// The result of a step; an error says what is wrong.
pub(crate) type Outcome = Result<Done, String>;

/// A step that did not fail.
pub(crate) enum Done {
    Passed,
    /// The step does not apply here; the text says why.
    Skipped(String),
}

/// Runs the steps in order, up to the first that fails.
pub(crate) fn run_all(steps: &[Step]) -> Result<(), String> {
    let start = Instant::now();
    let mut skipped = 0;
    for (index, (title, run)) in steps.iter().enumerate() {
        eprintln!("\n[{}/{}] {title}", index + 1, steps.len());
        let start = Instant::now();
        match run() {
            Ok(Done::Passed) => eprintln!("passed in {} s", start.elapsed().as_secs()),
            Ok(Done::Skipped(reason)) => {
                eprintln!("skipped: {reason}");
                skipped += 1;
            }
            Err(reason) => return Err(format!("step \"{title}\" failed: {reason}")),
        }
    }
    let passed = steps.len() - skipped;
    let seconds = start.elapsed().as_secs();
    eprintln!("\n{passed} steps passed, {skipped} skipped, in {seconds} s");
    Ok(())
}

/// Runs one step as a command, and prints why it is skipped.
pub(crate) fn run_one(run: fn() -> Outcome) -> Result<(), String> {
    if let Done::Skipped(reason) = run()? {
        eprintln!("skipped: {reason}");
    }
    Ok(())
}

/// Runs cargo with `arguments`, which are split at spaces, in the root of the project.
pub(crate) fn cargo(arguments: &str) -> Outcome {
    cargo_with(arguments, |_| {})
}

/// The same, after `adjust` has changed the command: an environment variable, another directory.
pub(crate) fn cargo_with(arguments: &str, adjust: impl FnOnce(&mut Command)) -> Outcome {
    eprintln!("cargo {arguments}");
    let mut command = cargo_command(arguments);
    adjust(&mut command);
    match command.status() {
        Ok(status) if status.success() => Ok(Done::Passed),
        Ok(status) => Err(format!("`cargo {arguments}` ended with {status}")),
        Err(error) => Err(format!("`cargo {arguments}` could not start: {error}")),
    }
}

/// What the tests need.
pub(crate) const ALL_TESTS: &str = "--workspace --all-features --lib --bins --tests";

/// Builds all programs with the same features as the tests. After the tests, there is nothing left to compile: another choice of packages would have
/// other features, and most dependencies would be compiled again.
pub(crate) fn build_as_for_tests() -> Outcome {
    cargo(&format!("build {ALL_TESTS}"))
}

/// Returns the standard output of cargo with `arguments`.
pub(crate) fn cargo_output(arguments: &str) -> Result<String, String> {
    cargo_output_with(arguments, |_| {})
}

/// The same, after `adjust` has changed the command.
pub(crate) fn cargo_output_with(
    arguments: &str,
    adjust: impl FnOnce(&mut Command),
) -> Result<String, String> {
    eprintln!("cargo {arguments}");
    let mut command = cargo_command(arguments);
    adjust(&mut command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`cargo {arguments}` could not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("`cargo {arguments}` ended with {}", output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| format!("`cargo {arguments}` printed something that is not UTF-8"))
}

/// The nightly cargo, in the root of the project. Removes `CARGO`, which may name another cargo.
pub(crate) fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .env_remove("CARGO")
        .current_dir(root());
    command
}

/// The target for which the nightly compiler builds by default.
pub(crate) fn nightly_host() -> Result<String, String> {
    let rustc = ["run", "nightly", "rustc", "--print", "host-tuple"];
    output(Command::new("rustup").args(rustc))
}

/// Whether cargo has the subcommand `name` on this machine.
pub(crate) fn has_cargo(name: &str) -> bool {
    cargo_command(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The directory of the workspace.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.ancestors().nth(2).unwrap_or(xtask)
}

/// The text of a file, whose path may start at the root of the project.
pub(crate) fn read(file: impl AsRef<Path>) -> Result<String, String> {
    let file = file.as_ref();
    fs::read_to_string(root().join(file))
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))
}

/// Writes a file, whose path may start at the root of the project.
pub(crate) fn write(file: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<(), String> {
    let file = file.as_ref();
    fs::write(root().join(file), text)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

/// The target directory.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The commit that is checked out, and whether files were changed since. Pages are no part of what is measured.
pub(crate) fn commit() -> Result<String, String> {
    let git = |words: &[&str]| output(Command::new("git").args(words).current_dir(root()));
    let hash = git(&["rev-parse", "--short", "HEAD"])?;
    let changes = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!docs",
    ])?;
    let suffix = if changes.is_empty() {
        ""
    } else {
        " with changes"
    };
    Ok(format!("{hash}{suffix}"))
}

/// Returns the standard output of a command, without the line break at its end.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("`{name}` could not start: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cargo_command(arguments: &str) -> Command {
    // Uses the cargo that runs this program, which may not be the one in the search path.
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments.split_whitespace())
        .current_dir(root());
    command
}

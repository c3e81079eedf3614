//! cargo-fuzz and libFuzzer: how targets are built, run and merged. Judges nothing that they find.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Target;
use super::report::Run;

/// Nothing here is unsafe, so there is nothing to sanitise. And comparisons need not be traced: the words that matter to texts are
/// in a dictionary, and scripts have none. Either makes the fuzzers several times as fast.
pub(super) const FLAGS: [&str; 3] = ["--sanitizer", "none", "--no-trace-compares"];

/// The longest that one input may take, far beyond what any does on a busy machine.
const TIMEOUT: &str = "-timeout=60";

const HELP: &str = "with rustup:\n\n  \
    rustup toolchain install nightly --profile minimal\n  \
    cargo install cargo-fuzz --locked";

/// Targets that are built.
pub(super) struct Engine(());

impl Engine {
    pub(super) fn build() -> Result<Engine, String> {
        let has = |arguments: &[&str]| {
            let mut command = nightly();
            command
                .args(arguments)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if !has(&[]) {
            return Err(format!("this needs a nightly compiler; {HELP}"));
        }
        if !has(&["fuzz"]) {
            return Err(format!("this needs cargo-fuzz; {HELP}"));
        }
        let mut command = nightly();
        command.args(["fuzz", "build"]).args(FLAGS);
        let is_built = command.status().is_ok_and(|status| status.success());
        is_built
            .then_some(Engine(()))
            .ok_or_else(|| "the fuzz targets could not be built".into())
    }

    /// Lets the corpus of a target grow for so long, or until something breaks a rule.
    pub(super) fn run(&self, target: &Target, time: Duration) -> Result<Run, String> {
        let (grown, committed) = (target.grown(), target.committed());
        let artifacts = target.artifacts();
        for directory in [&grown, &committed, &artifacts] {
            create(directory)?;
        }
        let mut command = self.command(target, [&grown, &committed]);
        command.arg(format!("-max_total_time={}", time.as_secs()));
        command.arg(format!("-max_len={}", target.longest()));
        // Without the separator at its end it would be the beginning of names.
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        if let Some(dictionary) = target.dictionary() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        let mut run = Run::default();
        let succeeds = listen(&mut command, |line| run.hear(line))?;
        run.end(succeeds)?;
        Ok(run)
    }

    /// Picks, of what is committed and what has grown, few inputs that take every branch which any of them takes, and copies them.
    pub(super) fn merge(&self, target: &Target, into: &Path) -> Result<(), String> {
        let (grown, committed) = (target.grown(), target.committed());
        for directory in [into, &grown, &committed] {
            create(directory)?;
        }
        let mut command = self.command(target, [into, &committed, &grown]);
        // How often each is taken would make it three times as many.
        command.args(["-set_cover_merge=1", "-use_counters=0"]);
        let mut said = String::new();
        let succeeds = listen(&mut command, |line| {
            said.push_str(line);
            said.push('\n');
        })?;
        if succeeds {
            return Ok(());
        }
        Err(format!("{said}\n{} could not be merged", target.name))
    }

    fn command(&self, target: &Target, corpora: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
        let mut command = nightly();
        command.args(["fuzz", "run"]).args(FLAGS).arg(&target.name);
        command.args(corpora).args(["--", TIMEOUT]);
        command
    }
}

/// The nightly cargo, in the project's root. This program itself may be the child of another.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .env_remove("CARGO")
        .current_dir(crate::step::root());
    command
}

/// Runs a command to its end and hears what it says meanwhile. Whether it succeeds.
fn listen(command: &mut Command, mut hear: impl FnMut(&str)) -> Result<bool, String> {
    let failed = |error| format!("cargo fuzz could not run: {error}");
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let stderr = child.stderr.take().map(BufReader::new);
    // A panic may show bytes that are no text.
    let lines = stderr.into_iter().flat_map(|stderr| stderr.split(b'\n'));
    for line in lines {
        hear(&String::from_utf8_lossy(&line.map_err(failed)?));
    }
    Ok(child.wait().map_err(failed)?.success())
}

fn create(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory)
        .map_err(|error| format!("{} cannot be made: {error}", directory.display()))
}

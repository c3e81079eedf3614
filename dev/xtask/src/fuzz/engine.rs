//! Builds, runs and merges fuzz targets with cargo-fuzz and libFuzzer. Must not judge their findings.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Target;
use super::report::Run;

/// The code has no unsafe blocks, so a sanitizer finds nothing. Comparisons need no tracing: a dictionary has the words that matter to
/// texts, and scripts have none. Each of them would make the fuzzers several times slower.
pub(super) const FLAGS: [&str; 3] = ["--sanitizer", "none", "--no-trace-compares"];

/// The timeout for one input, far beyond what any input takes on a busy machine.
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

    /// Grows the corpus of a target for this time, or until an input breaks a rule.
    pub(super) fn run(&self, target: &Target, time: Duration) -> Result<Run, String> {
        let (local_corpus, committed_corpus) = (target.local_corpus(), target.committed_corpus());
        let artifacts = target.artifacts();
        for directory in [&local_corpus, &committed_corpus, &artifacts] {
            create(directory)?;
        }
        let mut command = self.command(target, [&local_corpus, &committed_corpus]);
        command.arg(format!("-max_total_time={}", time.as_secs()));
        command.arg(format!("-max_len={}", target.max_len()));
        // With a separator at its end: otherwise it would be a prefix of file names.
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        if let Some(dictionary) = target.dictionary() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        let mut run = Run::default();
        let succeeds = run_and_read(&mut command, |line| run.read_line(line))?;
        run.end(succeeds)?;
        Ok(run)
    }

    /// Copies a small set of inputs that take every branch which the committed and the local corpus take.
    pub(super) fn merge(&self, target: &Target, into: &Path) -> Result<(), String> {
        let (local_corpus, committed_corpus) = (target.local_corpus(), target.committed_corpus());
        for directory in [into, &local_corpus, &committed_corpus] {
            create(directory)?;
        }
        let mut command = self.command(target, [into, &committed_corpus, &local_corpus]);
        // Counting how often each branch is taken would triple the number of inputs.
        command.args(["-set_cover_merge=1", "-use_counters=0"]);
        let mut output = String::new();
        let succeeds = run_and_read(&mut command, |line| {
            output.push_str(line);
            output.push('\n');
        })?;
        if succeeds {
            return Ok(());
        }
        Err(format!("{output}\n{} could not be merged", target.name))
    }

    fn command(&self, target: &Target, corpora: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
        let mut command = nightly();
        command.args(["fuzz", "run"]).args(FLAGS).arg(&target.name);
        command.args(corpora).args(["--", TIMEOUT]);
        command
    }
}

/// The nightly cargo, in the root of the project. Removes `CARGO`, which may name another cargo.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .env_remove("CARGO")
        .current_dir(crate::step::root());
    command
}

/// Runs a command to its end, and passes on its standard error line by line. Returns whether it succeeds.
fn run_and_read(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<bool, String> {
    let failed = |error| format!("cargo fuzz could not run: {error}");
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let stderr = child.stderr.take().map(BufReader::new);
    // A panic message may contain bytes that are no text.
    let lines = stderr.into_iter().flat_map(|stderr| stderr.split(b'\n'));
    for line in lines {
        on_line(&String::from_utf8_lossy(&line.map_err(failed)?));
    }
    Ok(child.wait().map_err(failed)?.success())
}

fn create(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory)
        .map_err(|error| format!("{} cannot be made: {error}", directory.display()))
}

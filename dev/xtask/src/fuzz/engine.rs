//! Builds, runs and merges fuzz targets with cargo-fuzz and libFuzzer. Must not judge their findings.

use core::time::Duration;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Result, ensure};
use fs_err as fs;
use xshell::cmd;

use super::Target;
use super::report::Run;
use crate::install;
use crate::step::{nightly_host, root, shell, target};

/// The code has no unsafe blocks, so a sanitizer finds nothing. Comparisons need no tracing: a dictionary has the words that matter to
/// texts, and scripts have none. Each of them would make the fuzzers several times slower.
pub(super) const FLAGS: [&str; 3] = ["--sanitizer", "none", "--no-trace-compares"];

/// The timeout for one input, far beyond what any input takes on a busy machine.
const TIMEOUT: &str = "-timeout=60";

/// The unit of the times in `/proc`, which Linux fixes for all programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// The program that builds the targets, and its version. It is installed below the target directory.
const CARGO_FUZZ: (&str, &str) = ("cargo-fuzz", "0.13.2");

/// The directory with the programs of the targets, which are built.
pub(super) struct Engine(PathBuf);

impl Engine {
    pub(super) fn build() -> Result<Engine> {
        install::nightly_compiler()?;
        let cargo_fuzz = install::rust_program(CARGO_FUZZ)?;
        let built_in = target().join("fuzz");
        let shell = shell()?;
        cmd!(shell, "{cargo_fuzz} fuzz build {FLAGS...}")
            .env("CARGO_TARGET_DIR", &built_in)
            // This cargo is the stable one.
            .env_remove("CARGO")
            .env("RUSTUP_TOOLCHAIN", "nightly")
            .run()?;
        Ok(Engine(built_in.join(nightly_host()?).join("release")))
    }

    /// Extends the corpus of a target for this time, or until an input breaks a rule, or until there is a file at `stop`.
    pub(super) fn run(&self, target: &Target, time: Duration, stop: &Path) -> Result<Run> {
        let (local_corpus, committed_corpus) = (target.local_corpus(), target.committed_corpus());
        let artifacts = target.artifacts();
        for directory in [&local_corpus, &committed_corpus, &artifacts] {
            fs::create_dir_all(directory)?;
        }
        let mut command = self.command(target, [&local_corpus, &committed_corpus]);
        command.arg(format!("-max_total_time={}", time.as_secs().max(1)));
        command.arg(format!("-max_len={}", target.max_len()));
        command.arg(format!("-stop_file={}", stop.display()));
        // With a separator at its end: otherwise it would be a prefix of file names.
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        if let Some(dictionary) = target.dictionary() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        let mut run = Run::default();
        let (succeeds, cpu) = run_and_read(&mut command, |line| run.read_line(line))?;
        run.end(succeeds, cpu)?;
        Ok(run)
    }

    /// Copies a small set of inputs that take every branch which the committed and the local corpus take.
    pub(super) fn merge(&self, target: &Target, into: &Path) -> Result<()> {
        let (local_corpus, committed_corpus) = (target.local_corpus(), target.committed_corpus());
        for directory in [into, &local_corpus, &committed_corpus] {
            fs::create_dir_all(directory)?;
        }
        let mut command = self.command(target, [into, &committed_corpus, &local_corpus]);
        // Counting how often each branch is taken would triple the number of inputs.
        command.args(["-set_cover_merge=1", "-use_counters=0"]);
        let mut output = String::new();
        let (succeeds, _) = run_and_read(&mut command, |line| {
            output.push_str(line);
            output.push('\n');
        })?;
        ensure!(succeeds, "{output}\n{} could not be merged", target.name);
        Ok(())
    }

    /// Runs the program itself: a process in between would stay when this one ends, and would hide the CPU time.
    fn command(&self, target: &Target, corpora: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
        let mut command = Command::new(self.0.join(&target.name));
        command.args(corpora).arg(TIMEOUT).current_dir(root());
        command
    }
}

/// Runs a command to its end, and passes on its standard error line by line. Returns whether it succeeds, and its CPU time in seconds.
fn run_and_read(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<(bool, f64)> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().map(BufReader::new);
    // A panic message may contain bytes that are no text.
    let lines = stderr.into_iter().flat_map(|stderr| stderr.split(b'\n'));
    for line in lines {
        on_line(&String::from_utf8_lossy(&line?));
    }
    let cpu = cpu_seconds_at_exit(child.id());
    Ok((child.wait()?.success(), cpu))
}

/// The CPU time of a child that exits, in its own code and in the kernel. The kernel keeps it until the child is reaped. 0 where there is no `/proc`.
fn cpu_seconds_at_exit(child: u32) -> f64 {
    let mut seconds = 0.0;
    for _ in 0..100 {
        let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else {
            break;
        };
        let (has_exited, so_far) = parse_stat(&stat);
        seconds = so_far;
        if has_exited {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    seconds
}

/// Whether a process has exited, and its CPU time, from `/proc/PID/stat`: the fields 3, 14 and 15. The name before them may have spaces.
fn parse_stat(stat: &str) -> (bool, f64) {
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    let total = ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default();
    (fields.first() == Some(&"Z"), total / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::parse_stat;

    #[test]
    fn cpu_time_is_the_sum_of_user_and_system_time() {
        let stat = "7 (a ) b) Z 1 7 7 0 -1 4 5 0 0 0 1250 34 99 98 20 0 1 0 5 6 7";
        assert_eq!(parse_stat(stat), (true, 12.84));
        assert_eq!(parse_stat("7 (a) R 1"), (false, 0.0));
        assert_eq!(parse_stat(""), (false, 0.0));
    }
}

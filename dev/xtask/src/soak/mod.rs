//! `cargo xtask soak`: runs two guards and a fleet under faults for hours, and checks that nothing grows and that no call is lost.
//!
//! `dev/fleet` runs and samples. `samples` parses its table, `verdict` judges it, and `page` writes the page with its plots.

mod page;
mod samples;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{fs, thread};

use serde_json::{Value, json};

use crate::fleet;
use crate::step::{self, cargo, root, target};

use page::Run;
use samples::Samples;

const PAGE: &str = "docs/SOAK.md";
/// The text below the figures.
const FINDINGS: &str = "dev/fleet/SOAK.md";
const PLOTS: &str = "docs/benchmarks";

/// A shorter run shows that the command works and that no call is lost, but not that no memory grows: caches are still being filled. Its page stays
/// below the target directory.
const SHORTEST_FOR_PAGE: u64 = 10 * 60;

const USAGE: &str = "what may be said is --hours N, --minutes N or --from DIRECTORY";

/// Runs for some time, or reads an earlier run, and writes the page. Fails if something grew, or a call or a process was lost.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let [option, value] = arguments else {
        return Err(USAGE.into());
    };
    let number = || value.parse::<u64>().map_err(|_| USAGE.to_owned());
    let directory = match option.as_str() {
        "--hours" => measure(option, number()? * 3_600, value)?,
        "--minutes" => measure(option, number()? * 60, value)?,
        "--from" => PathBuf::from(value),
        _ => return Err(USAGE.into()),
    };
    let json = |name: &str| {
        let text = step::read(directory.join(name))?;
        serde_json::from_str::<Value>(&text).map_err(|error| format!("{name}: {error}"))
    };
    let (about, summary) = (json("about.json")?, json("soak.json")?);
    let samples = Samples::from_table(&step::read(directory.join("soak.tsv"))?)?;
    let seconds = summary["seconds"].as_u64().unwrap_or_default();
    let is_short = seconds < SHORTEST_FOR_PAGE;
    let run = Run {
        findings: fs::read_to_string(root().join(FINDINGS)).unwrap_or_default(),
        is_short,
        verdicts: verdict::judge(&samples, seconds as f64)?,
        samples,
        summary,
        about,
    };
    eprintln!("\n{}", run.verdict_table());
    let (page_file, plots) = if is_short {
        (directory.join("SOAK.md"), directory.clone())
    } else {
        (root().join(PAGE), root().join(PLOTS))
    };
    for (name, plot) in run.plots()? {
        step::write(plots.join(name), plot)?;
    }
    step::write(&page_file, run.page())?;
    let shown = page_file.strip_prefix(root()).unwrap_or(&page_file);
    eprintln!("written to {}", shown.display());
    let problems = run.problems();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

/// Runs for this many seconds. Returns the directory with the results.
fn measure(option: &str, seconds: u64, value: &str) -> Result<PathBuf, String> {
    if seconds < 120 {
        return Err("a run takes at least 2 minutes: shorter ones have too few samples".into());
    }
    fleet::install()?;
    cargo("build --release --package everlink-fleet --package everlink-cli")?;
    let out = target().join("soak");
    let failed = |error| format!("{} cannot be written: {error}", out.display());
    fs::create_dir_all(&out).map_err(failed)?;
    // Results of an earlier run must not be taken for those of a run that failed.
    let _ = fs::remove_file(out.join("soak.json"));
    let about = json!({
        "command": format!("cargo xtask soak {option} {value}"),
        "commit": commit()?,
        "date": output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?,
        "cores": thread::available_parallelism().map_or(1, usize::from),
    });
    step::write(out.join("about.json"), about.to_string())?;
    let program = target().join("release/everlink-fleet");
    let status = soak_command(&program, seconds, &out).status();
    match status {
        Ok(status) if status.success() => Ok(out),
        Ok(status) => Err(format!("the run ended with {status}")),
        Err(error) => Err(format!("{} could not start: {error}", program.display())),
    }
}

/// All processes of the run inherit the variable, so that one that is left behind can be found. `cargo run` would have it, too, so the program is
/// started directly.
fn soak_command(program: &Path, seconds: u64, out: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["soak", "--seconds", &seconds.to_string(), "--out"]);
    command
        .arg(out)
        .env("EVERLINK_SOAK_RUN", process::id().to_string());
    command
}

/// The commit that is checked out, and whether files were changed since.
pub(crate) fn commit() -> Result<String, String> {
    let git = |words: &[&str]| output(Command::new("git").args(words).current_dir(root()));
    let hash = git(&["rev-parse", "--short", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let suffix = if changes.is_empty() {
        ""
    } else {
        " with changes"
    };
    Ok(format!("{hash}{suffix}"))
}

pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("`{name}` could not start: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

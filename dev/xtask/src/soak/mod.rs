//! `cargo xtask soak`: runs two guards and a fleet under faults for hours, and checks that nothing grows and that no call is lost.
//!
//! `dev/fleet` runs and samples. `samples` parses its table, `verdict` judges it, and `page` writes the page with its plots.

mod page;
mod samples;
mod verdict;

use std::path::PathBuf;
use std::process;

use anyhow::{Context as _, Result, bail, ensure};
use fs_err as fs;
use pico_args::Arguments;
use serde::de::DeserializeOwned;
use xshell::cmd;

use crate::evidence::{self, Row};
use crate::fleet;
use crate::step::{self, cargo, root, shell, target};

use page::Run;
use samples::Samples;
use verdict::PERCENT;

const PAGE: &str = "docs/SOAK.md";
/// The text below the figures.
const FINDINGS: &str = "dev/fleet/SOAK.md";
const PLOTS: &str = "docs/benchmarks";
/// Its name among the evidence.
const CHECK: &str = "soak";
/// A run that is shorter is no evidence.
const SHORTEST_FOR_EVIDENCE: u64 = 2 * 3_600;

/// A shorter run shows that the command works and that no call is lost, but not that no memory grows: caches are still being filled. Its page stays
/// below the target directory.
const SHORTEST_FOR_PAGE: u64 = 10 * 60;

/// Runs for some time, or reads an earlier run, and writes the page. Fails if something grew, or a call or a process was lost.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let hours: Option<u64> = arguments.opt_value_from_str("--hours")?;
    let minutes: Option<u64> = arguments.opt_value_from_str("--minutes")?;
    let from: Option<PathBuf> = arguments.opt_value_from_str("--from")?;
    let directory = match (hours, minutes, from) {
        (Some(hours), None, None) => measure(&format!("--hours {hours}"), hours * 3_600)?,
        (None, Some(minutes), None) => measure(&format!("--minutes {minutes}"), minutes * 60)?,
        (None, None, Some(directory)) => directory,
        _ => bail!("what may be said is --hours N, --minutes N or --from DIRECTORY"),
    };
    let samples = Samples::from_table(&step::read(directory.join("soak.tsv"))?)?;
    let summary: page::Summary = read_json(directory.join("soak.json"))?;
    let seconds = summary.seconds;
    let is_short = seconds < SHORTEST_FOR_PAGE;
    let run = Run {
        findings: fs::read_to_string(root().join(FINDINGS)).unwrap_or_default(),
        is_short,
        verdicts: verdict::judge(&samples, seconds as f64)?,
        samples,
        summary,
        row: read_json(directory.join("about.json"))?,
    };
    eprintln!("\n{}", run.verdict_table());
    let (page, plots) = match is_short {
        true => (directory.join("SOAK.md"), directory),
        false => (PathBuf::from(PAGE), PathBuf::from(PLOTS)),
    };
    for (name, plot) in run.plots()? {
        step::write(plots.join(name), plot)?;
    }
    step::write(&page, run.page())?;
    eprintln!("written to {}", page.display());
    step::check_none(&run.problems())?;
    match seconds < SHORTEST_FOR_EVIDENCE {
        true => Ok(()),
        false => evidence::record(row(run)),
    }
}

fn read_json<T: DeserializeOwned>(file: PathBuf) -> Result<T> {
    let text = step::read(&file)?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

/// The row of a run that passed. Its commit and code are those of the beginning, because the programs were built then.
fn row(run: Run) -> Row {
    let calls: u64 = run.summary.parts().map(|(_, part)| part.calls).sum();
    Row {
        seconds: run.summary.seconds,
        result: format!("{calls} calls, no violation, flat within {PERCENT} %"),
        ..run.row
    }
}

/// Runs for this many seconds. Returns the directory with the results.
fn measure(options: &str, seconds: u64) -> Result<PathBuf> {
    ensure!(
        seconds >= 120,
        "a run takes at least 2 minutes: shorter ones have too few samples"
    );
    fleet::install()?;
    cargo("build --release --package everlink-fleet --package everlink-cli")?;
    let out = target().join("soak");
    // Results of an earlier run must not be taken for those of a run that failed.
    let _ = fs::remove_file(out.join("soak.json"));
    let row = Row::begin(CHECK, &format!("soak {options}"))?;
    step::write(out.join("about.json"), serde_json::to_string(&row)?)?;
    let (program, seconds) = (target().join("release/everlink-fleet"), seconds.to_string());
    let shell = shell()?;
    // All processes of the run inherit the variable, so that one that is left behind can be found. `cargo run` would have it, too, so the program
    // is started directly.
    cmd!(shell, "{program} soak --seconds {seconds} --out {out}")
        .env("EVERLINK_SOAK_RUN", process::id().to_string())
        .run()?;
    Ok(out)
}

//! `cargo xtask sim`, `auth-sim` and `fleet-sim` run the simulators, and `cargo xtask simulation` writes docs/SIMULATION.md with them and with
//! the exploration. A check runs each simulator with a seed from the clock.

use core::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::evidence::{self, Run};
use crate::step::{self, Done, Outcome, cargo, commit, target};

const PAGE: &str = "docs/SIMULATION.md";

/// The handwritten part of the page.
const FINDINGS: &str = "dev/simulation/findings.md";

/// The runs of all simulators together. Fewer are no evidence.
const RUNS: u64 = 1_000_000;

/// A simulator: its command, what it simulates, its share of all runs in percent, and its runs in the check, which take a few seconds.
type Simulator = (&'static str, &'static str, u64, u64);

const SIMULATORS: [Simulator; 3] = [
    ("sim", "links, relays and servers", 50, 600),
    ("auth-sim", "processes that share tokens", 40, 400),
    ("fleet-sim", "servers that share a store", 10, 100),
];

/// The most runs in which a broken rule must be seen.
const RUNS_FOR_A_FLAW: u64 = 2_000;

/// The files with a test for each bug that a simulator has found.
const FOUND: [&str; 3] = [
    "dev/sim/tests/found.rs",
    "dev/auth-sim/tests/found.rs",
    "dev/fleet-sim/tests/found.rs",
];

/// Runs one of the simulators.
pub(crate) fn run(name: &str, arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --quiet --package everlink-{name} -- {arguments}"
    ))
    .map(drop)
}

/// Explores machines.
pub(crate) fn explore(arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --package model --example explore -- {arguments}"
    ))
    .map(drop)
}

/// Runs each simulator with seeds that no earlier check had.
pub(crate) fn check() -> Outcome {
    step::build_as_for_tests()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = now.map_or(0, |now| now.as_millis());
    for (name, _, _, runs) in SIMULATORS {
        let options = format!("--runs {runs} --seed {seed}");
        println!("from the clock; the same again: cargo xtask {name} {options}");
        print!("{}", program(&format!("debug/everlink-{name}"), &options)?);
    }
    Ok(Done::Passed)
}

/// Runs all parts, or the named ones, and writes the page. The results of the others are those of the last time.
pub(crate) fn write_page(arguments: &[String]) -> Result<(), String> {
    let mut runs = RUNS;
    let mut wanted: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Some(at) = wanted.iter().position(|word| *word == "--runs") {
        let count = wanted.get(at + 1).and_then(|word| word.parse().ok());
        runs = count.ok_or("--runs must be followed by a number")?;
        wanted.drain(at..at + 2);
    }
    cargo(
        "build --release --package everlink-sim --package everlink-auth-sim --package everlink-fleet-sim --package model --bins --example explore",
    )?;
    let is_wanted = |part: &str| wanted.is_empty() || wanted.contains(&part);
    let mut page = step::read("dev/simulation/about.md")?;
    for (name, what, share, _) in SIMULATORS {
        let title = format!("Simulation of {what}");
        let runs_of_this = runs * share / 100;
        let command = format!("{name} --runs {runs_of_this}");
        let evidence = Run::begin(name, &command)?;
        page += &section(&title, &command, is_wanted(name))?;
        if is_wanted(name) && runs >= RUNS {
            evidence.end(&format!("{runs_of_this} seeds, no rule broken"))?;
        }
    }
    for (name, what, ..) in SIMULATORS {
        let title = format!("Rules broken on purpose: {what}");
        let command = format!("{name} --flaws --runs {RUNS_FOR_A_FLAW}");
        page += &section(&title, &command, is_wanted("flaws"))?;
    }
    let evidence = Run::begin("explore", "explore")?;
    page += &section("Exploration", "explore", is_wanted("explore"))?;
    if is_wanted("explore") {
        evidence.end("all sequences up to the depths on the page, no rule broken")?;
    }
    page += "## Bugs found, and their tests\n\n| what was wrong | test |\n|---|---|\n";
    for file in FOUND {
        page += &found(&step::read(file)?);
    }
    page += &step::read(FINDINGS)?;
    step::write(PAGE, page)?;
    eprintln!("written to {PAGE}");
    Ok(())
}

/// A section of the page: how the command was run, and what it printed. Runs it, or takes what it printed the last time.
fn section(title: &str, command: &str, is_wanted: bool) -> Result<String, String> {
    let directory = target().join("simulation");
    let file = directory.join(format!("{}.md", title.replace([' ', ':'], "-")));
    if !is_wanted {
        return step::read(file);
    }
    let (name, options) = command.split_once(' ').unwrap_or((command, ""));
    let path = match name {
        "explore" => "release/examples/explore".to_owned(),
        name => format!("release/everlink-{name}"),
    };
    eprintln!("{path} {options}");
    let start = Instant::now();
    let printed = program(&path, options)?;
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    let (commit, date, cores) = (commit()?, evidence::date()?, evidence::cores());
    let text = format!(
        "## {title}\n\n`cargo xtask {command}`, commit {commit}, {date}, {minutes:.1} minutes on {cores} cores\n\n```text\n{}\n```\n\n",
        printed.trim_end()
    );
    let failed = |error| format!("{} cannot be written: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    step::write(file, &text)?;
    Ok(text)
}

/// Runs a program of the target directory. Returns what it prints, and prints that if it fails.
fn program(path: &str, options: &str) -> Result<String, String> {
    let program: PathBuf = target().join(path);
    let output = Command::new(&program)
        .args(options.split_whitespace())
        .output()
        .map_err(|error| format!("{} could not start: {error}", program.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(format!("{printed}\n{path} {options}: {}", output.status))
}

/// A row for each test in a file: what its comment says, and its name.
fn found(file: &str) -> String {
    let (mut rows, mut comment) = (String::new(), Vec::new());
    for line in file.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push(text);
        } else if let Some(name) = line.strip_prefix("fn ") {
            let name = name.split('(').next().unwrap_or(name);
            let _ = writeln!(rows, "| {} | `{name}` |", comment.join(" "));
            comment.clear();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_a_file_has_a_row_with_its_comment() {
        let file = "//! About.\n\n/// It was\n/// wrong.\n#[test]\nfn is_right() {\n}\n\n/// Also.\n#[test]\nfn also() {\n";
        let rows = "| It was wrong. | `is_right` |\n| Also. | `also` |\n";
        assert_eq!(found(file), rows);
    }
}

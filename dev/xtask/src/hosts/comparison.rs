//! Compares hosts with and without the guard: measures every cell, compares the pairs, and writes `docs/HOSTS.md`.
//!
//! `tests/hosts/comparison/trial.py` measures a cell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use serde::Deserialize;

use super::{Setup, need_proc, python, script};
use crate::install::need_programs;
use crate::step::{in_parallel, target, write_page};

/// The hosts, by the scripts that drive them.
const HOSTS: [(&str, &str); 4] = [
    ("livekit", "livekit-agents 1.8.9"),
    ("hermes", "hermes-agent 0.19.0"),
    ("nat", "nvidia-nat-mcp 1.9.0"),
    ("plain", "Python SDK 1.30.0"),
];

/// The scenarios: how the server fails in each. The script uses the same texts.
const SCENARIOS: [&str; 10] = [
    "killed while idle",
    "killed during a call",
    "eight kills, 3 s apart",
    "stopped (SIGSTOP)",
    "blocked for ever",
    "computing for 70 s",
    "blocked for 70 s",
    MISTYPED,
    SLOW,
    CLOSED,
];
const MISTYPED: &str = "mistyped command";
const SLOW: &str = "slow start (20 s)";
const CLOSED: &str = "closed during a call";

/// The number of cells that run at the same time. Most of them wait.
const WORKERS: usize = 5;

/// The tolerance before a guarded cell counts as worse: both cells run on the same machine at different times, and a server starts in a
/// second.
const ALLOWED_FACTOR: f64 = 1.25;
const ALLOWED_SECONDS: f64 = 2.0;

/// How often a pair in which the guard looks worse is measured again: a shared machine may stand still for seconds.
const REPEATS: usize = 2;

/// A host, a scenario, and whether the guard is used.
type CellKey = (usize, usize, bool);

/// The latest measurement of each cell.
type Cells = BTreeMap<CellKey, Measurement>;

/// The result of the script. Times are in seconds; a missing value means that it never happened.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Measurement {
    connected: bool,
    connect_s: f64,
    connect_error: String,
    tools: u32,
    calls: Option<u32>,
    failed: u32,
    first_call_s: Option<f64>,
    first_call_well: bool,
    first_call: String,
    next_good_s: Option<f64>,
    ran: Option<u32>,
    close_s: f64,
    close_error: String,
    left: u32,
}

/// Measures all cells, or those of the requested scenarios, and writes the page if it has all of them.
pub(super) fn run(setup: &Setup, _: &str) -> Result<()> {
    need_proc()?;
    need_programs(&["python3"])?;
    let pythons = HOSTS.iter().map(|(host, _)| python(host));
    let pythons: Vec<PathBuf> = pythons.collect::<Result<_>>()?;
    let server = python("plain")?;
    let only = setup.scenario.as_deref().unwrap_or_default();
    let scenarios = (0..SCENARIOS.len()).filter(|at| SCENARIOS[*at].contains(only));
    let wanted = scenarios.flat_map(|scenario| {
        let hosts = 0..HOSTS.len();
        hosts.flat_map(move |host| [(host, scenario, false), (host, scenario, true)])
    });
    let measure_all = |wanted: Vec<CellKey>, workers| {
        let total = wanted.len();
        let measurements = in_parallel(workers, &wanted, |(host, scenario, is_guarded)| {
            let (name, host_name) = (SCENARIOS[*scenario], HOSTS[*host].0);
            let command = command(setup, &server, name, *is_guarded);
            let measurement = measure(&pythons[*host], host_name, name, &command);
            let variant = variant(*is_guarded);
            eprintln!("of {total}: {name}, {host_name}, {variant}: {measurement:?}");
            measurement
        });
        let cells = wanted.iter().zip(measurements);
        cells
            .map(|(key, measurement)| Ok((*key, measurement?)))
            .collect::<Result<Cells>>()
    };
    let mut cells = measure_all(wanted.collect(), WORKERS)?;
    for _ in 0..REPEATS {
        let suspicious = suspicious_cells(&cells);
        if suspicious.is_empty() {
            break;
        }
        eprintln!("measured again, alone: {} cells", suspicious.len());
        cells.extend(measure_all(suspicious, 1)?);
    }
    let (page, regressions) = render(&cells);
    match only {
        "" => write_page("docs/HOSTS.md", &page)?,
        _ => println!("{page}"),
    }
    ensure!(
        regressions.is_empty(),
        "the guard is worse than no guard: {}",
        regressions.join("; ")
    );
    Ok(())
}

const fn variant(is_guarded: bool) -> &'static str {
    match is_guarded {
        true => "guarded",
        false => "direct",
    }
}

/// Both cells of each pair in which the guard looks worse.
fn suspicious_cells(cells: &Cells) -> Vec<CellKey> {
    let guarded = cells.iter().filter(|((.., is_guarded), _)| *is_guarded);
    guarded
        .filter_map(|((host, scenario, _), guarded)| {
            let direct = (*host, *scenario, false);
            let is_worse = !regressions(cells.get(&direct)?, guarded).is_empty();
            is_worse.then_some([direct, (*host, *scenario, true)])
        })
        .flatten()
        .collect()
}

/// The command that the host gets for its server.
fn command(setup: &Setup, server: &Path, scenario: &str, is_guarded: bool) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command: Vec<String> = Vec::new();
    if is_guarded {
        command.extend([text(&setup.program), "guard".into(), "--".into()]);
    }
    if scenario == MISTYPED {
        command.push("no-such-server".into());
        return command;
    }
    if scenario == CLOSED {
        // Like a package runner: a shell stays between the host and the server.
        command.extend(["sh", "-c", r#""$@"; true"#, "sh"].map(str::to_owned));
    }
    command.extend([text(server), text(&script("comparison/server.py"))]);
    let marks = ["--mark", "{mark}", "--pids", "{pids}", "--runs", "{runs}"];
    command.extend(marks.map(str::to_owned));
    if scenario == SLOW {
        command.extend(["--delay", "20"].map(str::to_owned));
    }
    command
}

/// Runs the script for one cell.
fn measure(python: &Path, host: &str, scenario: &str, command: &[String]) -> Result<Measurement> {
    // A separate home directory, so that neither the host nor the guard remembers an earlier run.
    let name = scenario.replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let variant = variant(command.iter().any(|word| word == "guard"));
    let home = target()
        .join("comparison")
        .join(format!("{host}-{name}-{variant}"));
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home)?;
    let errors = std::fs::File::create(home.join("stderr"))?;
    let output = Command::new(python)
        .arg(script("comparison/trial.py"))
        .args([host, scenario])
        .args(command)
        .env("HOME", &home)
        .env_remove("XDG_CACHE_HOME")
        .stdin(Stdio::null())
        .stderr(errors)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let seen = || format!("{host}, {scenario}: no result; see {}", home.display());
    serde_json::from_str(line.with_context(seen)?).with_context(seen)
}

/// The respects in which the guarded cell is worse than the direct one.
fn regressions(direct: &Measurement, guarded: &Measurement) -> Vec<&'static str> {
    let slower = |direct: f64, guarded: f64| guarded > direct * ALLOWED_FACTOR + ALLOWED_SECONDS;
    // A call that ran twice counts like one that failed.
    let wrong_calls = |measurement: &Measurement| {
        measurement.failed + measurement.ran.map_or(0, |ran| ran.saturating_sub(1))
    };
    let next_good_later = match (direct.next_good_s, guarded.next_good_s) {
        (Some(direct), Some(guarded)) => slower(direct, guarded),
        (Some(_), None) => true,
        (None, _) => false,
    };
    let first_error_later = match (direct.first_call_s, guarded.first_call_s) {
        (Some(direct_s), Some(guarded_s)) => {
            !guarded.first_call_well && slower(direct_s, guarded_s)
        }
        _ => false,
    };
    let checks = [
        (direct.connected && !guarded.connected, "does not connect"),
        (
            slower(direct.connect_s, guarded.connect_s),
            "connects or fails to later",
        ),
        (
            !direct.connected && !guarded.connected && guarded.tools > direct.tools,
            "offers tools that are not there",
        ),
        (
            direct.connected && wrong_calls(guarded) > wrong_calls(direct),
            "more wrong calls",
        ),
        (direct.connected && first_error_later, "later first error"),
        (direct.connected && next_good_later, "later next good call"),
        (slower(direct.close_s, guarded.close_s), "closes later"),
        (
            direct.close_error.is_empty() && !guarded.close_error.is_empty(),
            "ends with an error",
        ),
        (guarded.left > direct.left, "leaves more processes"),
    ];
    checks
        .into_iter()
        .filter_map(|(applies, problem)| applies.then_some(problem))
        .collect()
}

fn render(cells: &Cells) -> (String, Vec<String>) {
    let mut page = include_str!("about.md").to_owned();
    let mut all_regressions = Vec::new();
    for (scenario, name) in SCENARIOS.iter().enumerate() {
        let cell = |host: usize, is_guarded: bool| cells.get(&(host, scenario, is_guarded));
        if cell(0, true).is_none() {
            continue;
        }
        page += &format!(
            "\n## {name}\n\n| host | | start | the call in question | next good call | failed calls | end | processes left |\n|---|---|---|---|---|---|---|---|\n"
        );
        for (host, (short, long)) in HOSTS.iter().enumerate() {
            let (Some(direct), Some(guarded)) = (cell(host, false), cell(host, true)) else {
                continue;
            };
            page += &row(long, "direct", direct);
            page += &row("", "guard", guarded);
            let problems = regressions(direct, guarded).into_iter();
            all_regressions.extend(problems.map(|problem| format!("{name}, {short}: {problem}")));
        }
    }
    page += &match all_regressions.is_empty() {
        true => "\nIn no cell of this run was the guard worse than no guard.\n".to_owned(),
        false => format!(
            "\n**Worse than without the guard:** {}.\n",
            all_regressions.join("; ")
        ),
    };
    (page, all_regressions)
}

fn row(host: &str, variant: &str, measurement: &Measurement) -> String {
    let Measurement {
        connect_s,
        close_s,
        close_error,
        left,
        failed,
        ..
    } = measurement;
    let close_error = match close_error.as_str() {
        "" => String::new(),
        error => format!(": {}", excerpt(error)),
    };
    let end = format!("{close_s:.1} s{close_error} | {left} |\n");
    if !measurement.connected {
        let error = excerpt(&measurement.connect_error);
        return format!(
            "| {host} | {variant} | fails after {connect_s:.1} s: {error} | | | | {end}"
        );
    }
    let call = match (measurement.first_call_s, measurement.first_call_well) {
        (None, _) => String::new(),
        (Some(after), true) => format!("answered after {after:.1} s"),
        (Some(after), false) => {
            format!(
                "fails after {after:.1} s: {}",
                excerpt(&measurement.first_call)
            )
        }
    };
    let repeats = match measurement.ran {
        Some(ran) if ran > 1 => format!(", ran {ran} times"),
        _ => String::new(),
    };
    let next = match measurement.next_good_s {
        Some(after) => format!("{after:.1} s"),
        None if *failed > 0 => "never".to_owned(),
        // No call was tried.
        None => String::new(),
    };
    let failed = match measurement.calls {
        Some(calls) => format!("{failed} of {calls}"),
        None => failed.to_string(),
    };
    format!("| {host} | {variant} | {connect_s:.1} s | {call}{repeats} | {next} | {failed} | {end}")
}

/// The start of an error text for a cell.
fn excerpt(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace('|', "\\|");
    if text.is_empty() {
        return "(no text)".to_owned();
    }
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("\"{short}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_at_the_end_is_read_and_shown_and_counts_against_the_guard() {
        let line = r#"{"connected": true, "close_s": 1.0, "close_error": "Broken: pipe"}"#;
        let guarded: Measurement = serde_json::from_str(line).expect("a measurement");
        let shown = row("a host", "guard", &guarded);
        assert!(
            shown.ends_with("| 1.0 s: \"Broken: pipe\" | 0 |\n"),
            "{shown}"
        );
        let direct = Measurement {
            close_error: String::new(),
            ..guarded.clone()
        };
        assert_eq!(regressions(&direct, &guarded), ["ends with an error"]);
        assert!(regressions(&guarded, &guarded).is_empty());
        assert!(row("a host", "direct", &direct).ends_with("| 1.0 s | 0 |\n"));
    }
}

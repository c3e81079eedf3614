//! Compares hosts with and without the guard: measures every cell, compares the pairs, and writes `docs/HOSTS.md`.
//!
//! `tests/hosts/comparison/trial.py` measures a cell.

use core::fmt::Write;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde::Deserialize;

use super::{Setup, python, script, skip_without_proc};
use crate::install::skip_without;
use crate::step::{Done, Outcome, root, target};

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
    left: u32,
}

/// Measures all cells, or those of the requested scenarios, and writes the page if it has all of them.
pub(super) fn run(setup: &Setup) -> Outcome {
    let only = setup.scenario.as_deref();
    if let Some(skipped) = skip_without_proc().or_else(|| skip_without(&["python3"])) {
        return skipped;
    }
    let pythons: Vec<PathBuf> = HOSTS
        .iter()
        .map(|(host, _)| python(host))
        .collect::<Result<_, _>>()?;
    let server = python("plain")?;
    let mut wanted = VecDeque::new();
    for (scenario, name) in SCENARIOS.iter().enumerate() {
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        for host in 0..HOSTS.len() {
            wanted.extend([(host, scenario, false), (host, scenario, true)]);
        }
    }
    let measure_all = |wanted: VecDeque<CellKey>, workers| {
        let measure = |(host, scenario, is_guarded): CellKey| {
            let command = command(setup, &server, SCENARIOS[scenario], is_guarded);
            measure(&pythons[host], HOSTS[host].0, SCENARIOS[scenario], &command)
        };
        measure_all(wanted, workers, measure)
    };
    let mut cells = measure_all(wanted, WORKERS)?;
    for _ in 0..REPEATS {
        let suspicious_cells: VecDeque<CellKey> = suspicious_cells(&cells);
        if suspicious_cells.is_empty() {
            break;
        }
        eprintln!("measured again, alone: {} cells", suspicious_cells.len());
        cells.extend(measure_all(suspicious_cells, 1)?);
    }
    let (page, regressions) = render(&cells);
    if only.is_none() {
        let path = root().join("docs/HOSTS.md");
        fs::write(&path, &page).map_err(|error| format!("{}: {error}", path.display()))?;
    } else {
        println!("{page}");
    }
    if regressions.is_empty() {
        Ok(Done::Passed)
    } else {
        Err(format!(
            "the guard is worse than no guard: {}",
            regressions.join("; ")
        ))
    }
}

/// Measures these cells with this many workers.
fn measure_all(
    wanted: VecDeque<CellKey>,
    workers: usize,
    measure: impl Fn(CellKey) -> Result<Measurement, String> + Sync,
) -> Result<Cells, String> {
    let total = wanted.len();
    let (queue, cells) = (Mutex::new(wanted), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").pop_front();
                    let Some(key @ (host, scenario, is_guarded)) = next else {
                        return;
                    };
                    let measurement = measure(key);
                    let mut cells = cells.lock().expect("no worker panics");
                    let variant = if is_guarded { "guarded" } else { "direct" };
                    eprintln!(
                        "{}/{total} {}, {}, {variant}: {measurement:?}",
                        cells.len() + 1,
                        SCENARIOS[scenario],
                        HOSTS[host].0
                    );
                    cells.push(measurement.map(|measurement| (key, measurement)));
                }
            });
        }
    });
    let cells = cells.into_inner().expect("no worker panics");
    cells.into_iter().collect()
}

/// Both cells of each pair in which the guard looks worse.
fn suspicious_cells(cells: &Cells) -> VecDeque<CellKey> {
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
fn measure(
    python: &Path,
    host: &str,
    scenario: &str,
    command: &[String],
) -> Result<Measurement, String> {
    // A separate home directory, so that neither the host nor the guard remembers an earlier run.
    let name: String = scenario
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let variant = if command.iter().any(|word| word == "guard") {
        "guarded"
    } else {
        "direct"
    };
    let home = target()
        .join("comparison")
        .join(format!("{host}-{name}-{variant}"));
    let failed = |error| format!("{}: {error}", home.display());
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).map_err(failed)?;
    let errors = fs::File::create(home.join("stderr")).map_err(failed)?;
    let output = Command::new(python)
        .arg(script("comparison/trial.py"))
        .args([host, scenario])
        .args(command)
        .env("HOME", &home)
        .env_remove("XDG_CACHE_HOME")
        .stdin(Stdio::null())
        .stderr(errors)
        .output()
        .map_err(|error| format!("{}: {error}", python.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| {
        format!(
            "{host}, {scenario}: the script printed no result; see {}",
            home.display()
        )
    })?;
    serde_json::from_str(line).map_err(|error| format!("{host}, {scenario}: {error}"))
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
        (guarded.left > direct.left, "leaves more processes"),
    ];
    checks
        .into_iter()
        .filter_map(|(applies, problem)| applies.then_some(problem))
        .collect()
}

fn render(cells: &Cells) -> (String, Vec<String>) {
    let mut page = INTRODUCTION.to_owned();
    let mut all_regressions = Vec::new();
    for (scenario, name) in SCENARIOS.iter().enumerate() {
        let cell = |host: usize, is_guarded: bool| cells.get(&(host, scenario, is_guarded));
        if cell(0, true).is_none() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {name}\n\n| host | | start | the call in question | next good call | failed calls | end | processes left |\n|---|---|---|---|---|---|---|---|\n"
        );
        for (host, (short, long)) in HOSTS.iter().enumerate() {
            let (Some(direct), Some(guarded)) = (cell(host, false), cell(host, true)) else {
                continue;
            };
            page.push_str(&row(long, "direct", direct));
            page.push_str(&row("", "guard", guarded));
            for problem in regressions(direct, guarded) {
                all_regressions.push(format!("{name}, {short}: {problem}"));
            }
        }
    }
    let verdict = if all_regressions.is_empty() {
        "\nIn no cell of this run was the guard worse than no guard.\n".to_owned()
    } else {
        format!(
            "\n**Worse than without the guard:** {}.\n",
            all_regressions.join("; ")
        )
    };
    page.push_str(&verdict);
    (page, all_regressions)
}

fn row(host: &str, variant: &str, measurement: &Measurement) -> String {
    let start = match measurement.connected {
        true => format!("{:.1} s", measurement.connect_s),
        false => format!(
            "fails after {:.1} s: {}",
            measurement.connect_s,
            excerpt(&measurement.connect_error)
        ),
    };
    if !measurement.connected {
        let left = measurement.left;
        return format!(
            "| {host} | {variant} | {start} | | | | {:.1} s | {left} |\n",
            measurement.close_s
        );
    }
    let call = match (measurement.first_call_s, measurement.first_call_well) {
        (None, _) => String::new(),
        (Some(after), true) => format!("answered after {after:.1} s"),
        (Some(after), false) => format!(
            "fails after {after:.1} s: {}",
            excerpt(&measurement.first_call)
        ),
    };
    let repeats = measurement
        .ran
        .filter(|ran| *ran > 1)
        .map(|ran| format!(", ran {ran} times"));
    let next = match measurement.next_good_s {
        Some(after) => format!("{after:.1} s"),
        None if measurement.failed > 0 => "never".to_owned(),
        // No call was tried.
        None => String::new(),
    };
    let failed = match measurement.calls {
        Some(calls) => format!("{} of {calls}", measurement.failed),
        None => measurement.failed.to_string(),
    };
    format!(
        "| {host} | {variant} | {start} | {call}{} | {next} | {failed} | {:.1} s | {} |\n",
        repeats.unwrap_or_default(),
        measurement.close_s,
        measurement.left
    )
}

/// The start of an error text for a cell.
fn excerpt(text: &str) -> String {
    let text: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    if text.is_empty() {
        return "(no text)".to_owned();
    }
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("\"{short}\"")
}

const INTRODUCTION: &str = "\
# Hosts, with and without the guard

Written by `cargo xtask hosts comparison`. Three agent platforms and a plain SDK client, each with its default settings, call a server of the Python SDK directly and through
`everlink guard` with default flags. The server's tools are synchronous functions, as most are: while one runs, the server answers nothing else.

- *start*: until the tools are listed and one call was answered.
- *the call in question*: the one during which something happens, counted from that moment.
- *next good call*: the host calls once a second until a call goes well; counted from the same moment. \"never\": not within 60 s after a kill, 150 s otherwise.
- *failed calls*: the call in question included. *end*: how long the host takes to close. *processes left*: 3 s later, with all that the server started.

A cell counts as worse with the guard if it has more failed calls (one that ran twice counts as failed), leaves more processes, does not connect, or takes more than a quarter and
two seconds longer at any of these points. A pair in which the guard looks worse is measured again, alone, up to two times; the last measurement counts.
";

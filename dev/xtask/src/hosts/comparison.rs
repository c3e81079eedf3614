//! The comparison of hosts with and without the guard: runs every cell, judges the pairs, and writes `docs/HOSTS.md`.
//! How a cell is measured stands in `tests/hosts/comparison/trial.py`.

use core::fmt::Write;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde::Deserialize;

use super::{Stage, no_proc, python, script};
use crate::peers::lacks;
use crate::step::{Done, Outcome, root, target};

/// The hosts, by the scripts that drive them.
const HOSTS: [(&str, &str); 4] = [
    ("livekit", "livekit-agents 1.8.9"),
    ("hermes", "hermes-agent 0.19.0"),
    ("nat", "nvidia-nat-mcp 1.9.0"),
    ("plain", "Python SDK 1.30.0"),
];

/// What happens to the server, in the words of the script.
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

/// How many cells run at the same time. Most of them wait.
const WORKERS: usize = 5;

/// By how much the guard may be slower before a cell counts as worse: both run on the same machine at different moments, and a server starts in a second.
const ALLOWED_FACTOR: f64 = 1.25;
const ALLOWED_SECONDS: f64 = 2.0;

/// How often a pair is measured again in which the guard looks worse: on a shared machine everything stands still for seconds at times.
const REPEATS: usize = 2;

/// A host in a scenario, with the guard or without it.
type Which = (usize, usize, bool);

/// What was measured last.
type Cells = BTreeMap<Which, Found>;

/// What the script measured. Times are in seconds; what is missing never happened.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Found {
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

/// Measures all cells, or those of the scenarios that are asked for, and writes the page if it has all of them.
pub(super) fn run(stage: &Stage) -> Outcome {
    let only = stage.scenario.as_deref();
    if let Some(skipped) = no_proc().or_else(|| lacks(&["python3"])) {
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
    let measure_all = |wanted: VecDeque<Which>, workers| {
        let measure = |(host, scenario, is_guarded): Which| {
            let command = command(stage, &server, SCENARIOS[scenario], is_guarded);
            measure(&pythons[host], HOSTS[host].0, SCENARIOS[scenario], &command)
        };
        measure_all(wanted, workers, measure)
    };
    let mut cells = measure_all(wanted, WORKERS)?;
    for _ in 0..REPEATS {
        let doubtful: VecDeque<Which> = doubtful(&cells);
        eprintln!("measured again, alone: {} cells", doubtful.len());
        cells.extend(measure_all(doubtful, 1)?);
    }
    let (page, worse) = render(&cells);
    if only.is_none() {
        let path = root().join("docs/HOSTS.md");
        fs::write(&path, &page).map_err(|error| format!("{}: {error}", path.display()))?;
    } else {
        println!("{page}");
    }
    if worse.is_empty() {
        Ok(Done::Passed)
    } else {
        Err(format!(
            "the guard is worse than no guard: {}",
            worse.join("; ")
        ))
    }
}

/// Measures these cells, so many at the same time.
fn measure_all(
    wanted: VecDeque<Which>,
    workers: usize,
    measure: impl Fn(Which) -> Result<Found, String> + Sync,
) -> Result<Cells, String> {
    let total = wanted.len();
    let (queue, cells) = (Mutex::new(wanted), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").pop_front();
                    let Some(which @ (host, scenario, is_guarded)) = next else {
                        return;
                    };
                    let found = measure(which);
                    let mut cells = cells.lock().expect("no worker panics");
                    let way = if is_guarded { "guarded" } else { "direct" };
                    eprintln!(
                        "{}/{total} {}, {}, {way}: {found:?}",
                        cells.len() + 1,
                        SCENARIOS[scenario],
                        HOSTS[host].0
                    );
                    cells.push(found.map(|found| (which, found)));
                }
            });
        }
    });
    let cells = cells.into_inner().expect("no worker panics");
    cells.into_iter().collect()
}

/// Both cells of each pair in which the guard looks worse.
fn doubtful(cells: &Cells) -> VecDeque<Which> {
    let guarded = cells.iter().filter(|((.., is_guarded), _)| *is_guarded);
    guarded
        .filter_map(|((host, scenario, _), guarded)| {
            let direct = (*host, *scenario, false);
            let is_worse = !worse(cells.get(&direct)?, guarded).is_empty();
            is_worse.then_some([direct, (*host, *scenario, true)])
        })
        .flatten()
        .collect()
}

/// The command that the host is given for its server.
fn command(stage: &Stage, server: &Path, scenario: &str, is_guarded: bool) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command: Vec<String> = Vec::new();
    if is_guarded {
        command.extend([text(&stage.program), "guard".into(), "--".into()]);
    }
    if scenario == MISTYPED {
        command.push("no-such-server".into());
        return command;
    }
    if scenario == CLOSED {
        // As package runners do: a shell stays between the host and the server.
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
fn measure(python: &Path, host: &str, scenario: &str, command: &[String]) -> Result<Found, String> {
    // A home of its own: neither the host nor the guard remembers an earlier run.
    let name: String = scenario
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let way = if command.iter().any(|word| word == "guard") {
        "guarded"
    } else {
        "direct"
    };
    let home = target()
        .join("comparison")
        .join(format!("{host}-{name}-{way}"));
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

/// In what the guarded cell is worse than the direct one.
fn worse(direct: &Found, guarded: &Found) -> Vec<&'static str> {
    let slower = |direct: f64, guarded: f64| guarded > direct * ALLOWED_FACTOR + ALLOWED_SECONDS;
    // A call that ran twice is as wrong as one that failed.
    let wrong = |found: &Found| found.failed + found.ran.map_or(0, |ran| ran.saturating_sub(1));
    let later = match (direct.next_good_s, guarded.next_good_s) {
        (Some(direct), Some(guarded)) => slower(direct, guarded),
        (Some(_), None) => true,
        (None, _) => false,
    };
    let first_error = match (direct.first_call_s, guarded.first_call_s) {
        (Some(direct_s), Some(guarded_s)) => {
            !guarded.first_call_well && slower(direct_s, guarded_s)
        }
        _ => false,
    };
    let facts = [
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
            direct.connected && wrong(guarded) > wrong(direct),
            "more wrong calls",
        ),
        (direct.connected && first_error, "later first error"),
        (direct.connected && later, "later next good call"),
        (slower(direct.close_s, guarded.close_s), "closes later"),
        (guarded.left > direct.left, "leaves more processes"),
    ];
    facts
        .into_iter()
        .filter_map(|(is_so, what)| is_so.then_some(what))
        .collect()
}

fn render(cells: &Cells) -> (String, Vec<String>) {
    let mut page = INTRODUCTION.to_owned();
    let mut all_worse = Vec::new();
    for (scenario, name) in SCENARIOS.iter().enumerate() {
        let of = |host: usize, is_guarded: bool| cells.get(&(host, scenario, is_guarded));
        if of(0, true).is_none() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {name}\n\n| host | | start | the call in question | next good call | failed calls | end | processes left |\n|---|---|---|---|---|---|---|---|\n"
        );
        for (host, (short, long)) in HOSTS.iter().enumerate() {
            let (Some(direct), Some(guarded)) = (of(host, false), of(host, true)) else {
                continue;
            };
            page.push_str(&row(long, "direct", direct));
            page.push_str(&row("", "guard", guarded));
            for what in worse(direct, guarded) {
                all_worse.push(format!("{name}, {short}: {what}"));
            }
        }
    }
    let verdict = if all_worse.is_empty() {
        "\nIn no cell of this run was the guard worse than no guard.\n".to_owned()
    } else {
        format!(
            "\n**Worse than without the guard:** {}.\n",
            all_worse.join("; ")
        )
    };
    page.push_str(&verdict);
    (page, all_worse)
}

fn row(host: &str, way: &str, found: &Found) -> String {
    let start = match found.connected {
        true => format!("{:.1} s", found.connect_s),
        false => format!(
            "fails after {:.1} s: {}",
            found.connect_s,
            brief(&found.connect_error)
        ),
    };
    if !found.connected {
        let left = found.left;
        return format!(
            "| {host} | {way} | {start} | | | | {:.1} s | {left} |\n",
            found.close_s
        );
    }
    let call = match (found.first_call_s, found.first_call_well) {
        (None, _) => String::new(),
        (Some(after), true) => format!("answered after {after:.1} s"),
        (Some(after), false) => format!("fails after {after:.1} s: {}", brief(&found.first_call)),
    };
    let twice = found
        .ran
        .filter(|ran| *ran > 1)
        .map(|ran| format!(", ran {ran} times"));
    let next = match found.next_good_s {
        Some(after) => format!("{after:.1} s"),
        None if found.failed > 0 => "never".to_owned(),
        // None was tried.
        None => String::new(),
    };
    let failed = match found.calls {
        Some(calls) => format!("{} of {calls}", found.failed),
        None => found.failed.to_string(),
    };
    format!(
        "| {host} | {way} | {start} | {call}{} | {next} | {failed} | {:.1} s | {} |\n",
        twice.unwrap_or_default(),
        found.close_s,
        found.left
    )
}

/// The beginning of an error text, fit for a cell.
fn brief(text: &str) -> String {
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

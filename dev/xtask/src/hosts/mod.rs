//! `cargo xtask hosts`: runs the guard between published hosts and servers. Must not depend on what the scripts check.

mod comparison;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::install::{self, node_modules, run_command, skip_without};
use crate::step::{Done, Outcome, cargo, root, target};

/// The packages for hosts and servers on Node.
const PACKAGES: &[&str] = &[
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// Runs a trial.
type Run = fn(&Setup) -> Outcome;

/// The trials with a fixed host and server.
const FIXED_TRIALS: &[(&str, Run)] = &[
    ("everything", everything_under_load),
    ("python-1", |setup| python_under_load(setup, "v1")),
    ("python-2", |setup| python_under_load(setup, "v2")),
    ("comparison", comparison::run),
    ("drop-in-hermes", |setup| {
        run_script(setup, "hermes", &["--drop-in"])
    }),
    ("drop-in-livekit", |setup| {
        run_script(setup, "livekit", &["--drop-in"])
    }),
    ("drop-in-nat", |setup| {
        run_script(setup, "nat", &["--drop-in"])
    }),
    ("old-host", |setup| {
        run_across_eras(setup, OLD, "old_host.py", MODERN, "modern_server.py")
    }),
    ("modern-host", |setup| {
        run_across_eras(setup, MODERN, "modern_host.py", OLD, "old_server.py")
    }),
];

/// The environment of an SDK that speaks only 2024-11-05.
const OLD: &str = "eras/old";
/// The environment of an SDK that speaks 2026-07-28.
const MODERN: &str = "load/v2";

/// A script that puts the program between a host and a server.
struct Trial {
    name: String,
    run: Box<dyn Fn(&Setup) -> Outcome>,
}

/// The state that all trials share.
struct Setup {
    program: PathBuf,
    /// For how long servers are killed under load.
    seconds: String,
    /// The comparison measures only scenarios whose names contain this text.
    scenario: Option<String>,
}

/// Runs the trials with these names, or all, and prints how each ended.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let Options {
        names,
        seconds,
        scenario,
    } = parse_arguments(arguments)?;
    let trials = trials()?;
    if let Some(name) = names
        .iter()
        .find(|name| !trials.iter().any(|trial| trial.name == **name))
    {
        let known: Vec<&str> = trials.iter().map(|trial| trial.name.as_str()).collect();
        return Err(format!(
            "there is no `{name}`; there are {}",
            known.join(", ")
        ));
    }
    cargo("build --release --package everlink-cli")?;
    let setup = Setup {
        program: target().join("release/everlink"),
        seconds,
        scenario,
    };
    let mut table = Vec::new();
    let mut failed = 0;
    for Trial { name, run } in &trials {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        eprintln!("\n{name}");
        let start = Instant::now();
        let outcome = match run(&setup) {
            Ok(Done::Passed) => "passed".to_owned(),
            Ok(Done::Skipped(reason)) => format!("skipped: {reason}"),
            Err(reason) => {
                failed += 1;
                format!("FAILED: {reason}")
            }
        };
        table.push(format!(
            "{name:<14} {:>4} s  {outcome}",
            start.elapsed().as_secs()
        ));
    }
    eprintln!("\n{}", table.join("\n"));
    if failed > 0 {
        return Err(format!("{failed} of {} failed", table.len()));
    }
    Ok(())
}

/// The parsed arguments.
struct Options {
    names: Vec<String>,
    seconds: String,
    scenario: Option<String>,
}

fn parse_arguments(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        names: Vec::new(),
        seconds: "60".to_owned(),
        scenario: None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = arguments.next().filter(|text| text.parse::<u32>().is_ok());
                let number = number.ok_or("--seconds must be followed by a number")?;
                options.seconds.clone_from(number);
            }
            "--scenario" => {
                let name = arguments.next();
                let name = name.ok_or("--scenario must be followed by a part of its name")?;
                options.scenario = Some(name.clone());
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option `{option}`"));
            }
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}

/// The fixed trials, and one for each script beside its requirements.
fn trials() -> Result<Vec<Trial>, String> {
    let fixed = FIXED_TRIALS.iter().map(|(name, run)| Trial {
        name: (*name).to_owned(),
        run: Box::new(run),
    });
    let entries =
        fs::read_dir(script("")).map_err(|error| format!("tests/hosts cannot be read: {error}"))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".requirements.txt").map(str::to_owned))
        .collect();
    names.sort();
    let found = names.into_iter().map(|name| Trial {
        name: name.clone(),
        run: Box::new(move |setup| run_script(setup, &name, &[])),
    });
    Ok(fixed.chain(found).collect())
}

/// Runs a script that needs only its own environment and the program.
fn run_script(setup: &Setup, name: &str, options: &[&str]) -> Outcome {
    if let Some(skipped) = skip_without(&["python3"]) {
        return skipped;
    }
    let mut command = Command::new(python(name)?);
    command
        .arg(script(&format!("{name}.py")))
        .arg(&setup.program)
        .args(options);
    run_command(&mut command)
}

fn everything_under_load(setup: &Setup) -> Outcome {
    if let Some(skipped) = skip_without_proc().or_else(|| skip_without(&["python3", "node", "npm"]))
    {
        return skipped;
    }
    let modules = node_modules("hosts", PACKAGES)?;
    let mut command = under_load(Path::new("python3"), setup);
    command
        .args(["--client", "node"])
        .arg(script("load/client.mjs"))
        .arg(&modules);
    let server = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    command
        .args(["--server", "node"])
        .arg(modules.join(server))
        .arg("stdio");
    run_command(&mut command)
}

/// Runs a client and a server of the same version.
fn python_under_load(setup: &Setup, version: &str) -> Outcome {
    if let Some(skipped) = skip_without_proc().or_else(|| skip_without(&["python3"])) {
        return skipped;
    }
    let python = python(&format!("load/{version}"))?;
    let mut command = under_load(&python, setup);
    command
        .arg("--client")
        .arg(&python)
        .arg(script(&format!("load/client_{version}.py")));
    command
        .arg("--server")
        .arg(&python)
        .arg(script(&format!("load/server_{version}.py")))
        .arg("{diary}");
    run_command(&mut command)
}

fn under_load(python: &Path, setup: &Setup) -> Command {
    let mut command = Command::new(python);
    command
        .arg(script("load/load.py"))
        .arg(&setup.program)
        .args(["--seconds", &setup.seconds]);
    command
}

fn run_across_eras(
    setup: &Setup,
    env: &str,
    host: &str,
    server_env: &str,
    server: &str,
) -> Outcome {
    if let Some(skipped) = skip_without(&["python3"]) {
        return skipped;
    }
    let mut command = Command::new(python(env)?);
    command
        .arg(script(&format!("eras/{host}")))
        .arg(&setup.program);
    command
        .arg(python(server_env)?)
        .arg(script(&format!("eras/{server}")));
    run_command(&mut command)
}

/// Skips a trial without `/proc`, where it finds the processes to kill.
fn skip_without_proc() -> Option<Outcome> {
    let is_there = Path::new("/proc/self/exe").exists();
    (!is_there).then(|| Ok(Done::Skipped("there is no /proc".into())))
}

/// The interpreter for the scripts beside this requirements file.
fn python(requirements: &str) -> Result<PathBuf, String> {
    install::python(&script(&format!("{requirements}.requirements.txt")))
}

fn script(name: &str) -> PathBuf {
    root().join("tests/hosts").join(name)
}

#[cfg(test)]
mod tests {
    use super::parse_arguments;

    #[test]
    fn names_and_seconds_are_parsed_in_any_order() {
        let parse = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let options = parse_arguments(&arguments)?;
            Ok::<_, String>(format!("{} {}", options.names.join(" "), options.seconds))
        };
        assert_eq!(parse("a --seconds 5 b"), Ok("a b 5".to_owned()));
        assert_eq!(parse("a"), Ok("a 60".to_owned()));
        assert!(parse("--seconds").is_err());
        assert!(parse("--seconds soon").is_err());
        assert!(parse("--second 5").is_err());
    }
}

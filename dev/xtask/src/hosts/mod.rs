//! `cargo xtask hosts`: the program between real hosts and real servers, as they are published. Knows not what is checked there.

mod comparison;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::peers::{self, lacks, node_modules, succeed};
use crate::step::{Done, Outcome, cargo, root, target};

/// What is installed for hosts and servers on Node.
const PACKAGES: &[&str] = &[
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// A trial at work.
type Run = fn(&Stage) -> Outcome;

/// The trials of which both ends must be named.
const FIXED: &[(&str, Run)] = &[
    ("everything", everything_under_load),
    ("python-1", |stage| python_under_load(stage, "v1")),
    ("python-2", |stage| python_under_load(stage, "v2")),
    ("comparison", comparison::run),
    ("old-host", |stage| {
        across_eras(stage, OLD, "old_host.py", MODERN, "modern_server.py")
    }),
    ("modern-host", |stage| {
        across_eras(stage, MODERN, "modern_host.py", OLD, "old_server.py")
    }),
];

/// The environment of an SDK that only speaks 2024-11-05.
const OLD: &str = "eras/old";
/// The environment of one that speaks 2026-07-28.
const MODERN: &str = "load/v2";

/// A script that puts the program between a host and a server.
struct Trial {
    name: String,
    run: Box<dyn Fn(&Stage) -> Outcome>,
}

/// What all trials are run with.
struct Stage {
    program: PathBuf,
    /// How long servers are killed under load.
    seconds: String,
    /// The comparison measures the scenarios whose names contain this.
    scenario: Option<String>,
}

/// Runs the trials with these names, or all, and says at the end how each went.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let Asked {
        names,
        seconds,
        scenario,
    } = understand(arguments)?;
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
    let stage = Stage {
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
        let outcome = match run(&stage) {
            Ok(Done::Passed) => "passed".to_owned(),
            Ok(Done::Skipped(why)) => format!("skipped: {why}"),
            Err(why) => {
                failed += 1;
                format!("FAILED: {why}")
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

/// What the command line asks for.
struct Asked {
    names: Vec<String>,
    seconds: String,
    scenario: Option<String>,
}

fn understand(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
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
                asked.seconds.clone_from(number);
            }
            "--scenario" => {
                let name = arguments.next();
                let name = name.ok_or("--scenario must be followed by a part of its name")?;
                asked.scenario = Some(name.clone());
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option `{option}`"));
            }
            name => asked.names.push(name.to_owned()),
        }
    }
    Ok(asked)
}

/// Those above, and one for each script beside its requirements.
fn trials() -> Result<Vec<Trial>, String> {
    let fixed = FIXED.iter().map(|(name, run)| Trial {
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
        run: Box::new(move |stage| by_itself(stage, &name)),
    });
    Ok(fixed.chain(found).collect())
}

/// A script that needs only its own environment and the program.
fn by_itself(stage: &Stage, name: &str) -> Outcome {
    if let Some(skipped) = lacks(&["python3"]) {
        return skipped;
    }
    let mut command = Command::new(python(name)?);
    command
        .arg(script(&format!("{name}.py")))
        .arg(&stage.program);
    succeed(&mut command)
}

fn everything_under_load(stage: &Stage) -> Outcome {
    if let Some(skipped) = no_proc().or_else(|| lacks(&["python3", "node", "npm"])) {
        return skipped;
    }
    let modules = node_modules("hosts", PACKAGES)?;
    let mut command = under_load(Path::new("python3"), stage);
    command
        .args(["--client", "node"])
        .arg(script("load/client.mjs"))
        .arg(&modules);
    let server = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    command
        .args(["--server", "node"])
        .arg(modules.join(server))
        .arg("stdio");
    succeed(&mut command)
}

/// A client and a server of the same version.
fn python_under_load(stage: &Stage, version: &str) -> Outcome {
    if let Some(skipped) = no_proc().or_else(|| lacks(&["python3"])) {
        return skipped;
    }
    let python = python(&format!("load/{version}"))?;
    let mut command = under_load(&python, stage);
    command
        .arg("--client")
        .arg(&python)
        .arg(script(&format!("load/client_{version}.py")));
    command
        .arg("--server")
        .arg(&python)
        .arg(script(&format!("load/server_{version}.py")))
        .arg("{diary}");
    succeed(&mut command)
}

fn under_load(python: &Path, stage: &Stage) -> Command {
    let mut command = Command::new(python);
    command
        .arg(script("load/load.py"))
        .arg(&stage.program)
        .args(["--seconds", &stage.seconds]);
    command
}

fn across_eras(stage: &Stage, env: &str, host: &str, server_env: &str, server: &str) -> Outcome {
    if let Some(skipped) = lacks(&["python3"]) {
        return skipped;
    }
    let mut command = Command::new(python(env)?);
    command
        .arg(script(&format!("eras/{host}")))
        .arg(&stage.program);
    command
        .arg(python(server_env)?)
        .arg(script(&format!("eras/{server}")));
    succeed(&mut command)
}

/// There the processes to kill are found.
fn no_proc() -> Option<Outcome> {
    let is_there = Path::new("/proc/self/exe").exists();
    (!is_there).then(|| Ok(Done::Skipped("there is no /proc".into())))
}

/// The interpreter for what stands beside this file of requirements.
fn python(requirements: &str) -> Result<PathBuf, String> {
    peers::python(&script(&format!("{requirements}.requirements.txt")))
}

fn script(name: &str) -> PathBuf {
    root().join("tests/hosts").join(name)
}

#[cfg(test)]
mod tests {
    use super::understand;

    #[test]
    fn names_and_seconds_come_in_any_order() {
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let asked = understand(&words)?;
            Ok::<_, String>(format!("{} {}", asked.names.join(" "), asked.seconds))
        };
        assert_eq!(of("a --seconds 5 b"), Ok("a b 5".to_owned()));
        assert_eq!(of("a"), Ok("a 60".to_owned()));
        assert!(of("--seconds").is_err());
        assert!(of("--seconds soon").is_err());
        assert!(of("--second 5").is_err());
    }
}

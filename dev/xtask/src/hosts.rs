//! `cargo xtask hosts`: the program between real hosts and real servers, as they are published. Knows not what is checked there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

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

const NO_PYTHON: Done = Done::Skipped("python3 is not installed");
const NO_PROC: Done = Done::Skipped("there is no /proc in which servers to kill are found");

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
}

/// Runs the trials with these names, or all, and says at the end how each went.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (names, seconds) = understand(arguments)?;
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

/// The names, and the seconds if they are said.
fn understand(arguments: &[String]) -> Result<(Vec<String>, String), String> {
    let (mut names, mut seconds) = (Vec::new(), "60".to_owned());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = arguments.next().filter(|text| text.parse::<u32>().is_ok());
                seconds.clone_from(number.ok_or("--seconds must be followed by a number")?);
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option `{option}`"));
            }
            name => names.push(name.to_owned()),
        }
    }
    Ok((names, seconds))
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
    if !has("python3") {
        return Ok(NO_PYTHON);
    }
    let mut command = Command::new(python(name)?);
    command
        .arg(script(&format!("{name}.py")))
        .arg(&stage.program);
    succeed(&mut command)
}

fn everything_under_load(stage: &Stage) -> Outcome {
    if !Path::new("/proc/self/exe").exists() {
        return Ok(NO_PROC);
    }
    if !has("python3") {
        return Ok(NO_PYTHON);
    }
    if !has("node") || !has("npm") {
        return Ok(Done::Skipped("node and npm are not installed"));
    }
    let modules = packages()?;
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
    if !Path::new("/proc/self/exe").exists() {
        return Ok(NO_PROC);
    }
    if !has("python3") {
        return Ok(NO_PYTHON);
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
    if !has("python3") {
        return Ok(NO_PYTHON);
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

/// The interpreter of the environment that these requirements describe.
fn python(requirements: &str) -> Result<PathBuf, String> {
    let file = script(&format!("{requirements}.requirements.txt"));
    let wanted = fs::read_to_string(&file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let directory = target().join("hosts").join(requirements.replace('/', "-"));
    let python = directory.join("bin/python");
    installed(&directory, &wanted, || {
        succeed(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&directory),
        )?;
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ];
        succeed(Command::new(&python).args(pip).arg(&file))
    })?;
    Ok(python)
}

/// The directory in which the packages for Node are.
fn packages() -> Result<PathBuf, String> {
    let directory = target().join("hosts/npm");
    installed(&directory, &PACKAGES.join("\n"), || {
        let npm = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        succeed(Command::new("npm").args(npm).arg(&directory).args(PACKAGES))
    })?;
    Ok(directory)
}

/// Installs what is wanted in a directory, unless a note there says that it was done already.
fn installed(
    directory: &Path,
    wanted: &str,
    install: impl FnOnce() -> Outcome,
) -> Result<(), String> {
    let note = directory.join("installed");
    if fs::read_to_string(&note).is_ok_and(|is| is == wanted) {
        return Ok(());
    }
    eprintln!(
        "installing {}",
        wanted.split_whitespace().collect::<Vec<&str>>().join(" ")
    );
    let failed = |error| format!("{} cannot be written: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    install()?;
    fs::write(&note, wanted).map_err(failed)
}

fn script(name: &str) -> PathBuf {
    root().join("tests/hosts").join(name)
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn succeed(command: &mut Command) -> Outcome {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(Done::Passed),
        Ok(status) => Err(format!("ended with {status}")),
        Err(error) => Err(format!("`{name}` could not start: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::understand;

    #[test]
    fn names_and_seconds_come_in_any_order() {
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            understand(&words).map(|(names, seconds)| format!("{} {seconds}", names.join(" ")))
        };
        assert_eq!(of("a --seconds 5 b"), Ok("a b 5".to_owned()));
        assert_eq!(of("a"), Ok("a 60".to_owned()));
        assert!(of("--seconds").is_err());
        assert!(of("--seconds soon").is_err());
        assert!(of("--second 5").is_err());
    }
}

//! `cargo xtask hosts`: runs the guard between published hosts and servers. Must not depend on what the scripts check.

mod comparison;

use std::path::{Path, PathBuf};

use anyhow::Result;
use pico_args::Arguments;
use xshell::{Cmd, Shell, cmd};

use crate::install::{self, need_programs, node_modules};
use crate::step::{self, cargo, root, run_named, shell, skip, target, words};

/// The packages for hosts and servers on Node.
const PACKAGES: &[&str] = &[
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// A script that puts the program between a host and a server.
type Trial = fn(&Setup, &str) -> Result<()>;

/// The trials with a fixed host and server. The others have a script beside their requirements.
const FIXED_TRIALS: &[(&str, Trial)] = &[
    ("everything", everything_under_load),
    ("python-1", |setup, _| python_under_load(setup, "v1")),
    ("python-2", |setup, _| python_under_load(setup, "v2")),
    ("comparison", comparison::run),
    ("drop-in-hermes", drop_in),
    ("drop-in-livekit", drop_in),
    ("drop-in-nat", drop_in),
    ("old-host", |setup, _| {
        run_across_eras(setup, OLD, "old_host.py", MODERN, "modern_server.py")
    }),
    ("modern-host", |setup, _| {
        run_across_eras(setup, MODERN, "modern_host.py", OLD, "old_server.py")
    }),
];

/// The environment of an SDK that speaks only 2024-11-05.
const OLD: &str = "eras/old";
/// The environment of an SDK that speaks 2026-07-28.
const MODERN: &str = "load/v2";

/// The state that all trials share.
struct Setup {
    program: PathBuf,
    /// For how long servers are killed under load.
    seconds: String,
    /// The comparison measures only scenarios whose names contain this text.
    scenario: Option<String>,
}

/// Runs the trials with these names, or all, and prints how each ended.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: Option<u32> = arguments.opt_value_from_str("--seconds")?;
    let setup = Setup {
        program: target().join("release/everlink"),
        seconds: seconds.unwrap_or(60).to_string(),
        scenario: arguments.opt_value_from_str("--scenario")?,
    };
    let names = words(arguments)?;
    cargo("build --release --package everlink-cli")?;
    run_named(&trials()?, &names, |(name, trial)| trial(&setup, name))
}

/// The fixed trials, and one for each script beside its requirements.
fn trials() -> Result<Vec<(String, (String, Trial))>> {
    let fixed = FIXED_TRIALS.iter();
    let mut trials: Vec<(String, Trial)> = fixed
        .map(|(name, trial)| ((*name).to_owned(), *trial))
        .collect();
    for file in step::files(script(""), ".requirements.txt")? {
        let file = file
            .strip_prefix("tests/hosts")
            .unwrap_or(&file)
            .to_string_lossy();
        let name = file.trim_end_matches(".requirements.txt").to_owned();
        if !name.contains('/') {
            trials.push((name, |setup, name| run_script(setup, name, "")));
        }
    }
    let named = trials.into_iter();
    Ok(named
        .map(|(name, trial)| (name.clone(), (name, trial)))
        .collect())
}

/// Runs a script that needs only its own environment and the program.
fn run_script(setup: &Setup, name: &str, option: &str) -> Result<()> {
    need_programs(&["python3"])?;
    let (python, script, program) = (python(name)?, script(&format!("{name}.py")), &setup.program);
    let (shell, option) = (shell()?, option.split_whitespace());
    Ok(cmd!(shell, "{python} {script} {program} {option...}").run()?)
}

fn drop_in(setup: &Setup, name: &str) -> Result<()> {
    run_script(setup, name.trim_start_matches("drop-in-"), "--drop-in")
}

fn everything_under_load(setup: &Setup, _: &str) -> Result<()> {
    need_proc()?;
    need_programs(&["python3", "node", "npm"])?;
    let modules = node_modules("hosts", PACKAGES)?;
    let server = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let (client, server) = (script("load/client.mjs"), modules.join(server));
    let shell = shell()?;
    let load = load(&shell, "python3".as_ref(), setup);
    let load = load.arg("--client").arg("node").args([client, modules]);
    Ok(load
        .arg("--server")
        .arg("node")
        .arg(server)
        .arg("stdio")
        .run()?)
}

/// The command that guards a server under load. Its client and its server are still to be added.
fn load<'s>(shell: &'s Shell, python: &Path, setup: &Setup) -> Cmd<'s> {
    let (load, program, seconds) = (script("load/load.py"), &setup.program, &setup.seconds);
    cmd!(shell, "{python} {load} {program} --seconds {seconds}")
}

/// Runs a client and a server of the same version.
fn python_under_load(setup: &Setup, version: &str) -> Result<()> {
    need_proc()?;
    need_programs(&["python3"])?;
    let python = python(&format!("load/{version}"))?;
    let [client, server] =
        ["client", "server"].map(|end| script(&format!("load/{end}_{version}.py")));
    let shell = shell()?;
    let load = load(&shell, &python, setup);
    let load = load.arg("--client").args([&python, &client]);
    let load = load.arg("--server").args([&python, &server]);
    Ok(load.arg("{diary}").run()?)
}

fn run_across_eras(
    setup: &Setup,
    env: &str,
    host: &str,
    server_env: &str,
    server: &str,
) -> Result<()> {
    need_programs(&["python3"])?;
    let (host_python, server_python) = (python(env)?, python(server_env)?);
    let [host, server] = [host, server].map(|name| script(&format!("eras/{name}")));
    let (shell, program) = (shell()?, &setup.program);
    Ok(cmd!(
        shell,
        "{host_python} {host} {program} {server_python} {server}"
    )
    .run()?)
}

/// Skips a trial without `/proc`, where it finds the processes to kill.
fn need_proc() -> Result<()> {
    match PathBuf::from("/proc/self/exe").exists() {
        true => Ok(()),
        false => Err(skip("there is no /proc")),
    }
}

/// The interpreter for the scripts beside this requirements file.
fn python(requirements: &str) -> Result<PathBuf> {
    install::python(&script(&format!("{requirements}.requirements.txt")))
}

fn script(name: &str) -> PathBuf {
    root().join("tests/hosts").join(name)
}

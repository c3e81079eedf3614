//! `cargo xtask transparent`: runs the scenarios of `tests/transparency` directly and through the guard, and compares what each end sees.
//!
//! This module installs the libraries and builds the program. The scripts do the rest.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::install::{node_modules, python, run_command, skip_without};
use crate::interop;
use crate::step::{Done, Outcome, build_as_for_tests, cargo, cargo_with, root, target};

const NEEDED: &[&str] = &["node", "npm", "python3"];

/// A library: its name in the scripts, and how to install it.
type Library = (&'static str, Installation);

enum Installation {
    /// In a directory of this name, with these packages.
    Node(&'static str, &'static [&'static str]),
    /// With this requirements file, below `tests`.
    Python(&'static str),
    /// As a program of this crate in `dev`, which is not in the workspace.
    Rust(&'static str),
}

/// The libraries of the quick form. Other steps of `cargo xtask test` install the same.
const QUICK: &[Library] = &[
    ("python-1.30", Installation::Python("hosts/load/v1")),
    ("node-2.4", Installation::Node("interop", interop::PACKAGES)),
];

/// The other libraries.
const OTHERS: &[Library] = &[
    (
        "python-1.26",
        Installation::Python("transparency/python1_26"),
    ),
    ("python-2.3", Installation::Python("hosts/load/v2")),
    ("fastmcp-4.1", Installation::Python("transparency/fastmcp")),
    (
        "node-1.17",
        Installation::Node("transparency", &["@modelcontextprotocol/sdk@1.17.5"]),
    ),
    ("rmcp-3.8", Installation::Rust("rmcp-peer")),
];

/// The public Inspector, and a server for it.
const INSPECTOR: &str = "inspector";
const INSPECTOR_PACKAGES: &[&str] = &[
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// Runs every pair, or those whose names contain all of these words, and writes the page if it ran all. The commands of the Inspector run
/// first, or alone if `inspector` is the argument.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if skip_without(NEEDED).is_some() {
        return Err("this needs node, npm and python3".into());
    }
    cargo("build --release --package everlink-cli")?;
    if arguments.is_empty() || arguments == [INSPECTOR] {
        inspect()?;
    }
    if arguments == [INSPECTOR] {
        return Ok(());
    }
    let libraries = install("libraries.json", QUICK.iter().chain(OTHERS))?;
    let mut command = suite_command(&libraries, "release");
    for word in arguments {
        command.args(["--only", word]);
    }
    command
        .arg("--findings")
        .arg(directory().join("findings.md"));
    if arguments.is_empty() {
        command
            .arg("--page")
            .arg(root().join("docs/TRANSPARENCY.md"));
    }
    run_command(&mut command).map(drop)
}

/// Runs the quick pairs without the largest messages. Fails if a difference has no known reason.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = skip_without(NEEDED) {
        return skipped;
    }
    build_as_for_tests()?;
    let libraries = install("quick.json", QUICK)?;
    run_command(suite_command(&libraries, "debug").arg("--quick"))?;
    Ok(Done::Passed)
}

/// Runs the commands of the Inspector directly and through the guard. Fails if an output differs.
fn inspect() -> Result<(), String> {
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/transparency/inspector.py"))
        .arg("--program")
        .arg(target().join("release/everlink"))
        .arg("--modules")
        .arg(node_modules(INSPECTOR, INSPECTOR_PACKAGES)?);
    run_command(&mut command).map(drop)
}

/// Installs the libraries, and writes a file for the scripts: for each library, the words before a script and those after it.
fn install<'a>(
    file: &str,
    libraries: impl IntoIterator<Item = &'a Library>,
) -> Result<PathBuf, String> {
    let mut commands = Map::new();
    for (name, installation) in libraries {
        let arguments_around_script = match installation {
            Installation::Node(name, packages) => {
                json!([["node"], [node_modules(name, packages)?]])
            }
            Installation::Python(requirements) => {
                let file = root().join(format!("tests/{requirements}.requirements.txt"));
                json!([[python(&file)?], []])
            }
            Installation::Rust(name) => json!([[build_crate(name)?], []]),
        };
        commands.insert((*name).to_owned(), arguments_around_script);
    }
    let file = directory().join(file);
    let failed = |error| format!("{} cannot be written: {error}", file.display());
    fs::create_dir_all(directory()).map_err(failed)?;
    fs::write(&file, Value::Object(commands).to_string()).map_err(failed)?;
    Ok(file)
}

/// Builds the program of a crate in `dev`.
fn build_crate(name: &str) -> Result<PathBuf, String> {
    let directory = target().join("peers").join(name);
    cargo_with("build --release --locked", |command| {
        command
            .current_dir(root().join("dev").join(name))
            .env("CARGO_TARGET_DIR", &directory);
    })?;
    let program = directory.join("release").join(name);
    Ok(program.with_extension(env::consts::EXE_EXTENSION))
}

fn suite_command(libraries: &Path, profile: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/transparency/suite.py"))
        .arg("--program")
        .arg(target().join(profile).join("everlink"))
        .arg("--work")
        .arg(directory())
        .arg("--libraries")
        .arg(libraries);
    command
}

fn directory() -> PathBuf {
    target().join("transparency")
}

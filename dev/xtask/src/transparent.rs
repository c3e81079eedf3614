//! `cargo xtask transparent`: plays the scenarios of `tests/transparency` direct and through the guard, and compares what each end sees.
//!
//! This module installs the libraries and builds the program. The scripts there do the rest.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::interop;
use crate::peers::{lacks, node_modules, python, succeed};
use crate::step::{Done, Outcome, cargo, cargo_with, root, target};

const NEEDED: &[&str] = &["node", "npm", "python3"];

/// A library as the scripts know it: its name there, and how it is installed.
type Library = (&'static str, Installed);

enum Installed {
    /// In a directory of this name, with these packages.
    Node(&'static str, &'static [&'static str]),
    /// With this file of requirements, below `tests`.
    Python(&'static str),
    /// As a program of this crate in `dev`, which is no part of the workspace.
    Rust(&'static str),
}

/// The libraries of the quick form. Other steps of `cargo xtask test` install the same.
const QUICK: &[Library] = &[
    ("python-1.30", Installed::Python("hosts/load/v1")),
    ("node-2.4", Installed::Node("interop", interop::PACKAGES)),
];

/// The others.
const WHOLE: &[Library] = &[
    ("python-1.26", Installed::Python("transparency/python1_26")),
    ("python-2.3", Installed::Python("hosts/load/v2")),
    ("fastmcp-4.1", Installed::Python("transparency/fastmcp")),
    (
        "node-1.17",
        Installed::Node("transparency", &["@modelcontextprotocol/sdk@1.17.5"]),
    ),
    ("rmcp-3.8", Installed::Rust("rmcp-peer")),
];

/// The public Inspector, and a server for it to look at.
const INSPECTOR: &str = "inspector";
const INSPECTOR_PACKAGES: &[&str] = &[
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// Plays every pair, or those whose names contain all of these words, and writes the page if it played all. The commands of the Inspector come before
/// all, or alone if they are asked for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if lacks(NEEDED).is_some() {
        return Err("this needs node, npm and python3".into());
    }
    cargo("build --release --package everlink-cli")?;
    if arguments.is_empty() || arguments == [INSPECTOR] {
        inspect()?;
    }
    if arguments == [INSPECTOR] {
        return Ok(());
    }
    let libraries = install("libraries.json", QUICK.iter().chain(WHOLE))?;
    let mut command = suite(&libraries, "release");
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
    succeed(&mut command).map(drop)
}

/// Plays the quick pairs without the largest messages. Fails if a difference is found that has no reason.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = lacks(NEEDED) {
        return skipped;
    }
    cargo("build --package everlink-cli")?;
    let libraries = install("quick.json", QUICK)?;
    succeed(suite(&libraries, "debug").arg("--quick"))?;
    Ok(Done::Passed)
}

/// Runs the commands of the Inspector direct and through the guard. Fails if one prints something else.
fn inspect() -> Result<(), String> {
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/transparency/inspector.py"))
        .arg("--program")
        .arg(target().join("release/everlink"))
        .arg("--modules")
        .arg(node_modules(INSPECTOR, INSPECTOR_PACKAGES)?);
    succeed(&mut command).map(drop)
}

/// Installs the libraries, and writes down for the scripts how they are run: the words before a script and those after it.
fn install<'a>(
    file: &str,
    libraries: impl IntoIterator<Item = &'a Library>,
) -> Result<PathBuf, String> {
    let mut found = Map::new();
    for (name, installed) in libraries {
        let words = match installed {
            Installed::Node(name, packages) => json!([["node"], [node_modules(name, packages)?]]),
            Installed::Python(requirements) => {
                let file = root().join(format!("tests/{requirements}.requirements.txt"));
                json!([[python(&file)?], []])
            }
            Installed::Rust(name) => json!([[built(name)?], []]),
        };
        found.insert((*name).to_owned(), words);
    }
    let file = directory().join(file);
    let failed = |error| format!("{} cannot be written: {error}", file.display());
    fs::create_dir_all(directory()).map_err(failed)?;
    fs::write(&file, Value::Object(found).to_string()).map_err(failed)?;
    Ok(file)
}

/// The program of a crate in `dev`.
fn built(name: &str) -> Result<PathBuf, String> {
    let directory = target().join("peers").join(name);
    cargo_with("build --release --locked", |command| {
        command
            .current_dir(root().join("dev").join(name))
            .env("CARGO_TARGET_DIR", &directory);
    })?;
    let program = directory.join("release").join(name);
    Ok(program.with_extension(env::consts::EXE_EXTENSION))
}

fn suite(libraries: &Path, profile: &str) -> Command {
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

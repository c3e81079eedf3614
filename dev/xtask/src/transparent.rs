//! `cargo xtask transparent`: runs the scenarios of `tests/transparency` directly and through the guard, and compares what each end sees.
//!
//! This module installs the libraries and builds the program. The scripts do the rest.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;
use pico_args::Arguments;
use serde_json::{Map, Value, json};
use xshell::{Cmd, Shell, cmd};

use crate::install::{need_programs, node_modules, python};
use crate::interop;
use crate::step::{self, build_as_for_tests, cargo, cargo_in, root, shell, target, words};

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

use Installation::{Node, Python, Rust};

/// The libraries of the quick form. Other steps of `cargo xtask test` install the same.
const QUICK: &[Library] = &[
    ("python-1.30", Python("hosts/load/v1")),
    ("node-2.4", Node("interop", interop::PACKAGES)),
];

/// The other libraries.
const OTHERS: &[Library] = &[
    ("python-1.26", Python("transparency/python1_26")),
    ("python-2.3", Python("hosts/load/v2")),
    ("fastmcp-4.1", Python("transparency/fastmcp")),
    (
        "node-1.17",
        Node("transparency", &["@modelcontextprotocol/sdk@1.17.5"]),
    ),
    ("rmcp-3.8", Rust("rmcp-peer")),
];

/// The public Inspector, and a server for it.
const INSPECTOR: &str = "inspector";
const INSPECTOR_PACKAGES: &[&str] = &[
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// Runs every pair, or those whose names contain all of these words, and writes the page if it ran all. The commands of the Inspector run
/// first, or alone if `inspector` is the argument.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let words = words(arguments)?;
    need_programs(NEEDED)?;
    cargo("build --release --package everlink-cli")?;
    if words.is_empty() || words == [INSPECTOR] {
        inspect()?;
    }
    if words == [INSPECTOR] {
        return Ok(());
    }
    let libraries = install("libraries.json", QUICK.iter().chain(OTHERS))?;
    let shell = shell()?;
    let mut suite = suite(&shell, &libraries, "release");
    for word in &words {
        suite = suite.args(["--only", word]);
    }
    suite = suite.arg("--findings").arg(directory().join("findings.md"));
    if words.is_empty() {
        suite = suite.args(["--page", "docs/TRANSPARENCY.md"]);
    }
    Ok(suite.run()?)
}

/// Runs the quick pairs without the largest messages. Fails if a difference has no known reason.
pub(crate) fn check() -> Result<()> {
    need_programs(NEEDED)?;
    build_as_for_tests()?;
    let libraries = install("quick.json", QUICK)?;
    Ok(suite(&shell()?, &libraries, "debug").arg("--quick").run()?)
}

/// Runs the commands of the Inspector directly and through the guard. Fails if an output differs.
fn inspect() -> Result<()> {
    let (shell, program) = (shell()?, target().join("release/everlink"));
    let modules = node_modules(INSPECTOR, INSPECTOR_PACKAGES)?;
    let script = "tests/transparency/inspector.py";
    Ok(cmd!(
        shell,
        "python3 {script} --program {program} --modules {modules}"
    )
    .run()?)
}

/// Installs the libraries, and writes a file for the scripts: for each library, the words before a script and those after it.
fn install<'a>(file: &str, libraries: impl IntoIterator<Item = &'a Library>) -> Result<PathBuf> {
    let mut commands = Map::new();
    for (name, installation) in libraries {
        let arguments_around_script = match installation {
            Node(name, packages) => json!([["node"], [node_modules(name, packages)?]]),
            Python(requirements) => {
                let file = root().join(format!("tests/{requirements}.requirements.txt"));
                json!([[python(&file)?], []])
            }
            Rust(name) => json!([[build_crate(name)?], []]),
        };
        commands.insert((*name).to_owned(), arguments_around_script);
    }
    let file = directory().join(file);
    step::write(&file, Value::Object(commands).to_string())?;
    Ok(file)
}

/// Builds the program of a crate in `dev`.
fn build_crate(name: &str) -> Result<PathBuf> {
    let directory = target().join("peers").join(name);
    let shell = shell()?;
    shell.change_dir(root().join("dev").join(name));
    cargo_in(&shell, "build --release --locked")
        .env("CARGO_TARGET_DIR", &directory)
        .run()?;
    let program = directory.join("release").join(name);
    Ok(program.with_extension(env::consts::EXE_EXTENSION))
}

fn suite<'a>(shell: &'a Shell, libraries: &Path, profile: &str) -> Cmd<'a> {
    let (program, work) = (target().join(profile).join("everlink"), directory());
    let script = "tests/transparency/suite.py";
    cmd!(
        shell,
        "python3 {script} --program {program} --work {work} --libraries {libraries}"
    )
}

fn directory() -> PathBuf {
    target().join("transparency")
}

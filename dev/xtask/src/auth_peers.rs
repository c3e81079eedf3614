//! `cargo xtask auth-peers`: signs in with the program at authorization servers of other projects. Must not depend on what the scripts check.

use std::path::PathBuf;

use anyhow::Result;
use pico_args::Arguments;
use xshell::cmd;

use crate::install::{need_programs, node_modules, python, python_source};
use crate::step::{cargo, root, run_named, run_one, shell, target, words};

/// The scripts in `tests/auth-peers`.
const SCRIPTS: [&str; 5] = ["peers", "together", "killed", "search", "person"];

/// The authorization server on Node.
const PACKAGES: &[&str] = &["oidc-provider@9.13.3"];

/// The Python SDK, whose source has an example of an authorization server.
const SDK: &str = "mcp==2.3.0";

/// Runs the scripts with these names, or all, and prints how each ended.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let names = words(arguments)?;
    run_one(|| run_scripts(&names))
}

fn run_scripts(names: &[String]) -> Result<()> {
    need_programs(&["python3", "node", "npm"])?;
    let python = python(&script("requirements.txt"))?;
    let modules = node_modules("auth-peers", PACKAGES)?;
    let examples = python_source(&python, SDK)?.join("examples");
    cargo("build --package everlink-cli")?;
    let program = target().join("debug/everlink");
    let scripts = SCRIPTS.map(|name| (name.to_owned(), script(&format!("{name}.py"))));
    run_named(&scripts, names, |script| {
        let shell = shell()?;
        Ok(cmd!(shell, "{python} -B {script} {program} {modules} {examples}").run()?)
    })
}

fn script(name: &str) -> PathBuf {
    root().join("tests/auth-peers").join(name)
}

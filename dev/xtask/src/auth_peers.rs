//! `cargo xtask auth-peers`: signs in with the program at authorization servers of other projects. Must not depend on what the scripts check.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::install::{node_modules, python, python_source, run_command, skip_without};
use crate::step::{Done, cargo, root, target};

/// The scripts in `tests/auth-peers`.
const SCRIPTS: &[&str] = &["peers", "together", "killed", "search", "person"];

/// The authorization server on Node.
const PACKAGES: &[&str] = &["oidc-provider@9.13.3"];

/// The Python SDK, whose source has an example of an authorization server.
const SDK: &str = "mcp==2.3.0";

/// Runs the scripts with these names, or all, and prints how each ended.
pub(crate) fn run(names: &[String]) -> Result<(), String> {
    if let Some(name) = names.iter().find(|name| !SCRIPTS.contains(&name.as_str())) {
        let known = SCRIPTS.join(", ");
        return Err(format!("there is no `{name}`; there are {known}"));
    }
    if let Some(outcome) = skip_without(&["python3", "node", "npm"]) {
        if let Done::Skipped(reason) = outcome? {
            eprintln!("skipped: {reason}");
        }
        return Ok(());
    }
    let python = python(&script("requirements.txt"))?;
    let modules = node_modules("auth-peers", PACKAGES)?;
    let examples = python_source(&python, SDK)?.join("examples");
    cargo("build --package everlink-cli")?;
    let mut table = Vec::new();
    let mut failed = 0;
    for name in SCRIPTS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let start = Instant::now();
        let mut command = Command::new(&python);
        command
            .arg("-B")
            .arg(script(&format!("{name}.py")))
            .arg(target().join("debug/everlink"))
            .args([&modules, &examples]);
        let outcome = run_command(&mut command).map_or_else(
            |reason| {
                failed += 1;
                format!("FAILED: {reason}")
            },
            |_| "passed".to_owned(),
        );
        let seconds = start.elapsed().as_secs();
        table.push(format!("{name:<10} {seconds:>4} s  {outcome}"));
    }
    eprintln!("\n{}", table.join("\n"));
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {} failed", table.len())),
    }
}

fn script(name: &str) -> PathBuf {
    root().join("tests/auth-peers").join(name)
}

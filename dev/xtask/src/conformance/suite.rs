//! The public conformance suite: installs it, runs it and reads its results. Must not depend on the tested programs.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use serde_json::Value;
use xshell::cmd;

use crate::install::node_modules;
use crate::step::{self, root, shell};

/// The newest version at the time of writing.
const PACKAGE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";

/// The tested end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// The part of the suite to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The scenarios that a revision requires, and those listed beside them.
    Requirements,
    /// All scenarios of a revision.
    Suite,
}

impl Scope {
    /// The arguments of the suite; the revision follows.
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Scope::Requirements => &["--requirements"],
            Scope::Suite => &["--suite", "all", "--spec-version"],
        }
    }
}

pub(super) struct Suite {
    directory: PathBuf,
}

/// The result of one scenario.
pub(super) struct ScenarioResult {
    pub(super) scenario: String,
    /// The number of successful checks.
    pub(super) succeeded: usize,
    /// The messages of the other checks: failures, and warnings, which count as failures.
    pub(super) failed: Vec<String>,
}

impl ScenarioResult {
    /// A scenario without a successful check has not passed.
    pub(super) fn is_passed(&self) -> bool {
        self.failed.is_empty() && self.succeeded > 0
    }
}

impl Suite {
    pub(super) fn install() -> Result<Suite> {
        let directory = node_modules("conformance", &[PACKAGE])?;
        Ok(Suite { directory })
    }

    /// The scenarios that an implementation of this revision must pass.
    pub(super) fn required(&self, side: Side, revision: &str) -> Result<Vec<String>> {
        let file = self.package().join(format!("requirements/{revision}.yaml"));
        let text = step::read(&file)?;
        let head = format!("{}:", side.name());
        let lines = text.lines().skip_while(|line| *line != head).skip(1);
        let names = lines.map_while(|line| line.strip_prefix("  - "));
        let names: Vec<String> = names.map(str::to_owned).collect();
        let file = file.display();
        ensure!(!names.is_empty(), "{file} requires nothing of a {head}");
        Ok(names)
    }

    /// Runs the scenarios of a revision. `subject` holds the suite's arguments for the tested program.
    pub(super) fn run(
        &self,
        side: Side,
        scope: Scope,
        revision: &str,
        subject: &[&str],
    ) -> Result<Vec<ScenarioResult>> {
        let results = self.directory.join("results");
        let _ = fs::remove_dir_all(&results);
        // Functions that Node 20 lacks and the suite needs.
        let shim = root().join("dev/conformance/shim.mjs");
        let shim = format!("file://{}", shim.display());
        let (suite, end) = (self.package().join("dist/index.js"), side.name());
        let shell = shell()?;
        shell.change_dir(&self.directory);
        cmd!(shell, "node --import {shim} {suite} {end} {subject...}")
            .args(scope.arguments())
            .args([revision, "--timeout", "60000", "--output-dir"])
            .arg(&results)
            // The suite does not know empty scenarios and our expected failures.
            .ignore_status()
            .ignore_stdout()
            .ignore_stderr()
            .quiet()
            .run()?;
        self.results(side)
    }

    /// Reads the results: a directory for each scenario, named after it and the time. The names of some scenarios contain slashes.
    fn results(&self, side: Side) -> Result<Vec<ScenarioResult>> {
        let directory = self.directory.join("results");
        let directory = directory.strip_prefix(root()).unwrap_or(&directory);
        let prefix = match side {
            Side::Client => "",
            Side::Server => "server-",
        };
        let mut results = Vec::new();
        for file in step::files(directory, "checks.json")? {
            let checks: Vec<Value> = serde_json::from_str(&step::read(&file)?)
                .with_context(|| file.display().to_string())?;
            let name = file
                .parent()
                .and_then(|name| name.strip_prefix(directory).ok());
            let name = name.unwrap_or(&file).to_string_lossy();
            let name = name.strip_prefix(prefix).unwrap_or(&name);
            let with = |status| checks.iter().filter(move |check| check["status"] == status);
            let failed = with("FAILURE").chain(with("WARNING"));
            results.push(ScenarioResult {
                scenario: without_time(name).to_owned(),
                succeeded: with("SUCCESS").count(),
                failed: failed.map(failure_text).collect(),
            });
        }
        ensure!(
            !results.is_empty(),
            "the suite has judged nothing: it did not start, or what it judges did not"
        );
        results.sort_by(|one, other| one.scenario.cmp(&other.scenario));
        Ok(results)
    }

    fn package(&self) -> PathBuf {
        self.directory
            .join("node_modules/@modelcontextprotocol/conformance")
    }
}

/// Removes the time: `tools-list-2026-11-15T14-31-51-394Z` becomes `tools-list`.
fn without_time(name: &str) -> &str {
    const TIME: usize = "-2026-11-15T14-31-51-394Z".len();
    let end = name.len().saturating_sub(TIME);
    if name.ends_with('Z') && name.is_char_boundary(end) {
        &name[..end]
    } else {
        name
    }
}

fn failure_text(check: &Value) -> String {
    let id = check["id"].as_str().unwrap_or("?");
    let message = check["errorMessage"]
        .as_str()
        .unwrap_or("no reason is given");
    format!("{id}: {}", message.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::without_time;

    #[test]
    fn timestamp_is_removed_from_the_scenario_name() {
        assert_eq!(
            without_time("tools-list-2026-11-15T14-31-51-394Z"),
            "tools-list"
        );
        assert_eq!(without_time("tools-list"), "tools-list");
        assert_eq!(without_time("Z"), "");
    }
}

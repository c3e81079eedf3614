//! The public conformance suite: installs it, runs it and reads its results. Must not depend on the tested programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::install::node_modules;
use crate::step::{self, root};

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
    pub(super) fn install() -> Result<Suite, String> {
        let directory = node_modules("conformance", &[PACKAGE])?;
        Ok(Suite { directory })
    }

    /// The scenarios that an implementation of this revision must pass.
    pub(super) fn required(&self, side: Side, revision: &str) -> Result<Vec<String>, String> {
        let file = self.package().join(format!("requirements/{revision}.yaml"));
        let text = step::read(&file)?;
        let head = format!("{}:", side.name());
        let lines = text.lines().skip_while(|line| *line != head).skip(1);
        let names = lines.map_while(|line| line.strip_prefix("  - "));
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.is_empty() {
            return Err(format!("{} requires nothing of a {head}", file.display()));
        }
        Ok(names)
    }

    /// Runs the scenarios of a revision. `subject` holds the suite's arguments for the tested program.
    pub(super) fn run(
        &self,
        side: Side,
        scope: Scope,
        revision: &str,
        subject: &[&str],
    ) -> Result<Vec<ScenarioResult>, String> {
        let results = self.directory.join("results");
        let _ = fs::remove_dir_all(&results);
        let mut command = Command::new("node");
        command
            .arg("--import")
            .arg(shim())
            .arg(self.package().join("dist/index.js"))
            .arg(side.name())
            .args(subject)
            .args(scope.arguments())
            .args([revision, "--timeout", "60000"])
            .arg("--output-dir")
            .arg(&results)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ignores the exit status: the suite does not know empty scenarios and our expected failures.
        let status = command.status();
        status.map_err(|error| format!("node could not start: {error}"))?;
        read(&results, side)
    }

    fn package(&self) -> PathBuf {
        self.directory
            .join("node_modules/@modelcontextprotocol/conformance")
    }
}

/// The URL of a module with functions that Node 20 lacks and the suite needs.
fn shim() -> String {
    format!(
        "file://{}",
        root().join("dev/conformance/shim.mjs").display()
    )
}

/// Reads the results: a directory for each scenario, named after it and the time.
fn read(results: &Path, side: Side) -> Result<Vec<ScenarioResult>, String> {
    let mut all_results = Vec::new();
    let prefix = match side {
        Side::Client => "",
        Side::Server => "server-",
    };
    collect_checks(results, "", &mut |name, checks| {
        let name = name.strip_prefix(prefix).unwrap_or(name);
        all_results.push(ScenarioResult {
            scenario: without_time(name).to_owned(),
            succeeded: with_status(checks, "SUCCESS").count(),
            failed: with_status(checks, "FAILURE")
                .chain(with_status(checks, "WARNING"))
                .map(failure_text)
                .collect(),
        });
    })?;
    if all_results.is_empty() {
        return Err(
            "the suite has judged nothing: it did not start, or what it judges did not".into(),
        );
    }
    all_results.sort_by(|a: &ScenarioResult, b| a.scenario.cmp(&b.scenario));
    Ok(all_results)
}

/// Reads directories recursively, because some scenario names contain slashes.
fn collect_checks(
    directory: &Path,
    name: &str,
    on_checks: &mut impl FnMut(&str, &[Value]),
) -> Result<(), String> {
    let failed = |error| format!("{} cannot be read: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, file) = (entry.path(), entry.file_name());
        let file = file.to_string_lossy();
        if path.is_dir() {
            let name = format!("{name}{file}");
            collect_checks(&path, &format!("{name}/"), on_checks)?;
        } else if file == "checks.json" {
            let text = fs::read_to_string(&path).map_err(failed)?;
            let checks: Vec<Value> = serde_json::from_str(&text)
                .map_err(|error| format!("{} makes no sense: {error}", path.display()))?;
            on_checks(name.trim_end_matches('/'), &checks);
        }
    }
    Ok(())
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

fn with_status<'a>(checks: &'a [Value], status: &'static str) -> impl Iterator<Item = &'a Value> {
    checks.iter().filter(move |check| check["status"] == status)
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

//! The public conformance suite: how it is installed, called and read. Knows not whom it judges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::peers::node_modules;
use crate::step::root;

/// Its newest version when this was written.
const PACKAGE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";

/// One of the two things that it judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Leg {
    Client,
    Server,
}

impl Leg {
    pub(super) fn name(self) -> &'static str {
        match self {
            Leg::Client => "client",
            Leg::Server => "server",
        }
    }
}

/// How much of it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// What a revision requires, and what is listed beside that.
    Requirements,
    /// All that there is for a revision.
    Suite,
}

impl Scope {
    /// The revision follows.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Scope::Requirements => &["--requirements"],
            Scope::Suite => &["--suite", "all", "--spec-version"],
        }
    }
}

pub(super) struct Suite {
    directory: PathBuf,
}

/// What the suite says of one scenario.
pub(super) struct Judged {
    pub(super) scenario: String,
    /// How many checks succeeded.
    pub(super) succeeded: usize,
    /// What the others say: failures, and warnings, which count as such.
    pub(super) failed: Vec<String>,
}

impl Judged {
    /// A scenario in which nothing was checked is not passed.
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
    pub(super) fn required(&self, leg: Leg, revision: &str) -> Result<Vec<String>, String> {
        let file = self.package().join(format!("requirements/{revision}.yaml"));
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        let head = format!("{}:", leg.name());
        let lines = text.lines().skip_while(|line| *line != head).skip(1);
        let names = lines.map_while(|line| line.strip_prefix("  - "));
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.is_empty() {
            return Err(format!("{} requires nothing of a {head}", file.display()));
        }
        Ok(names)
    }

    /// Runs what has to do with a revision. `subject` says what is judged, in the words of the suite.
    pub(super) fn judge(
        &self,
        leg: Leg,
        scope: Scope,
        revision: &str,
        subject: &[&str],
    ) -> Result<Vec<Judged>, String> {
        let results = self.directory.join("results");
        let _ = fs::remove_dir_all(&results);
        let mut command = Command::new("node");
        command
            .arg("--import")
            .arg(shim())
            .arg(self.package().join("dist/index.js"))
            .arg(leg.name())
            .args(subject)
            .args(scope.words())
            .args([revision, "--timeout", "60000"])
            .arg("--output-dir")
            .arg(&results)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Its exit status knows neither empty scenarios nor ours that are expected to fail.
        let status = command.status();
        status.map_err(|error| format!("node could not start: {error}"))?;
        read(&results, leg)
    }

    fn package(&self) -> PathBuf {
        self.directory
            .join("node_modules/@modelcontextprotocol/conformance")
    }
}

/// What Node 20 does not have and the suite needs, as an address that Node takes.
fn shim() -> String {
    format!(
        "file://{}",
        root().join("dev/conformance/shim.mjs").display()
    )
}

/// A directory for each scenario, named after it and the time.
fn read(results: &Path, leg: Leg) -> Result<Vec<Judged>, String> {
    let mut judged = Vec::new();
    let prefix = match leg {
        Leg::Client => "",
        Leg::Server => "server-",
    };
    gather(results, "", &mut |name, checks| {
        let name = name.strip_prefix(prefix).unwrap_or(name);
        judged.push(Judged {
            scenario: without_time(name).to_owned(),
            succeeded: count(checks, "SUCCESS").count(),
            failed: count(checks, "FAILURE")
                .chain(count(checks, "WARNING"))
                .map(text)
                .collect(),
        });
    })?;
    if judged.is_empty() {
        return Err(
            "the suite has judged nothing: it did not start, or what it judges did not".into(),
        );
    }
    judged.sort_by(|a: &Judged, b| a.scenario.cmp(&b.scenario));
    Ok(judged)
}

/// Scenarios have slashes in their names, so some directories have directories.
fn gather(
    directory: &Path,
    name: &str,
    found: &mut impl FnMut(&str, &[Value]),
) -> Result<(), String> {
    let failed = |error| format!("{} cannot be read: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, file) = (entry.path(), entry.file_name());
        let file = file.to_string_lossy();
        if path.is_dir() {
            let name = format!("{name}{file}");
            gather(&path, &format!("{name}/"), found)?;
        } else if file == "checks.json" {
            let text = fs::read_to_string(&path).map_err(failed)?;
            let checks: Vec<Value> = serde_json::from_str(&text)
                .map_err(|error| format!("{} makes no sense: {error}", path.display()))?;
            found(name.trim_end_matches('/'), &checks);
        }
    }
    Ok(())
}

/// `tools-list-2026-11-15T14-31-51-394Z` is `tools-list`.
fn without_time(name: &str) -> &str {
    const TIME: usize = "-2026-11-15T14-31-51-394Z".len();
    let end = name.len().saturating_sub(TIME);
    if name.ends_with('Z') && name.is_char_boundary(end) {
        &name[..end]
    } else {
        name
    }
}

fn count<'a>(checks: &'a [Value], status: &'static str) -> impl Iterator<Item = &'a Value> {
    checks.iter().filter(move |check| check["status"] == status)
}

fn text(check: &Value) -> String {
    let id = check["id"].as_str().unwrap_or("?");
    let said = check["errorMessage"]
        .as_str()
        .unwrap_or("no reason is given");
    format!("{id}: {}", said.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::without_time;

    #[test]
    fn the_time_is_no_part_of_the_name() {
        assert_eq!(
            without_time("tools-list-2026-11-15T14-31-51-394Z"),
            "tools-list"
        );
        assert_eq!(without_time("tools-list"), "tools-list");
        assert_eq!(without_time("Z"), "");
    }
}

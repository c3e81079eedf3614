//! Builds a copy of the project in which every mutant is compiled in behind a run-time switch ("woven"), and its test programs.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::unit::Unit;
use crate::weave::{self, File, Id, Refused, Woven, last_names};

/// The most rounds of compilation. Each drops at least one mutant, but most drop many.
const MAX_ROUNDS: usize = 30;

/// A test program that was built.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// The copy for a unit.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) unit: &'static Unit,
    /// The project.
    root: PathBuf,
    /// The copy of it.
    pub(crate) copy: PathBuf,
    /// The target directory of the copy.
    build: PathBuf,
}

impl Tree {
    pub(crate) fn new(unit: &'static Unit, root: &Path, target: &Path) -> Tree {
        Tree {
            unit,
            root: root.to_owned(),
            copy: target.join("tree"),
            build: target.join("build"),
        }
    }

    /// Copies the project, weaves the files, and builds the test programs. Drops all mutants that do not compile.
    pub(crate) fn build(
        &self,
        files: &[File],
        last: Id,
    ) -> Result<(Vec<Program>, Refused), String> {
        let notes = self.copy.with_file_name("refused");
        let mut refused = Refused::read(&notes, files);
        let woven_paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        self.copy_others(&woven_paths)?;
        // Most errors show without code generation, and most of those in the library alone.
        let mut step = match refused.mutants.is_empty() {
            true => BuildStep::Library,
            false => BuildStep::Programs,
        };
        for round in 1..=MAX_ROUNDS {
            let mut woven = BTreeMap::new();
            for file in files {
                woven.insert(file.path.as_str(), weave::weave(file, &refused));
            }
            for (path, file) in &woven {
                if **path != *self.unit.library() {
                    self.write(path, &file.text)?;
                }
            }
            self.append_switch(&woven, last)?;
            eprintln!(
                "round {round}, {} mutants dropped: {step}",
                refused.mutants.len()
            );
            let output = self.cargo(step)?;
            let errors: Vec<&Value> = output.iter().filter_map(as_error).collect();
            if errors.is_empty() {
                step = match step {
                    BuildStep::Library => BuildStep::Tests,
                    BuildStep::Tests => BuildStep::Programs,
                    BuildStep::Programs => return Ok((self.programs(&output), refused)),
                };
                continue;
            }
            let before = (refused.mutants.len(), refused.constant.len());
            for error in &errors {
                refuse(error, &woven, &mut refused);
            }
            refused.add_callees(files);
            refused.write(&notes, files);
            let after = (refused.mutants.len(), refused.constant.len());
            if before == after {
                let texts: Vec<&str> = errors
                    .iter()
                    .filter_map(|error| error["rendered"].as_str())
                    .collect();
                return Err(format!(
                    "the woven copy does not compile:\n{}",
                    texts.join("\n")
                ));
            }
        }
        Err(format!(
            "the woven copy still fails after {MAX_ROUNDS} rounds"
        ))
    }

    /// Copies all files but those that are woven, and removes what the project no longer has.
    fn copy_others(&self, woven: &BTreeSet<&str>) -> Result<(), String> {
        let listed = Command::new("git")
            .args([
                "ls-files",
                "--cached",
                "--others",
                "--exclude-standard",
                "-z",
            ])
            .current_dir(&self.root)
            .output()
            .map_err(|error| format!("git could not start: {error}"))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let listed: BTreeSet<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        for path in &listed {
            let original = self.root.join(path);
            let is_written = woven.contains(path) || **path == *self.unit.library();
            if is_written || !original.is_file() {
                continue;
            }
            let bytes = fs::read(&original).map_err(|error| format!("{path}: {error}"))?;
            self.write(path, bytes)?;
        }
        remove_unlisted(&self.copy, &self.copy, &listed, &self.root)
            .map_err(|error| format!("the old copy cannot be cleared: {error}"))
    }

    /// Writes a file of the copy, unless it is the same already: cargo compiles what is newer.
    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<(), String> {
        let copy = self.copy.join(path);
        if fs::read(&copy).is_ok_and(|held| held == bytes.as_ref()) {
            return Ok(());
        }
        let failed = |error| format!("{} cannot be written: {error}", copy.display());
        if let Some(directory) = copy.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        // The old file may be a hard link to the original.
        let _ = fs::remove_file(&copy);
        fs::write(&copy, bytes).map_err(failed)
    }

    fn append_switch(&self, woven: &BTreeMap<&str, Woven>, last: Id) -> Result<(), String> {
        let path = &*self.unit.library();
        let lib = match woven.get(path) {
            Some(lib) => lib.text.clone(),
            None => fs::read_to_string(self.root.join(path)).map_err(|error| error.to_string())?,
        };
        self.write(path, lib + &weave::switch(last))
    }

    /// The test programs that were built.
    fn programs(&self, messages: &[Value]) -> Vec<Program> {
        let built = messages
            .iter()
            .filter(|message| message["profile"]["test"] == true);
        let program = |message: &Value| {
            let path = PathBuf::from(message["executable"].as_str()?);
            let package = message["package_id"].as_str()?;
            let name = message["target"]["name"].as_str()?;
            let name = match package.contains("dev/model") {
                true => format!("model-{name}"),
                false => name.to_owned(),
            };
            let is_left_out = self.unit.left_out.contains(&name.as_str());
            (!is_left_out).then_some(Program { name, path })
        };
        built.filter_map(program).collect()
    }

    /// Runs cargo in the woven copy. Returns cargo's JSON messages.
    fn cargo(&self, step: BuildStep) -> Result<Vec<Value>, String> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let packages = self.unit.tested();
        let packages = packages.flat_map(|package| ["--package", package]);
        match step {
            BuildStep::Library => command.args(["check", "--package", self.unit.package, "--lib"]),
            BuildStep::Tests => command.args(["check", "--lib", "--tests"]).args(packages),
            BuildStep::Programs => command
                .args(["test", "--no-run", "--lib", "--tests"])
                .args(packages),
        };
        let output = command
            .args(["--all-features", "--message-format=json"])
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("RUSTFLAGS", "--cap-lints=allow")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0")
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo could not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let has_error = messages.iter().any(|message| as_error(message).is_some());
        if !output.status.success() && !has_error {
            return Err(format!("cargo ended with {}", output.status));
        }
        Ok(messages)
    }
}

/// The steps of a build, the cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildStep {
    Library,
    Tests,
    Programs,
}

impl fmt::Display for BuildStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BuildStep::Library => "check the library",
            BuildStep::Tests => "check the tests",
            BuildStep::Programs => "build the test programs",
        })
    }
}

/// Returns the compiler error in a message. Summaries such as "aborting due to …" have no position and are skipped.
fn as_error(message: &Value) -> Option<&Value> {
    let error = &message["message"];
    let is_error = message["reason"] == "compiler-message" && error["level"] == "error";
    (is_error && !error["spans"].as_array()?.is_empty()).then_some(error)
}

/// Records the mutants at the position of a compile error as refused. For E0015, records the function that must stay `const`.
fn refuse(error: &Value, woven: &BTreeMap<&str, Woven>, refused: &mut Refused) {
    let code = error["code"]["code"].as_str().unwrap_or_default();
    let text = error["message"].as_str().unwrap_or_default();
    if code == "E0015" {
        if let Some(path) = text.split('`').nth(1) {
            refused.constant.insert(last_names(path));
        }
        return;
    }
    let spans = error["spans"].as_array().into_iter().flatten();
    let (primary, others): (Vec<&Value>, Vec<&Value>) =
        spans.partition(|span| span["is_primary"] == true);
    for span in primary.into_iter().chain(others) {
        let mut span = span;
        while !span.is_null() {
            let path = span["file_name"].as_str().unwrap_or_default();
            let offset = span["byte_start"].as_u64().unwrap_or_default() as usize;
            let mutants = woven
                .get(path)
                .map_or(&[][..], |file| file.mutants_at(offset));
            if !mutants.is_empty() {
                refused.mutants.extend(mutants);
                return;
            }
            span = &span["expansion"]["span"];
        }
    }
}

/// Removes the files below `directory` that the project does not have.
fn remove_unlisted(
    directory: &Path,
    copy: &Path,
    listed: &BTreeSet<&str>,
    root: &Path,
) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_unlisted(&path, copy, listed, root)?;
        } else if let Ok(relative) = path.strip_prefix(copy) {
            let relative = relative.to_string_lossy().replace('\\', "/");
            if !listed.contains(relative.as_str()) || !root.join(&relative).is_file() {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}

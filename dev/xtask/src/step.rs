//! Runs the steps of a command and other programs, and reads and writes files. Must not depend on a particular step.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::env;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Error, Result, ensure};
use fs_err as fs;
use pico_args::Arguments;
use serde::Serialize;
use serde::de::DeserializeOwned;
use walkdir::WalkDir;
use xshell::{Cmd, Shell, cmd};

/// A step: its title, and the function that runs it.
pub(crate) type Step = (&'static str, fn() -> Result<()>);

/// Why a step does not apply here. It is an error, so that it ends the step from anywhere.
#[derive(Debug, thiserror::Error)]
#[error("skipped: {0}")]
pub(crate) struct Skipped(pub(crate) String);

/// The error that skips a step for this reason.
pub(crate) fn skip(reason: impl Into<String>) -> Error {
    Skipped(reason.into()).into()
}

/// Runs the steps in order, up to the first that fails.
pub(crate) fn run_all(steps: &[Step]) -> Result<()> {
    let start = Instant::now();
    let mut passed = 0;
    for (index, (title, run)) in steps.iter().enumerate() {
        eprintln!("\n[{}/{}] {title}", index + 1, steps.len());
        let start = Instant::now();
        if passes(*run).with_context(|| format!("step \"{title}\" failed"))? {
            eprintln!("passed in {} s", start.elapsed().as_secs());
            passed += 1;
        }
    }
    let skipped = steps.len() - passed;
    let seconds = start.elapsed().as_secs();
    eprintln!("\n{passed} steps passed, {skipped} skipped, in {seconds} s");
    Ok(())
}

/// Runs one step as a command.
pub(crate) fn run_one(run: impl FnOnce() -> Result<()>) -> Result<()> {
    passes(run).map(drop)
}

/// Whether a step passes. If it is skipped, prints why.
fn passes(run: impl FnOnce() -> Result<()>) -> Result<bool> {
    match run() {
        Ok(()) => Ok(true),
        Err(error) if error.is::<Skipped>() => {
            eprintln!("{error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Runs the parts of a command that have these names, or all, and prints how each ended.
pub(crate) fn run_named<T>(
    parts: &[(String, T)],
    names: &[String],
    run: impl Fn(&T) -> Result<()>,
) -> Result<()> {
    check_names(names, parts.iter().map(|(name, _)| name.as_str()))?;
    let (mut table, mut failed) = (String::new(), 0);
    for (name, part) in parts {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        eprintln!("\n{name}");
        let start = Instant::now();
        let outcome = match run(part) {
            Ok(()) => "passed".to_owned(),
            Err(error) if error.is::<Skipped>() => error.to_string(),
            Err(error) => {
                failed += 1;
                format!("FAILED: {error:#}")
            }
        };
        let seconds = start.elapsed().as_secs();
        table += &format!("\n{name:<15} {seconds:>4} s  {outcome}");
    }
    eprintln!("{table}");
    ensure!(failed == 0, "{failed} failed");
    Ok(())
}

/// Fails if a name is none of the known ones.
pub(crate) fn check_names<'a>(
    names: &[String],
    known: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let known: Vec<&str> = known.collect();
    let unknown = names.iter().find(|name| !known.contains(&name.as_str()));
    let unknown = unknown.map(String::as_str).unwrap_or_default();
    ensure!(
        unknown.is_empty(),
        "there is no `{unknown}`; there are {}",
        known.join(", ")
    );
    Ok(())
}

/// The words that are left when all options were taken. Fails if one of them is an option.
pub(crate) fn words(arguments: Arguments) -> Result<Vec<String>> {
    let words = all_words(arguments);
    let option = words.iter().find(|word| word.starts_with('-'));
    let option = option.map(String::as_str).unwrap_or_default();
    ensure!(option.is_empty(), "there is no option `{option}`");
    Ok(words)
}

/// All words, for a program that parses them.
pub(crate) fn all_words(arguments: Arguments) -> Vec<String> {
    let words = arguments.finish().into_iter();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Fails with these problems, if there are any.
pub(crate) fn check_none(problems: &[String]) -> Result<()> {
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Fails if a page is not what this command would write.
pub(crate) fn check_page(page: &str, text: &str, command: &str) -> Result<()> {
    let is_current = read(page).is_ok_and(|committed| committed == text);
    ensure!(
        is_current,
        "{page} is out of date: run `cargo xtask {command}`"
    );
    Ok(())
}

/// Calls `work` for each item on this many threads. Returns the results in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut results = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            match items.get(at) {
                Some(item) => results.push((at, work(item))),
                None => return results,
            }
        }
    };
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        results
            .flat_map(|results| results.expect("no worker panics"))
            .collect::<Vec<_>>()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A shell in the directory of the workspace.
pub(crate) fn shell() -> Result<Shell> {
    let shell = Shell::new()?;
    shell.change_dir(root());
    Ok(shell)
}

/// Runs cargo with `arguments`, which are split at spaces, in the directory of the workspace.
pub(crate) fn cargo(arguments: &str) -> Result<()> {
    Ok(cargo_in(&shell()?, arguments).run()?)
}

/// The same command, for the output or for an environment variable.
pub(crate) fn cargo_in<'a>(shell: &'a Shell, arguments: &str) -> Cmd<'a> {
    // Uses the cargo that runs this program, which may not be the one in the search path.
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    cmd!(shell, "{cargo}").args(arguments.split_whitespace())
}

/// The libraries that we publish, the core first.
pub(crate) const LIBRARIES: [&str; 10] = [
    "everlink",
    "everlink-handle",
    "everlink-stdio",
    "everlink-http",
    "everlink-redis",
    "everlink-auth",
    "everlink-tokio",
    "everlink-types",
    "everlink-tools",
    "everlink-driver-tests",
];

/// The package of the program.
pub(crate) const PROGRAM: &str = "everlink-cli";

/// Options of cargo that choose these packages.
pub(crate) fn packages(names: &[&str]) -> String {
    let options = names.iter().map(|name| format!("--package {name}"));
    options.collect::<Vec<_>>().join(" ")
}

/// What the tests need.
pub(crate) const ALL_TESTS: &str = "--workspace --all-features --lib --bins --tests";

/// Builds all programs with the same features as the tests. After the tests, there is nothing left to compile: another choice of packages would have
/// other features, and most dependencies would be compiled again.
pub(crate) fn build_as_for_tests() -> Result<()> {
    cargo(&format!("build {ALL_TESTS}"))
}

/// The nightly cargo. Removes `CARGO`, which may name another cargo.
pub(crate) fn nightly<'a>(shell: &'a Shell, arguments: &str) -> Cmd<'a> {
    let cargo = cmd!(shell, "rustup run nightly cargo").env_remove("CARGO");
    cargo.args(arguments.split_whitespace())
}

/// The target for which the nightly compiler builds by default.
pub(crate) fn nightly_host() -> Result<String> {
    let shell = shell()?;
    Ok(cmd!(shell, "rustup run nightly rustc --print host-tuple").read()?)
}

/// Whether cargo has the subcommand `name` on this machine.
pub(crate) fn has_cargo(name: &str) -> bool {
    shell().is_ok_and(|shell| succeeds(cargo_in(&shell, name).arg("--version")))
}

/// Whether a command succeeds, without its output.
pub(crate) fn succeeds(command: Cmd<'_>) -> bool {
    let command = command.quiet().ignore_stdout().ignore_stderr();
    command.run().is_ok()
}

/// The directory of the workspace.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.ancestors().nth(2).unwrap_or(xtask)
}

/// The target directory.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The text of a file, whose path may start at the root of the project.
pub(crate) fn read(file: impl AsRef<Path>) -> Result<String> {
    Ok(fs::read_to_string(root().join(file))?)
}

/// Writes a file, whose path may start at the root of the project, and creates its directory.
pub(crate) fn write(file: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<()> {
    let file = root().join(file);
    fs::create_dir_all(file.parent().unwrap_or(root()))?;
    Ok(fs::write(file, text)?)
}

/// Writes a page of the project, and says so.
pub(crate) fn write_page(page: &str, text: &str) -> Result<()> {
    write(page, text)?;
    eprintln!("written to {page}");
    Ok(())
}

/// The files below a directory whose names end like this, in order, without those in target directories. The paths start at the root of the
/// project if the directory is in it.
pub(crate) fn files(directory: impl AsRef<Path>, end: &str) -> Result<Vec<PathBuf>> {
    let walk = WalkDir::new(root().join(directory)).sort_by_file_name();
    let mut files = Vec::new();
    for entry in walk
        .into_iter()
        .filter_entry(|entry| entry.file_name() != "target")
    {
        let entry = entry?;
        if entry.file_type().is_file() && entry.file_name().to_string_lossy().ends_with(end) {
            let path = entry.path();
            files.push(path.strip_prefix(root()).unwrap_or(path).to_owned());
        }
    }
    Ok(files)
}

/// The rows of a table whose cells are separated by tabs. The first line names the columns.
pub(crate) fn parse_rows<T: DeserializeOwned>(table: &str) -> Result<Vec<T>> {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.delimiter(b'\t').quoting(false);
    let mut reader = reader.from_reader(table.as_bytes());
    Ok(reader.deserialize().collect::<Result<_, _>>()?)
}

/// The lines of such a table, with or without the names of the columns.
pub(crate) fn format_rows<T: Serialize>(rows: &[T], has_head: bool) -> Result<String> {
    let mut writer = csv::WriterBuilder::new();
    let writer = writer.delimiter(b'\t').quote_style(csv::QuoteStyle::Never);
    let mut writer = writer.has_headers(has_head).from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The commit that is checked out, and whether files were changed since. Pages are no part of what is measured.
pub(crate) fn commit() -> Result<String> {
    let shell = shell()?;
    let hash = cmd!(shell, "git rev-parse --short HEAD").read()?;
    let changes = cmd!(
        shell,
        "git status --porcelain --untracked-files=no -- . :!docs"
    )
    .read()?;
    let suffix = match changes.is_empty() {
        true => "",
        false => " with changes",
    };
    Ok(format!("{hash}{suffix}"))
}

/// The time in UTC, in this format of `date`.
pub(crate) fn date(format: &str) -> Result<String> {
    let shell = shell()?;
    Ok(cmd!(shell, "date -u {format}").read()?)
}

/// A number with commas between its thousands.
pub(crate) fn with_commas(number: impl ToString) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        for (digits, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(with_commas(digits), expected);
        }
    }

    #[test]
    fn results_of_parallel_work_are_in_order() {
        let items: Vec<u32> = (0..100).collect();
        let doubled = in_parallel(3, &items, |item| item * 2);
        assert_eq!(doubled, (0..200).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn step_can_be_skipped_from_anywhere() {
        let deep = || Err(skip("no program")).context("outside");
        assert!(passes(deep).is_ok_and(|passes| !passes));
        assert!(passes(|| Err(Error::msg("broken"))).is_err());
    }
}

//! Runs tests in a program with `harness = false`, with the options and the output of the standard test runner. Does not depend on the checks.
//!
//! `cargo nextest` needs `--list --format terse`, `--ignored` and `--exact`. Other options of the standard runner are accepted and ignored.

use std::env::args;
use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A test with a name.
pub struct Test<'a> {
    name: String,
    ignored: Option<String>,
    run: Box<dyn Fn() -> Result<(), String> + Send + Sync + 'a>,
}

impl<'a> Test<'a> {
    /// Creates a test. An error is the text of its failure.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn() -> Result<(), String> + Send + Sync + 'a,
    ) -> Test<'a> {
        Test {
            name: name.into(),
            ignored: None,
            run: Box::new(run),
        }
    }

    /// Runs the test only with `--ignored` or `--include-ignored`, for this reason.
    #[must_use]
    pub fn ignored(mut self, reason: impl Into<String>) -> Test<'a> {
        self.ignored = Some(reason.into());
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Test<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Test")
            .field("name", &self.name)
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}

/// Runs the tests that the arguments of this program select, several at a time. Prints their outcomes.
///
/// For the `main` of a test with `harness = false`. The options are those of the standard test runner: names to filter by, `--exact`, `--skip`,
/// `--list`, `--ignored`, `--include-ignored` and `--test-threads`.
#[must_use]
pub fn run_tests(tests: &[Test<'_>]) -> ExitCode {
    let options = match Options::parse(args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let selected: Vec<&Test<'_>> = tests.iter().filter(|test| options.selects(test)).collect();
    if options.lists {
        for test in &selected {
            println!("{}: test", test.name);
        }
        return ExitCode::SUCCESS;
    }
    let (selected, ignored): (Vec<_>, Vec<_>) = selected
        .into_iter()
        .partition(|test| test.ignored.is_none() || options.runs_ignored);
    println!("\nrunning {} tests", selected.len());
    for test in &ignored {
        let reason = test.ignored.as_deref().unwrap_or_default();
        println!("test {} ... ignored, {reason}", test.name);
    }
    let failures = run_selected(&selected, options.threads);
    for (name, text) in &failures {
        println!("\n---- {name} ----\n{text}");
    }
    let (failed, ran) = (failures.len(), selected.len());
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {failed} failed; {} ignored; {} filtered out\n",
        ran - failed,
        ignored.len(),
        tests.len() - ran - ignored.len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

/// Runs tests on several threads. Returns the failures.
fn run_selected(tests: &[&Test<'_>], threads: usize) -> Vec<(String, String)> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run_next = || {
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = (test.run)();
            let word = if outcome.is_ok() { "ok" } else { "FAILED" };
            println!("test {} ... {word}", test.name);
            if let Err(text) = outcome {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.push((test.name.clone(), text));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run_next);
        }
    });
    failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The options of the standard test runner that are used here.
struct Options {
    filters: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    lists: bool,
    /// Whether only ignored tests are selected.
    ignored_only: bool,
    runs_ignored: bool,
    threads: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            filters: Vec::new(),
            skipped: Vec::new(),
            is_exact: false,
            lists: false,
            ignored_only: false,
            runs_ignored: false,
            threads: thread::available_parallelism().map_or(1, usize::from),
        };
        while let Some(argument) = arguments.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let mut value = || {
                let value = value.clone().or_else(|| arguments.next());
                value.ok_or_else(|| format!("{name} needs a value"))
            };
            match name {
                "--exact" => options.is_exact = true,
                "--ignored" => (options.ignored_only, options.runs_ignored) = (true, true),
                "--include-ignored" => options.runs_ignored = true,
                "--list" => options.lists = true,
                "--skip" => options.skipped.push(value()?),
                "--test-threads" => {
                    let threads = value()?.parse().ok().filter(|threads| *threads > 0);
                    options.threads = threads.ok_or("--test-threads needs a number above 0")?;
                }
                "--color" | "--format" | "--logfile" | "-Z" => drop(value()?),
                "-q" => {}
                option if option.starts_with("--") => {}
                _ => options.filters.push(argument),
            }
        }
        Ok(options)
    }

    fn selects(&self, test: &Test<'_>) -> bool {
        let matches = |filter: &String| match self.is_exact {
            true => test.name == *filter,
            false => test.name.contains(filter),
        };
        (self.filters.is_empty() || self.filters.iter().any(matches))
            && !self.skipped.iter().any(matches)
            && (!self.ignored_only || test.ignored.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, Test};

    fn selected(arguments: &str) -> Vec<String> {
        let words = arguments.split_whitespace().map(str::to_owned);
        let options = Options::parse(words).expect("the options are known");
        let names = ["a::one", "a::one_more", "b::two"];
        let mut tests: Vec<Test<'_>> = names.map(|name| Test::new(name, || Ok(()))).into();
        tests.push(Test::new("b::slow", || Ok(())).ignored("slow"));
        let selected = tests.iter().filter(|test| options.selects(test));
        selected.map(|test| test.name().to_owned()).collect()
    }

    #[test]
    fn options_of_the_standard_runner_select_tests() {
        assert_eq!(selected("one"), ["a::one", "a::one_more"]);
        assert_eq!(selected("--exact a::one --nocapture"), ["a::one"]);
        assert_eq!(selected("a:: --skip more --color never"), ["a::one"]);
        assert_eq!(selected("--list --format terse --ignored"), ["b::slow"]);
        assert_eq!(selected("--test-threads=1").len(), 4);
    }

    #[test]
    fn option_without_its_value_is_refused() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(|word| (*word).to_owned()));
        assert!(parse(&["--skip"]).is_err());
        assert!(parse(&["--test-threads", "0"]).is_err());
    }
}

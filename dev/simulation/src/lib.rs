//! What the simulators share: runs from seeds, scripts as text, counts, shrinking and the program.
//!
//! A simulator implements [`Simulation`]: it generates a [`Script`] from a seed, and plays it in a world that an oracle judges by its rules.
//! A broken rule is a panic whose text begins with the number of the rule in brackets, as in `(7) ...`. So the simulators can use the rules of
//! the fuzz targets. The rest is here. [`run`] turns panics into violations, [`shrink`] makes scripts smaller, [`main`] is the program, and
//! [`testing`] has the tests that every simulator needs. The same script gives the same run.

mod program;
mod report;
mod rng;
mod script;
mod shrink;
mod table;
pub mod testing;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::time::Duration;

pub use program::main;
pub use report::Report;
pub use rng::Rng;
pub use script::{BadScript, Script, Words};
pub use shrink::shrink;

/// Limits for a number in a step, and the function that lowers the number to a limit.
pub type Cap<Step> = (&'static [u32], fn(&mut Step, u32));

/// The counts of a run, and the first violation of a rule, if there is one.
pub type RunResult<S> = (Report<S>, Option<Violation<<S as Simulation>::Rule>>);

/// What differs between simulators.
pub trait Simulation: Clone + fmt::Debug + Eq + 'static {
    /// The first line of a script.
    type Setup: Clone + fmt::Debug + fmt::Display + Eq + FromStr<Err = BadScript>;
    /// Another line of a script.
    type Step: Clone + fmt::Debug + fmt::Display + Eq + FromStr<Err = BadScript>;
    /// A fault or another kind of step whose effects are counted.
    type Fault: Copy + fmt::Debug + fmt::Display + Ord + Send;
    /// A rule of the oracle.
    type Rule: Copy + fmt::Debug + fmt::Display + Eq + Send + Sync;

    /// The name of the simulator's crate in Rust code. A printed test calls the `play` function of that crate.
    const CRATE: &'static str;
    /// What `--break` does, for the usage text.
    const BREAK_HELP: &'static str;
    /// The rules that can be broken on purpose, numbered from 1.
    const RULES: &'static [Self::Rule];
    /// The rule that is broken by a panic without a number.
    const RULE_OF_PANICS: Self::Rule;
    /// The rule that is broken if two runs of a script differ.
    const RULE_OF_REPEATS: Self::Rule;
    /// All faults.
    const FAULTS: &'static [Self::Fault];
    /// The transition table of the machine: a state, a cause and the next state in each row. A row of `any` state is one of each.
    const TABLE: &'static str;
    /// How to simplify a step. For each number, [`shrink`] takes the first limit with which the rule is still broken.
    const CAPS: &'static [Cap<Self::Step>];

    /// The script of this seed.
    fn script(seed: u64) -> Script<Self>;
    /// Runs a script to its end, or panics when a rule is broken. Adds to an empty report. Returns the simulated time.
    fn play(script: &Script<Self>, flaw: Option<Self::Rule>, report: &mut Report<Self>)
    -> Duration;
    /// Why no run can take this row of the table, if so.
    fn why_not_taken(_from: &str, _on: &str, _to: &str) -> Option<&'static str> {
        None
    }
    /// Why no run can take these two transitions one after the other, if so.
    fn why_no_pair(_pair: [&str; 3]) -> Option<&'static str> {
        None
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation<Rule> {
    /// The broken rule.
    pub rule: Rule,
    /// What happened.
    pub details: String,
}

impl<Rule: fmt::Display> fmt::Display for Violation<Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken: {}", self.rule, self.details)
    }
}

/// Runs a script. Returns the counts, and the first violation of a rule, if there is one.
///
/// `flaw` breaks this rule on purpose, to show that the oracle detects it.
#[must_use]
pub fn run<S: Simulation>(script: &Script<S>, flaw: Option<S::Rule>) -> RunResult<S> {
    run_with(script, flaw, Report::default())
}

/// The same, with a [trace](Report::trace) of everything that happened.
#[must_use]
pub fn run_with_trace<S: Simulation>(script: &Script<S>, flaw: Option<S::Rule>) -> RunResult<S> {
    let trace = Some(String::new());
    let report = Report {
        trace,
        ..Report::default()
    };
    run_with(script, flaw, report)
}

fn run_with<S: Simulation>(
    script: &Script<S>,
    flaw: Option<S::Rule>,
    mut report: Report<S>,
) -> RunResult<S> {
    let play = AssertUnwindSafe(|| S::play(script, flaw, &mut report));
    match catch_unwind(play) {
        Ok(simulated) => {
            report.finish_run(simulated);
            (report, None)
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            (report, Some(violation::<S>(text.unwrap_or("no text"))))
        }
    }
}

/// What the text of a panic says.
fn violation<S: Simulation>(text: &str) -> Violation<S::Rule> {
    let numbered = text.strip_prefix('(').and_then(|text| {
        let (numbers, details) = text.split_once(") ")?;
        let number: usize = numbers.split(',').next()?.parse().ok()?;
        Some((*S::RULES.get(number.checked_sub(1)?)?, details.to_owned()))
    });
    let (rule, details) =
        numbered.unwrap_or_else(|| (S::RULE_OF_PANICS, format!("it panicked: {text}")));
    Violation { rule, details }
}

/// Runs a script in text form, for a test.
///
/// # Panics
///
/// If the text is no script, or if a rule is broken.
pub fn play<S: Simulation>(text: &str) {
    let script: Script<S> = text.parse().expect("a script");
    if let (_, Some(violation)) = run(&script, None) {
        panic!("{violation}");
    }
}

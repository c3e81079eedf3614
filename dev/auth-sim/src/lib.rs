//! Simulates a month of processes that share the tokens of one account, with injected faults, from a seed.
//!
//! The world of a run has one MCP server, two authorization servers of which it names one, a store with locks, two to eight processes with an
//! [`Authorizer`](everlink::auth::Authorizer) each, and people who sign in, refuse, or never come. Access tokens live five minutes to a day.
//! Refresh tokens rotate in most runs, and the use of an old one revokes the whole family.
//!
//! A run is a [`Script`]: the setup and a list of timed steps. A script is generated from a seed, and can be written as text and parsed again.
//! First, the steps happen: calls, deaths of processes, jumps of the clocks, faults of the network, of the store and of the servers. Then all
//! faults end, and every process must get a token. An oracle judges the log of the world by its [rules](Rule). It shares no code with the
//! machine. The same script gives the same run.
//!
//! ```
//! use everlink_auth_sim::{Script, run};
//!
//! let script = Script::from_seed(7);
//! let (_, violation) = run(&script, None);
//! assert!(violation.is_none());
//! assert_eq!(script.to_string().parse(), Ok(script));
//! ```
//!
//! `cargo xtask auth-sim --runs N --seed S` runs many seeds and prints the counts. A run that breaks a rule is [shrunk](shrink) to a small
//! script for a test.
//!
//! Not simulated: requests that reach a server after the process has given up, programs that sign in as themselves, devices, and `DPoP`.

mod fact;
mod mark;
mod oracle;
mod process;
mod report;
mod rng;
mod rule;
mod script;
mod shrink;
mod site;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use report::Report;
pub use rule::{Rule, Violation};
pub use script::{BadScript, Kind, Refreshes, Script, Setup, Step};
pub use shrink::shrink;

/// Runs a script. Returns the counts, and the first violation of a rule, if there is one.
///
/// `flaw` breaks this rule on purpose, to show that the oracle detects it.
#[must_use]
pub fn run(script: &Script, flaw: Option<Rule>) -> (Report, Option<Violation>) {
    run_with(script, flaw, Report::default())
}

/// The same, with a [trace](Report::trace) of everything that happened.
#[must_use]
pub fn run_with_trace(script: &Script, flaw: Option<Rule>) -> (Report, Option<Violation>) {
    run_with(script, flaw, Report::with_trace())
}

fn run_with(script: &Script, flaw: Option<Rule>, report: Report) -> (Report, Option<Violation>) {
    let result = catch_unwind(AssertUnwindSafe(|| world::play(script, flaw, report)));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        let details = format!("it panicked: {}", text.unwrap_or("without a text"));
        let rule = Rule::NoPanic;
        (Report::default(), Some(Violation { rule, details }))
    })
}

/// Runs a script in text form, for a test.
///
/// # Panics
///
/// If the text is no script, or if a rule is broken.
pub fn play(text: &str) {
    let script: Script = text.parse().expect("a script");
    if let (_, Some(violation)) = run(&script, None) {
        panic!("{violation}");
    }
}

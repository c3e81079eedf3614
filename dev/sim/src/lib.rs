//! Simulates links, servers and networks with injected faults, from a seed.
//!
//! A run is a [`Script`]: the setup of an application, its link, perhaps a relay, and a server, and a list of timed steps. A script is
//! generated from a seed, and can be written as text and parsed again.
//!
//! A run has two phases. In the first, the application works while processes die, networks fail, proxies interfere, servers misbehave,
//! drivers stall and clocks jump, as the script says. In the second, all faults are removed, and the link must recover. It must become
//! ready by itself, carry a call, a list and a notification, and close in order. After every step an oracle that shares no code with the
//! machine checks the [rules](Rule). The same script gives the same run, byte by byte.
//!
//! ```
//! use everlink_sim::{Script, run};
//!
//! let script = Script::from_seed(7);
//! let (report, violation) = run(&script, None);
//! assert!(violation.is_none());
//! assert_eq!(script.to_string().parse(), Ok(script));
//! assert!(report.simulated().as_secs() > 0);
//! ```
//!
//! `cargo xtask sim --runs N --seed S` runs many seeds and prints the counts. A run that breaks a rule is [shrunk](shrink) to a small
//! script for a test.

mod oracle;
mod report;
mod rng;
mod script;
mod shrink;
mod subject;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use oracle::{Rule, Violation};
pub use report::Report;
pub use script::{
    Action, BadScript, Dialect, Fault, Pace, Peer, Room, Script, Setup, Shape, Step, StepKind,
};
pub use shrink::shrink;

/// Runs a script. Returns the counts, and the first violation of a rule, if there is one.
///
/// `flaw` replaces the library's machine by one that breaks this rule on purpose, to show that the oracle detects it.
#[must_use]
pub fn run(script: &Script, flaw: Option<Rule>) -> (Report, Option<Violation>) {
    run_with(script, flaw, Report::default())
}

/// The same, with a [trace](Report::trace) of all steps.
#[must_use]
pub fn run_with_trace(script: &Script, flaw: Option<Rule>) -> (Report, Option<Violation>) {
    run_with(script, flaw, Report::with_trace())
}

fn run_with(script: &Script, flaw: Option<Rule>, report: Report) -> (Report, Option<Violation>) {
    let result = catch_unwind(AssertUnwindSafe(|| world::play(script, flaw, report)));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        let details = format!("it panicked: {}", text.unwrap_or("without a word"));
        let rule = Rule::PeerIsHarmless;
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

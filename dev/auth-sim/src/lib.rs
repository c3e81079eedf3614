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
mod rule;
mod script;
mod site;
mod store;
mod world;

use std::fmt;

pub use everlink_simulation::{BadScript, run, run_with_trace, shrink};
use everlink_simulation::{Cap, RunResult, Simulation};
pub use rule::{Rule, Violation};
pub use script::{Kind, Refreshes, Setup, Step};

/// A run.
pub type Script = everlink_simulation::Script<AuthSimulation>;

/// The counts of one run, or of many.
pub type Report = everlink_simulation::Report<AuthSimulation>;

/// The simulation of processes that share tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthSimulation;

impl Simulation for AuthSimulation {
    type Setup = Setup;
    type Step = Step;
    type Fault = Kind;
    type Rule = Rule;

    const CRATE: &'static str = "everlink_auth_sim";
    const BREAK_HELP: &'static str = "break the rule of this number on purpose";
    const RULES: &'static [Rule] = &Rule::ALL;
    const RULE_OF_PANICS: Rule = Rule::NoPanic;
    const RULE_OF_REPEATS: Rule = Rule::SameRun;
    const FAULTS: &'static [Kind] = Kind::ALL;
    const FIRST_DIGEST: u64 = 0;
    const CAPS: &'static [Cap<Step>] = &[(&[0, 1_000, 60_000], |step, limit| {
        step.after = step.after.min(limit.into());
    })];

    fn script(seed: u64) -> Script {
        script::from_seed(seed)
    }

    fn play(script: &Script, flaw: Option<Rule>, report: Report) -> RunResult<AuthSimulation> {
        world::play(script, flaw, report)
    }

    fn transitions() -> Vec<&'static str> {
        report::transitions()
    }

    fn write_report(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        report::write(report, f)
    }

    fn gaps(report: &Report) -> Option<String> {
        let untaken = report.untaken_transitions();
        let text = format!("no run took these transitions: {untaken:?}\n");
        (!untaken.is_empty()).then_some(text)
    }
}

/// Runs a script in text form, for a test.
///
/// # Panics
///
/// If the text is no script, or if a rule is broken.
pub fn play(text: &str) {
    everlink_simulation::play::<AuthSimulation>(text);
}

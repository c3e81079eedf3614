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

use std::time::Duration;

mod fact;
mod mark;
mod oracle;
mod process;
mod rule;
mod script;
mod site;
mod store;
mod world;

pub use everlink_simulation::{BadScript, run, run_with_trace, shrink};
use everlink_simulation::{Cap, Simulation};
pub use rule::Rule;
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
    const RULES: &'static [Rule] = Rule::ALL.split_at(10).0;
    const RULE_OF_PANICS: Rule = Rule::NoPanic;
    const RULE_OF_REPEATS: Rule = Rule::SameRun;
    const FAULTS: &'static [Kind] = Kind::ALL;
    const TABLE: &'static str = include_str!("../../../src/auth/table.txt");
    const CAPS: &'static [Cap<Step>] = &[(&[0, 1_000, 60_000], |step, limit| {
        step.after = step.after.min(limit.into());
    })];

    fn script(seed: u64) -> Script {
        script::from_seed(seed)
    }

    fn play(script: &Script, flaw: Option<Rule>, report: &mut Report) -> Duration {
        world::play(script, flaw, report)
    }

    fn why_not_taken(from: &str, on: &str, to: &str) -> Option<&'static str> {
        let of_other_grants = ["Starting", "Polling", "Proving", "Exchanging"];
        match (from, on, to) {
            (from, _, to) if [from, to].iter().any(|of| of_other_grants.contains(of)) => {
                Some("of devices, DPoP and identity providers, which are not simulated")
            }
            ("Preparing" | "Registering", "Redeem", "Redeeming") => {
                Some("programs that sign in as themselves are not simulated")
            }
            ("Resource", _, "Queueing") => {
                Some("the configuration names no endpoints, so they are looked up")
            }
            ("Refreshing", "SignIn", _) => {
                Some("the server refuses a renewal only because of the token or the client")
            }
            ("SigningOut" | "Deleting" | "Revoking", "SignOut", _) => {
                Some("it is signed out already")
            }
            ("SigningOut" | "Deleting" | "Revoking", "Usable", _) => {
                Some("a sign-out leaves no tokens")
            }
            ("SigningOut", "Nothing", _) => Some("a sign-out without tokens ends at once"),
            ("SignedIn", "Nothing", _) | ("SignedOut", "Usable", _) => {
                Some("the store or an exchange changes that, each of which has a state")
            }
            ("Refreshing", "Nothing", _) => Some("tokens that are refused are deleted first"),
            ("Storing", "Nothing", _) => Some("new tokens are used even if the store fails"),
            ("Preparing", "SignOut" | "Usable", _) => Some("the driver prepares at once"),
            ("Loading", "SignOut", _) => Some("the application waits until the store was read"),
            _ => None,
        }
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

//! Simulates servers that share a store, with injected faults, from a seed.
//!
//! The world of a run has three servers, a store that delays, fails, restarts and forgets, and clients that check what they get. A run is a
//! [`Script`]: a seed and a list of timed faults. In the first phase, the faults happen. In the second, nothing fails, and each client must get
//! a reply. The servers, the clients and most [rules](Rule) are those of the fuzz target for the same servers, in `model::fleet`. The same script
//! gives the same run.
//!
//! `cargo xtask fleet-sim --runs N --seed S` runs many seeds and prints the counts. A run that breaks a rule is shrunk to a small script for a
//! test.

mod script;
mod store;
mod world;

use std::time::Duration;

use everlink_simulation::{Cap, Simulation, script_enum};
pub use script::{Fault, Setup, Step};

script_enum! {
    /// The rules.
    pub enum Rule {
        /// A call runs at most once.
        RunsOnce = "rule 1 (RunsOnce)",
        /// A call of which its client was told that it was not processed did not run.
        RefusedDidNotRun = "rule 2 (RefusedDidNotRun)",
        /// The messages of a call come in order, each once, and the reply comes last. Only a store that lost its data may lose some.
        NumbersInOrder = "rule 3 (NumbersInOrder)",
        /// A session is kept until the store loses its data.
        SessionIsKept = "rule 4 (SessionIsKept)",
        /// No exchange takes longer than the faults and the patience of the servers.
        NoEndlessWait = "rule 5 (NoEndlessWait)",
        /// When all faults are over, each client gets a reply.
        Recovers = "rule 6 (Recovers)",
        /// Each exchange has at most one response, with a status that fits.
        ValidResponses = "rule 7 (ValidResponses)",
        /// A call runs at the home of its session. Only a store that lost its data may name another home, until the lease is renewed.
        RunsAtHome = "rule 8 (RunsAtHome)",
        /// Nothing panics.
        NoPanic = "rule 9 (NoPanic)",
        /// The same script gives the same run.
        SameRun = "rule 10 (SameRun)",
    }
}

/// A run.
pub type Script = everlink_simulation::Script<FleetSimulation>;

/// The counts of one run, or of many.
pub type Report = everlink_simulation::Report<FleetSimulation>;

/// The simulation of servers that share a store. A flaw is in the store or in the network between the servers and their clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetSimulation;

impl Simulation for FleetSimulation {
    type Setup = Setup;
    type Step = Step;
    type Fault = Fault;
    type Rule = Rule;

    const CRATE: &'static str = "everlink_fleet_sim";
    const BREAK_HELP: &'static str = "break the rule of this number on purpose";
    const RULES: &'static [Rule] = Rule::ALL.split_at(8).0;
    const RULE_OF_PANICS: Rule = Rule::NoPanic;
    const RULE_OF_REPEATS: Rule = Rule::SameRun;
    const FAULTS: &'static [Fault] = Fault::ALL;
    const TABLE: &'static str = include_str!("../../../src/server/lifecycle/table.txt");
    const CAPS: &'static [Cap<Step>] = &[
        (&[0, 10, 100], |step, limit| {
            step.after = step.after.min(limit.into());
        }),
        (&[200, 1_000], |step, limit| {
            step.span = step.span.min(limit.into());
        }),
    ];

    fn script(seed: u64) -> Script {
        script::from_seed(seed)
    }

    fn play(script: &Script, flaw: Option<Rule>, report: &mut Report) -> Duration {
        world::play(script, flaw, report)
    }

    fn why_not_taken(_from: &str, on: &str, _to: &str) -> Option<&'static str> {
        match on {
            "EndOfInput" | "WriteFailed" => Some("of a server over a pipe"),
            "DrainOver" => Some("it does not change the state"),
            "FlushOver" => Some("all clients read what they are sent"),
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
    everlink_simulation::play::<FleetSimulation>(text);
}

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
//! assert!(report.simulated.as_secs() > 0);
//! ```
//!
//! `cargo xtask sim --runs N --seed S` runs many seeds and prints the counts. A run that breaks a rule is [shrunk](shrink) to a small
//! script for a test.

use std::time::Duration;

mod oracle;
mod report;
mod script;
mod subject;
mod world;

pub use everlink_simulation::{BadScript, run, run_with_trace, shrink};
use everlink_simulation::{Cap, Simulation};
pub use oracle::Rule;
pub use script::{Action, Dialect, Fault, Pace, Peer, Room, Setup, Shape, Step, StepKind};

/// A run.
pub type Script = everlink_simulation::Script<LinkSimulation>;

/// The counts of one run, or of many.
pub type Report = everlink_simulation::Report<LinkSimulation>;

/// The simulation of links. A flaw replaces the library's machine by one that breaks a rule on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkSimulation;

impl Simulation for LinkSimulation {
    type Setup = Setup;
    type Step = Step;
    type Fault = Fault;
    type Rule = Rule;

    const CRATE: &'static str = "everlink_sim";
    const BREAK_HELP: &'static str = "use a machine that breaks the rule of this number";
    const RULES: &'static [Rule] = Rule::ALL;
    const RULE_OF_PANICS: Rule = Rule::PeerIsHarmless;
    const RULE_OF_REPEATS: Rule = Rule::TimeOnlyByInput;
    const FAULTS: &'static [Fault] = Fault::ALL;
    const TABLE: &'static str = include_str!("../../../src/client/lifecycle/table.txt");
    const CAPS: &'static [Cap<Step>] = &[
        (&[0, 1, 10, 100], |step, limit| {
            step.after = step.after.min(limit)
        }),
        (&[0, 1, 2, 3], |step, limit| {
            step.parameter = step.parameter.min(limit)
        }),
    ];

    fn script(seed: u64) -> Script {
        script::from_seed(seed)
    }

    fn play(script: &Script, flaw: Option<Rule>, report: &mut Report) -> Duration {
        world::play(script, flaw, report)
    }
}

/// Runs a script in text form, for a test.
///
/// # Panics
///
/// If the text is no script, or if a rule is broken.
pub fn play(text: &str) {
    everlink_simulation::play::<LinkSimulation>(text);
}

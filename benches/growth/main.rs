//! Runs single steps of a machine beside n other objects: `cargo xtask growth`. Counts nothing itself.
//!
//! Each scenario is created with n objects of one kind. Then each of its steps is taken `REPEAT` times. Valgrind counts only inside of `counted`; this
//! program tells it when to start and how to name the result. Without valgrind, the program just takes all steps.

mod client;
mod http;
mod meter;
mod pipe;
mod relay;

use std::env;

use meter::Meter;

/// Creates a scenario and takes its steps.
type Scenario = fn(&mut Meter);

/// All scenarios by name.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("client-calls", client::calls),
    ("client-watch-legacy", client::legacy_watch),
    ("client-watch-modern", client::modern_watch),
    ("pipe-asks", pipe::asks),
    ("pipe-calls", pipe::calls),
    ("pipe-queue", pipe::queue),
    ("relay-calls", relay::calls),
    ("relay-listens-legacy", relay::listens_with_legacy_server),
    ("relay-listens-modern", relay::listens_with_modern_server),
    ("relay-sessions", relay::sessions),
    ("site-calls", http::calls),
    ("site-listens", http::listens),
    ("site-sessions", http::sessions),
];

/// With `SCENARIO N`, takes the steps of this scenario with n objects. Without arguments, prints the names of all scenarios.
fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|w| w != "--bench").collect();
    let (Some(name), Some(n)) = (arguments.first(), arguments.get(1)) else {
        for (name, _) in SCENARIOS {
            println!("{name}");
        }
        return;
    };
    let scenario = SCENARIOS.iter().find(|(of, _)| of == name);
    let (_, scenario) = scenario.expect("there is such a scenario");
    let n = n.parse().expect("n is a number");
    scenario(&mut Meter::new(n));
}

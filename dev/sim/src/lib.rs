//! A year of crashes in a minute: everlink in a world that is made from a seed.
//!
//! A run is a [`Script`]: how an application, its link, perhaps a relay, and a server are set up, and what is done to them when. It is
//! made from a seed, and can be written down and read again. It has two phases. In the first, the application does what applications do
//! while processes die, networks fail, proxies interfere, servers misbehave, drivers stall and clocks jump, as the script says. In the second
//! nothing goes wrong any more, and the link must get well: be ready by itself, carry a call, a list and the news, and close in order.
//! After every step an oracle that shares no code with the machine judges it by the [rules](Rule). The same script is the same run, to
//! the byte.
//!
//! ```
//! use everlink_sim::{Script, run};
//!
//! let script = Script::of_seed(7);
//! let (tally, broken) = run(&script, None);
//! assert!(broken.is_none());
//! assert_eq!(script.to_string().parse(), Ok(script));
//! assert!(tally.simulated().as_secs() > 0);
//! ```
//!
//! `cargo xtask sim --runs N --seed S` plays many, and prints what was seen; a run that breaks a rule is [shrunk](shrink) to a script that
//! is a test.

mod chance;
mod oracle;
mod report;
mod script;
mod shrink;
mod subject;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use oracle::{Broken, Rule};
pub use report::Tally;
pub use script::{
    Act, BadScript, Dialect, Fault, Pace, Peer, Room, Script, Setup, Shape, Verb, What,
};
pub use shrink::shrink;

/// Plays a script. What was seen, and the first rule that was broken, if one was.
///
/// `flaw` puts a machine in the place of the library's that breaks this rule on purpose, so that the oracle can be seen to fail.
#[must_use]
pub fn run(script: &Script, flaw: Option<Rule>) -> (Tally, Option<Broken>) {
    play_with(script, flaw, Tally::default())
}

/// The same, with the [story](Tally::story) of what happened.
#[must_use]
pub fn tell(script: &Script, flaw: Option<Rule>) -> (Tally, Option<Broken>) {
    play_with(script, flaw, Tally::with_story())
}

fn play_with(script: &Script, flaw: Option<Rule>, tally: Tally) -> (Tally, Option<Broken>) {
    let played = catch_unwind(AssertUnwindSafe(|| world::play(script, flaw, tally)));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        let what = format!("it panicked: {}", text.unwrap_or("without a word"));
        let rule = Rule::PeerCannotHurt;
        (Tally::default(), Some(Broken { rule, what }))
    })
}

/// Plays a script that is written down, for a test.
///
/// # Panics
///
/// When it is no script, or a rule is broken.
pub fn play(text: &str) {
    let script: Script = text.parse().expect("a script");
    if let (_, Some(broken)) = run(&script, None) {
        panic!("{broken}");
    }
}

//! What one step of a machine costs beside n others: `cargo xtask growth`. Counts nothing itself.
//!
//! Each world is made with n of something, then some of its steps are taken, `REPEAT` times each. Only inside of `counted` is anything counted,
//! by valgrind, which this program tells when to look and how to call what it saw. Run by itself it just takes all steps.

mod client;
mod meter;
mod pipe;
mod relay;
mod site;

use std::env;

use meter::Meter;

/// Makes a world and takes its steps.
type World = fn(&mut Meter);

/// All worlds by name.
const WORLDS: &[(&str, World)] = &[
    ("client-calls", client::calls),
    ("client-watch-legacy", client::legacy_watch),
    ("client-watch-modern", client::modern_watch),
    ("pipe-asks", pipe::asks),
    ("pipe-calls", pipe::calls),
    ("pipe-queue", pipe::queue),
    ("relay-calls", relay::calls),
    ("relay-listens-legacy", relay::listens_before_legacy),
    ("relay-listens-modern", relay::listens_before_modern),
    ("relay-sessions", relay::sessions),
    ("site-calls", site::calls),
    ("site-listens", site::listens),
    ("site-sessions", site::sessions),
];

/// `WORLD N`: takes the steps of this world with n of what it is about. Nothing: says which worlds there are.
fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|w| w != "--bench").collect();
    let (Some(name), Some(n)) = (words.first(), words.get(1)) else {
        for (name, _) in WORLDS {
            println!("{name}");
        }
        return;
    };
    let world = WORLDS.iter().find(|(of, _)| of == name);
    let (_, world) = world.expect("there is such a world");
    let n = n.parse().expect("n is a number");
    world(&mut Meter::new(n));
}

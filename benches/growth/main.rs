//! Runs single steps of a machine beside n other objects: `cargo xtask growth`. Counts nothing itself.
//!
//! Each world is created with n objects of one kind. Then each of its steps is taken `REPEAT` times. Valgrind counts only inside of `counted`; this
//! program tells it when to start and how to name the result. Without valgrind, the program just takes all steps.

mod client;
mod meter;
mod pipe;
mod relay;
mod site;

use std::env;

use meter::Meter;

/// Creates a world and takes its steps.
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

/// With `WORLD N`, takes the steps of this world with n objects. Without arguments, prints the names of all worlds.
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

//! A hostile host beside a good one, before one real guard: the good one's calls all succeed, and memory stays within its bound. How fast they
//! are is for `cargo xtask hostile`.

use std::path::Path;

use hostile::attacks::named;
use hostile::{MEMORY_BOUND, Scale, run};

use crate::props::EVERLINK;

fn survive(attack: &str) {
    let attack = named(attack).expect("such an attack");
    let felt = run(Path::new(EVERLINK), attack, Scale::QUICK).expect("a guard and a good host");
    let none: [String; 0] = [];
    assert_eq!(felt.beside.failures, none, "calls of the good host");
    assert_eq!(felt.newcomers.failures, none, "hosts that came meanwhile");
    let memory = felt.peak_memory;
    assert!(memory < MEMORY_BOUND, "{} MiB", memory >> 20);
}

macro_rules! attacks {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            survive($name);
        })*
    };
}

attacks! {
    good_host_does_not_feel_hung_calls: "hung-calls",
    good_host_does_not_feel_bare_initializes: "bare-initializes",
    good_host_does_not_feel_sessions_without_end: "sessions",
    good_host_does_not_feel_unfinished_bodies: "unfinished-bodies",
    good_host_does_not_feel_unread_answers: "unread-answers",
    good_host_does_not_feel_connections_without_end: "connections",
    good_host_does_not_feel_unfinished_heads: "unfinished-heads",
    good_host_does_not_feel_a_thousand_listens: "listens",
    good_host_does_not_feel_unknown_cancels: "unknown-cancels",
}

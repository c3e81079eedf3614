//! Every life of a machine that can be told in a few words, one after another, the shortest first.
//!
//! A fuzzer finds what is hidden deep, but says nothing of what it did not try. Here a small alphabet (what a driver can
//! report, what an application can want, what a peer can say, how time passes) is played in all orders up to a depth,
//! breadth first, and every rule is checked on every edge. What is found is found by the shortest word that shows it, and
//! the letters have names.
//!
//! ```text
//! word --play--> World --look--> what can be seen, as one number
//!                  |-- each letter --> what comes out, and what can be seen then   } the fingerprint
//!                  '-- each future --> what comes of it in the long run            } of the word
//! ```
//!
//! # What is the same
//!
//! Machines cannot be copied, so a state is the word that leads to it, and is played anew whenever it is looked at. Two words
//! lead to the same state, and only the first is continued, if
//!
//! - they look the same: what the machine says of itself, what is due next and in how long, what the records of the rules
//!   hold of what is not over yet, and what the peer has before it;
//! - every letter brings the same outputs, byte by byte but for the numbers of ids, and what can be seen after it is the same;
//! - so does every *future*: it is left alone for a while, it is shut down, and it meets a good peer. These are judged as well: a link
//!   that is shut down must end within its ladder, and one that meets a good server must get ready and settle all its calls.
//!
//! A letter after which nothing came out, no time had passed and everything looks as before leads nowhere and is not continued.
//!
//! What is left out on purpose: the numbers of ids and how far they are apart, times that have passed and do not bear on what is due, how
//! long texts are, how often it failed beyond the budget, and what failures tell of how the life before ended.
//!
//! So two states are only taken for one another wrongly if they differ in something that none of the letters shows at once and none
//! of the futures ever, but some longer word does. Some of the merged words, and of those that lead nowhere, are therefore played
//! on, both with the same random letters, and must go on looking the same: [`Report::differing`] has those that do not.
//!
//! What is not explored is what the alphabets do not say: bytes cut anywhere, drivers that poll late or report late what was
//! sent, jitter, other limits. That is for the fuzzers, which share the rules.

mod client;
mod relay;
mod search;
mod server;
mod sight;
mod web;

pub use search::{Difference, Report, Violation};
pub use sight::Sight;

/// How far, and with how many hands.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The length of the longest words.
    pub depth: usize,
    /// How many threads play. What is found does not depend on it.
    pub threads: usize,
    /// How many of the merged words are continued, to see whether they may be.
    pub pairs: usize,
}

impl Bounds {
    /// All words of up to this many letters.
    #[must_use]
    pub const fn depth(depth: usize) -> Bounds {
        Bounds {
            depth,
            threads: 1,
            pairs: 0,
        }
    }

    /// With this many threads.
    #[must_use]
    pub const fn with_threads(self, threads: usize) -> Bounds {
        Bounds { threads, ..self }
    }

    /// And this many of the merged words continued.
    #[must_use]
    pub const fn with_pairs(self, pairs: usize) -> Bounds {
        Bounds { pairs, ..self }
    }
}

/// The machines that can be explored, and how deep that can be done in minutes. A relay is two machines with peers on both sides:
/// it has fewer letters than the others, so that it gets as deep.
pub const MACHINES: [(&str, usize); 4] = [
    ("client", 8),
    ("client-http", 8),
    ("server", 8),
    ("relay", 8),
];

/// Explores one of the [`MACHINES`].
///
/// # Errors
///
/// With the shortest word that breaks a rule.
///
/// # Panics
///
/// When there is no such machine.
pub fn explore(machine: &str, bounds: Bounds) -> Result<Report, Violation> {
    match machine {
        "client" => search::search(&client::stdio(), bounds),
        "client-http" => search::search(&web::http(), bounds),
        "server" => search::search(&server::stdio(), bounds),
        "relay" => search::search(&relay::relay(), bounds),
        other => panic!("there is no machine {other}"),
    }
}

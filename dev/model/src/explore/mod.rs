//! Performs every short sequence of operations on a machine, the shortest first.
//!
//! A fuzzer finds what is hidden deep, but says nothing of what it did not try. Here a few actions (what a driver can
//! report, what an application can want, what a peer can send, how time passes) are performed in all orders up to a depth,
//! breadth first, and every rule is checked after each. A violation is found by the shortest sequence that shows it.
//!
//! ```text
//! sequence --perform--> World --look--> what can be seen, as one number
//!                         |-- each action --> the outputs, and what can be seen then   } the fingerprint
//!                         '-- each ending --> what becomes of it in the long run       } of the state
//! ```
//!
//! # Which states are the same
//!
//! Machines cannot be copied, so a state is the sequence that leads to it, and is performed anew whenever it is looked at. Two
//! sequences lead to the same state, and only the first is continued, if
//!
//! - they look the same: the Debug output of the machine, its next deadline relative to now, what the rules remember of
//!   what is not over yet, and what the peer has to answer;
//! - every action brings the same outputs, byte by byte but for the numbers of ids, and the state after it looks the same;
//! - so does every *ending*, and it takes as long: the machine is left alone for a while, it is shut down, and it meets a good peer. These are judged as
//!   well: a link that is shut down must end within its close steps, and one that meets a good server must get ready and settle its calls.
//!
//! An action that does nothing to the machine leads nowhere and is not continued. One that does something is, even if it shows nothing: what it
//! changed may show only later.
//!
//! Of a server over HTTP and of an authorizer, too little can be seen for that: sequences that look the same are all continued there.
//!
//! What can be seen leaves out on purpose: the numbers of ids and how far they are apart, times in the past that do not change a deadline,
//! the lengths of texts, how many failures there were beyond the budget, and what the text of a failure says about the end of the epoch before.
//!
//! So two states are wrongly merged only if they differ in something that none of the actions and none of the endings shows, but some
//! longer sequence does. To check this, some pairs of merged sequences are continued with the same random actions and must go on
//! looking the same. [`Report::differing`] has those that do not.
//!
//! Not explored: reads that end anywhere, drivers that poll or report sent bytes late, jitter, other limits than those of the machines here.
//! That is for the fuzzers, which share the rules.

mod machines;
mod search;
mod view;

use crate::server::Kept;
pub(crate) use search::{Action, Explored, Machine};
pub use search::{Difference, Report, Violation};
pub(crate) use view::StateView;

/// How far to explore, and with how many threads.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The length of the longest sequences.
    pub depth: usize,
    /// How many threads to use. The result does not depend on it.
    pub threads: usize,
    /// How many pairs of merged sequences are continued, to check the merging.
    pub pairs: usize,
}

impl Bounds {
    /// All sequences of up to this many actions, with one thread and without a check of the merging.
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

    /// And this many of the merged sequences continued.
    #[must_use]
    pub const fn with_pairs(self, pairs: usize) -> Bounds {
        Bounds { pairs, ..self }
    }
}

/// The machines that can be explored, and how deep that takes minutes. A relay is two machines with peers on both sides:
/// it has fewer actions than the others, so that it gets as deep.
pub const MACHINES: [(&str, usize); 7] = [
    ("client", 8),
    ("client-http", 8),
    ("server", 8),
    ("server-http", 5),
    ("server-shared", 5),
    ("relay", 8),
    ("auth", 6),
];

/// Explores one of the [`MACHINES`].
///
/// # Errors
///
/// With the shortest sequence that breaks a rule.
///
/// # Panics
///
/// When there is no such machine.
pub fn explore(machine: &str, bounds: Bounds) -> Result<Report, Violation> {
    match machine {
        "client" => search::search(&machines::client(), bounds),
        "client-http" => search::search(&machines::client_http(), bounds),
        "server" => search::search(&machines::server(), bounds),
        "server-http" => search::search(&machines::server_http(Kept::ByServer), bounds),
        "server-shared" => search::search(&machines::server_http(Kept::Shared), bounds),
        "relay" => search::search(&machines::relay(), bounds),
        "auth" => search::search(&crate::auth::machine(), bounds),
        other => panic!("there is no machine {other}"),
    }
}

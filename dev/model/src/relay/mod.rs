//! A relay, exercised: a host in front that says anything, servers behind that die at any time, and what was promised to the host.
//!
//! ```text
//! host (words of a client, as bytes) <-> Relay <-> Server, Server, ... each until it is killed
//! ```
//!
//! The host's side is judged as any dialogue with a server is; and each call is followed through: which of the servers ran it, and
//! whether the host was told what that server answered.

mod ledger;
mod play;
mod script;

pub(crate) use play::World;
pub use play::run;
pub use script::{Op, Setup};

//! A server end, exercised: a client that says anything, an application that does anything, and the rules.
//!
//! ```text
//! bytes --script--> Setup, Ops --play--> Server --outputs--> rules
//!                     words --^    \--what the client said--^
//! ```
//!
//! The rules know only what was fed and what came out; they ask the machine nothing that they could know themselves.

mod play;
mod rules;
mod script;
mod words;

pub use play::run;
pub(crate) use play::{World, question};
pub(crate) use rules::assert_nothing_secret;
pub use script::{Op, Setup, Speech};
pub(crate) use script::{SECRET, bytes, offer};
pub(crate) use words::{PAYLOAD, Words};

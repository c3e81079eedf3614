//! Both ends of a link, exercised: an application at either end, lives that end at any time, and what was promised to both.
//!
//! What each call was and what the server's application made of it is known here, so a reply that belongs to another call,
//! a call that ran twice and one that ran although it was said not to have been sent are all seen.

mod ledger;
mod play;
mod script;

pub use play::run;
pub use script::{Op, Setup};

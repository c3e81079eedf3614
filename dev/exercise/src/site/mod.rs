//! A server over HTTP, exercised: clients of both eras that ask anything in any order, an application that does anything, and what
//! must always hold.
//!
//! Every message of a client says whose it is, and so does every answer that the application gives to it: what reaches another
//! client than the one that asked is seen.

mod clients;
mod play;
mod rules;
mod script;
mod stores;

pub use play::run;
pub use script::{Kept, Op, Setup};

//! The relay: `guard` is what programs hold, `owner` the one who carries it all out.

mod guard;
mod owner;

pub use guard::{Guard, Status};
pub use owner::GuardOwner;

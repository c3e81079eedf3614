//! The relay: `guard` is the application's handle, and `owner` runs the machine.

mod guard;
mod owner;

pub use guard::{Guard, Status};
pub use owner::GuardOwner;

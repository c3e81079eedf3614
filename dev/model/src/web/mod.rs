//! A client over HTTP, exercised: any responses, in any order between exchanges, cut anywhere, and what must always hold.
//!
//! What comes back is mostly sensible, because the server knows what it was asked; what is not is made of bytes of the script.

mod peer;
mod play;
mod script;

pub(crate) use play::World;
pub use play::run;
pub use script::{Form, On, Op, setup};

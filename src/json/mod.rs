//! JSON as text: validates it, finds the parts of a value, and edits objects without building a tree. Does not depend on JSON-RPC.
//!
//! [`Json`] borrows the text of a value, [`Payload`] owns it. `scan` validates a text, and `skip` finds the ends of values in a validated one; `object` reads and
//! edits members; `path` finds the values at a path; `unescape` decodes strings.

pub mod object;
mod path;
mod payload;
pub(crate) mod scan;
pub(crate) mod skip;
mod unescape;
mod value;

pub use path::Step;
pub use payload::Payload;
pub use value::{Json, NotJson};

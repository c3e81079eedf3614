//! The client's end: `link` is what programs hold, `call` one call of theirs, `owner` the one who carries it all out.

mod call;
mod link;
mod owner;

pub use call::{Call, CallError, Canceller, Progress, ToolResult};
pub use link::{Link, NotReady};
pub use owner::LinkOwner;

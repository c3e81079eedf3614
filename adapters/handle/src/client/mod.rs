//! The client's end: `link` is what programs hold, `call` one call of theirs, `texts` what most of them are made for, `owner` the one who carries it all out.

mod call;
mod link;
mod owner;
mod texts;

pub use call::{Call, CallError, Canceller, Progress, ToolResult};
pub use link::{Link, NotReady};
pub use owner::LinkOwner;

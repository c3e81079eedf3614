//! The client's end: `link` is the application's handle, `call` one call, and `owner` runs the machine.

mod call;
mod link;
mod owner;

pub use call::{Call, CallError, Canceller, Progress, ToolResult};
pub use link::{Link, NotReady};
pub use owner::LinkOwner;

//! The client's end: `link` is the application's handle, `call` one call, `texts` joins the text of a result, and `owner` runs the machine.

mod call;
mod link;
mod owner;
mod texts;

pub use call::{Call, CallError, Canceller, Progress, ToolResult};
pub use link::{Link, NotReady};
pub use owner::LinkOwner;

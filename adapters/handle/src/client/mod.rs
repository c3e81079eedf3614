//! The client's end: `link` is the application's handle, `call` one call, `ask` one ask of the server, and `owner` runs the machine.

mod ask;
mod call;
mod link;
mod owner;

pub use ask::OpenAsk;
pub use call::{Call, CallBuilder, CallError, Canceller, Progress, ToolResult};
pub use link::{Link, NotReady};
pub use owner::LinkOwner;

//! The server's end: `service` is what programs hold, `task` one request of theirs, `owner` the one who carries it all out.

mod owner;
mod service;
mod task;

pub use owner::ServiceOwner;
pub use service::Service;
pub use task::{Answer, AskError, Context, Response, Task};

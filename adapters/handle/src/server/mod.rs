//! The server's end: `service` is the application's handle, `task` one request to answer, and `owner` runs the machine.

mod owner;
mod service;
mod task;

pub use owner::ServiceOwner;
pub use service::Service;
#[cfg(all(test, loom))]
pub(crate) use task::CancelFlag;
pub use task::{Answer, Context, Response, ServiceError, Task};

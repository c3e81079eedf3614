//! Transports for systems that cannot wait for all kinds of events at once: a thread per pipe, and one message queue. `child` and `stdio` are the
//! transports of the two ends. `pipe_threads` has the threads at the pipes, and `message_queue` is the queue on which the driver sleeps. The system
//! modules spawn and end processes, and take over the standard streams of this process.
//!
//! Windows uses these transports. The feature `threads` adds them on Unix, so that the same tests can run with them.

mod child;
mod message_queue;
mod pipe_threads;
mod stdio;

pub(crate) use child::ChildTransport;
pub(crate) use stdio::StdioTransport;

#[cfg(feature = "threads")]
pub use for_tests::{connect, serve};

#[cfg(feature = "threads")]
mod for_tests {
    use std::io;
    use std::process::Command;

    use everlink::server::{self, Request};
    use everlink::{Config, ErrorObject};
    use everlink_handle::{Context, Link, Response, Service};

    /// Like [`connect`](crate::connect), with these transports.
    ///
    /// # Errors
    ///
    /// Like [`connect`](crate::connect).
    pub fn connect(command: Command, config: Config) -> io::Result<Link> {
        crate::drive::connect_with::<super::ChildTransport>(command, config)
    }

    /// Like [`serve`](crate::serve), with these transports.
    ///
    /// # Errors
    ///
    /// Like [`serve`](crate::serve).
    pub fn serve<F, R>(config: server::Config, function: F) -> io::Result<Service>
    where
        F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
        R: Into<Response>,
    {
        crate::serve::serve_with::<super::StdioTransport, _>(config, function)
    }
}

//! Hands for where the system cannot wait for all that can happen at once: a thread at each pipe, and one inbox for all that they have to
//! tell. `child` and `streams` are the hands of the two ends, `ends` the threads at the pipes, `inbox` is how the driver sleeps. What starts
//! and ends processes, and takes the streams of this one over, is the system's.
//!
//! That is Windows. With the feature `threads` they are there on Unix, too, to be put through the same tests.

mod child;
mod ends;
mod inbox;
mod streams;

pub(crate) use child::Children;
pub(crate) use streams::Streams;

#[cfg(feature = "threads")]
pub use for_tests::{connect, serve};

#[cfg(feature = "threads")]
mod for_tests {
    use std::io;
    use std::process::Command;

    use everlink::server::{self, Request};
    use everlink::{Config, ErrorObject};
    use everlink_handle::{Context, Link, Response, Service};

    /// As [`connect`](crate::connect), with these hands.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect(command: Command, config: Config) -> io::Result<Link> {
        crate::drive::connect_by::<super::Children>(command, config)
    }

    /// As [`serve`](crate::serve), with these hands.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn serve<F, R>(config: server::Config, function: F) -> io::Result<Service>
    where
        F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
        R: Into<Response>,
    {
        crate::serve::serve_by::<super::Streams, _>(config, function)
    }
}

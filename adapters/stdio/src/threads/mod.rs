//! Transports for systems that cannot wait for all kinds of events at once: a thread per pipe, and one inbox for all of them. They need no reactor.
//! `child` and `stdio` do the I/O of the two ends, and `pipe_threads` has the threads at the pipes. The system modules spawn and end processes, and
//! take over the standard streams of this process.
//!
//! Windows uses these transports. The feature `threads` adds them on Unix, so that the same tests can run with them.

mod child;
mod pipe_threads;
mod stdio;

pub use child::ThreadedChild;
pub use stdio::ThreadedStdio;

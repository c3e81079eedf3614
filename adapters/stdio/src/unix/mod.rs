//! Processes and pipes on Unix. `child` and `streams` are the transports of the two ends. `tree` spawns and ends processes, on the threads of
//! `nursery`. `session` signals all processes of one, and `processes` lists processes and their activity. `cleaner` kills servers whose owner was
//! killed. `own` takes over the standard streams of this process, `pen` writes, and `poll` and `wake` let the thread sleep and wake up.

mod child;
pub mod cleaner;
mod nursery;
pub mod own;
mod pen;
mod poll;
#[cfg(target_os = "linux")]
mod processes;
mod session;
mod streams;
pub mod tree;
mod wake;

pub(crate) use child::Children;
pub(crate) use streams::Streams;

/// The maximum number of bytes per read or write.
const CHUNK: usize = 64 << 10;

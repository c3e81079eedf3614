//! Processes and pipes on Unix. `child` and `stdio` are the transports of the two ends. `process_tree` spawns and ends processes, on the threads of
//! `spawn_threads`. `session` signals all processes of one, and `processes` lists processes and their activity. `cleaner` kills servers whose owner
//! was killed. `standard_streams` takes over the standard streams of this process, `writer` writes, and `poll` and `wake` let the thread sleep and
//! wake up.

mod child;
pub mod cleaner;
mod poll;
pub mod process_tree;
#[cfg(target_os = "linux")]
mod processes;
mod session;
mod spawn_threads;
pub mod standard_streams;
mod stdio;
mod wake;
mod writer;

pub(crate) use child::ChildTransport;
pub(crate) use stdio::StdioTransport;

/// The maximum number of bytes per read or write.
const CHUNK: usize = 64 << 10;

//! Processes and pipes on Unix. `child` and `stdio` do the I/O of the two ends, through `pipe_io` and the `reactor` of a runtime. `process_tree` spawns
//! and ends processes, on the threads of `spawn_threads`. `session` signals all processes of one, and `processes` lists processes and their activity.
//! `cleaner` kills servers whose owner was killed. `standard_streams` takes over the standard streams of this process, and `poll` and `wake` let a
//! thread sleep and wake up.

mod child;
pub mod cleaner;
mod pipe_io;
mod poll;
pub mod process_tree;
#[cfg(target_os = "linux")]
mod processes;
pub mod reactor;
mod session;
mod spawn_threads;
pub mod standard_streams;
mod stdio;
mod wake;

pub use child::PolledChild;
pub use stdio::StdioTransport;

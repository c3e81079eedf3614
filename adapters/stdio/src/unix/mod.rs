//! Processes and pipes as Unix has them. `child` and `streams` are the hands of the two ends; `tree` starts and ends processes, `session` signals all of
//! one, `processes` reads what there are and what they do, `cleaner` ends those whose owner was killed, `own` keeps the streams of this one, `pen` writes,
//! `poll` and `wake` are how the thread sleeps.

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

/// How much is read or written at once.
const CHUNK: usize = 64 << 10;

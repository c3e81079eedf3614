//! Processes and pipes as Unix has them. `child` and `streams` are the hands of the two ends; `tree` starts and ends processes, `own` keeps
//! the streams of this one, `activity` what they do, `pen` writes, `poll` and `wake` are how the thread sleeps.

#[cfg(target_os = "linux")]
mod activity;
mod child;
mod nursery;
pub mod own;
mod pen;
mod poll;
mod streams;
pub mod tree;
mod wake;

pub(crate) use child::Children;
pub(crate) use streams::Streams;

/// How much is read or written at once.
const CHUNK: usize = 64 << 10;

//! The threads that spawn processes. A spawn may take long and must not delay other links. Does not know what is spawned.
//!
//! The threads run as long as this process. On Linux, a child that is set to die with its parent dies with the *thread* that spawned it.

use std::mem;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, getpid};

use crate::workers::{Threads, Workers};

const THREADS: Threads = Threads {
    name: "everlink-spawn",
    max: 8,
    idle_timeout: None,
};

/// The threads, and the process that they belong to.
static SPAWN_THREADS: Mutex<Option<(Pid, Workers<Job>)>> = Mutex::new(None);

type Job = Box<dyn FnOnce() + Send>;

/// Runs this function on one of the threads.
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    let mut threads = SPAWN_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if threads
        .as_ref()
        .is_none_or(|(process, _)| *process != getpid())
    {
        let workers = Workers::new(THREADS, |_| true, |job: Job| job());
        // A fork does not copy threads. The parent's may hold a lock of theirs, so they are not dropped.
        mem::forget(threads.replace((getpid(), workers)));
    }
    let left = threads
        .as_ref()
        .map(|(_, workers)| workers.run(Box::new(job)));
    drop(threads);
    // Jobs are left only if the system has no thread: run them on this one.
    left.into_iter().flatten().for_each(|job| job());
}

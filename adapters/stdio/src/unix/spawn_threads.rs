//! The threads that spawn processes. A spawn may take long and must not delay other links. Does not know what is spawned.
//!
//! The threads run as long as this process. On Linux, a child that is set to die with its parent dies with the *thread* that spawned it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, getpid};

/// The maximum number of concurrent spawns; more wait in the queue.
const MAX_THREADS: usize = 8;

static SPAWN_THREADS: SpawnThreads = SpawnThreads {
    state: Mutex::new(State {
        process: None,
        jobs: VecDeque::new(),
        idle: 0,
        threads: 0,
    }),
    job_queued: Condvar::new(),
};

struct SpawnThreads {
    state: Mutex<State>,
    job_queued: Condvar,
}

struct State {
    /// The process that the threads belong to.
    process: Option<Pid>,
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs this function on one of the threads.
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    let mut state = SPAWN_THREADS.lock();
    if state.process != Some(getpid()) {
        // A fork does not copy threads, so the parent's state is discarded.
        *state = State {
            process: Some(getpid()),
            jobs: VecDeque::new(),
            idle: 0,
            threads: 0,
        };
    }
    state.jobs.push_back(Box::new(job));
    if state.jobs.len() > state.idle && state.threads < MAX_THREADS {
        let thread = thread::Builder::new().name("everlink-spawn".into());
        if thread.spawn(|| SPAWN_THREADS.run_thread()).is_ok() {
            state.threads += 1;
        } else if state.threads == 0 {
            // The system has no thread left: run it on this one.
            let job = state.jobs.pop_back();
            drop(state);
            return job.into_iter().for_each(|job| job());
        }
    }
    SPAWN_THREADS.job_queued.notify_one();
}

impl SpawnThreads {
    fn run_thread(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else {
                state.idle += 1;
                state = self
                    .job_queued
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// Locks the state and ignores poisoning: orders run outside of the lock, so no panic leaves the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

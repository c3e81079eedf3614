//! Threads that run the jobs of a server, one per concurrent request. Does not know what a job is.
//!
//! Waking a thread often costs more than a job. So one thread is woken at a time, and it wakes the next one if jobs are left: few threads run all quick
//! jobs, and each job that blocks soon has its own thread.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

/// How long an idle thread is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A pool of threads that run jobs. Dropping it drops the queued jobs, and ends each thread after its present job.
pub(crate) struct Workers<J>(Arc<Pool<J>>);

struct Pool<J> {
    max_threads: usize,
    run: Box<dyn Fn(J) + Send + Sync>,
    is_wanted: fn(&J) -> bool,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    /// Whether a thread was woken or started and does not run yet.
    is_waking: bool,
    is_closed: bool,
}

impl<J: Send + 'static> Workers<J> {
    /// Creates a pool of at most `max_threads` threads; further jobs wait. `run` runs a job and must not panic. A job that is no longer wanted is
    /// dropped when the queue is long.
    pub(crate) fn new(
        max_threads: usize,
        is_wanted: fn(&J) -> bool,
        run: impl Fn(J) + Send + Sync + 'static,
    ) -> Workers<J> {
        Workers(Arc::new(Pool {
            max_threads,
            run: Box::new(run),
            is_wanted,
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
                is_waking: false,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }))
    }

    /// Runs a job on a thread. If the system has no thread left, and there is none yet, the job is dropped.
    pub(crate) fn run(&self, job: J) {
        let pool = &self.0;
        let mut state = pool.lock();
        state.jobs.push_back(job);
        let mut dropped = VecDeque::new();
        if state.jobs.len() > pool.max_threads {
            // The machine limits the wanted jobs; others must not pile up.
            let jobs = mem::take(&mut state.jobs).into_iter();
            (state.jobs, dropped) = jobs.partition(pool.is_wanted);
        }
        dropped.append(&mut pool.wake_thread(state));
        // Dropping a job may run other code, which must not happen under the lock.
        drop(dropped);
    }
}

impl<J> Drop for Workers<J> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let jobs = mem::take(&mut state.jobs);
        drop(state);
        self.0.changed.notify_all();
        drop(jobs);
    }
}

impl<J: Send + 'static> Pool<J> {
    /// Wakes or starts a thread, if a job is queued and no thread is on its way. Returns the jobs that nobody will run.
    fn wake_thread(self: &Arc<Self>, mut state: MutexGuard<'_, State<J>>) -> VecDeque<J> {
        if state.is_waking || state.jobs.is_empty() {
            return VecDeque::new();
        }
        if state.idle > 0 {
            state.is_waking = true;
            drop(state);
            self.changed.notify_one();
        } else if state.threads < self.max_threads {
            let pool = Arc::clone(self);
            if spawn(move || pool.run_thread()) {
                state.threads += 1;
                state.is_waking = true;
            } else if state.threads == 0 {
                return mem::take(&mut state.jobs);
            }
        }
        VecDeque::new()
    }

    /// Runs jobs until the thread has been idle for [`IDLE_TIMEOUT`] or the pool is closed.
    fn run_thread(self: &Arc<Self>) {
        let mut state = self.lock();
        state.is_waking = false;
        while !state.is_closed {
            if let Some(job) = state.jobs.pop_front() {
                // This thread runs, so no job is without a thread.
                let _ = self.wake_thread(state);
                (self.run)(job);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE_TIMEOUT);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            state.is_waking = false;
            if timeout.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl<J> Pool<J> {
    /// Locks the state and ignores poisoning: jobs run outside of the lock, so no panic leaves the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread. Returns false if the system has none left.
#[cfg(not(loom))]
fn spawn(run: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name("everlink-task".into());
    thread.spawn(run).is_ok()
}

#[cfg(loom)]
fn spawn(run: impl FnOnce() + Send + 'static) -> bool {
    loom::thread::spawn(run);
    true
}

/// All interleavings, tried by loom: `RUSTFLAGS="--cfg loom" cargo test --lib model`.
#[cfg(all(test, loom))]
mod model {
    use loom::model::Builder;
    use loom::sync::mpsc::channel;

    use super::*;

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    }

    /// Runs two jobs one after the other, and drops the pool.
    fn run_two_jobs(max_threads: usize) {
        let (done, is_done) = channel();
        let workers = Workers::new(
            max_threads,
            |_| true,
            move |job: u8| {
                let _ = done.send(job);
            },
        );
        workers.run(1);
        workers.run(2);
        let sum = is_done.recv().unwrap() + is_done.recv().unwrap();
        assert_eq!(sum, 3);
    }

    #[test]
    fn every_job_runs_on_one_thread() {
        check(|| run_two_jobs(1));
    }

    #[test]
    fn every_job_runs_on_two_threads() {
        check(|| run_two_jobs(2));
    }

    /// The first job ends after the second one.
    #[test]
    fn job_that_blocks_holds_up_no_other() {
        check(|| {
            let (done, is_done) = channel();
            let second = Arc::new((Mutex::new(false), Condvar::new()));
            let workers = Workers::new(
                2,
                |_| true,
                move |is_second: bool| {
                    let mut has_run = second.0.lock().unwrap();
                    if is_second {
                        *has_run = true;
                        second.1.notify_one();
                    }
                    while !*has_run {
                        has_run = second.1.wait(has_run).unwrap();
                    }
                    let _ = done.send(());
                },
            );
            workers.run(false);
            workers.run(true);
            is_done.recv().unwrap();
            is_done.recv().unwrap();
        });
    }
}

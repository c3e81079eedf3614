//! Threads that run jobs: the requests of a server, and spawns of processes. Does not know what a job is.
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

/// The threads of a pool.
pub(crate) struct Threads {
    pub(crate) name: &'static str,
    /// How many there are at most. Further jobs wait.
    pub(crate) max: usize,
    /// How long an idle thread is kept. `None` keeps it as long as the process runs.
    pub(crate) idle_timeout: Option<Duration>,
}

/// A pool of threads that run jobs. Dropping it drops the queued jobs, and ends each thread after its present job.
pub(crate) struct Workers<J>(Arc<Pool<J>>);

struct Pool<J> {
    threads: Threads,
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
    /// Creates a pool. `run` runs a job and must not panic. A job that is no longer wanted leaves the queue when that is long.
    pub(crate) fn new(
        threads: Threads,
        is_wanted: fn(&J) -> bool,
        run: impl Fn(J) + Send + Sync + 'static,
    ) -> Workers<J> {
        Workers(Arc::new(Pool {
            threads,
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

    /// Runs a job on a thread. Returns the jobs that are no longer wanted, or all jobs if there is no thread and the system has none left.
    #[must_use = "dropping a job may run other code"]
    pub(crate) fn run(&self, job: J) -> VecDeque<J> {
        let pool = &self.0;
        let mut state = pool.lock();
        state.jobs.push_back(job);
        let mut left = VecDeque::new();
        if state.jobs.len() > pool.threads.max {
            // Jobs that are no longer wanted must not pile up.
            let jobs = mem::take(&mut state.jobs).into_iter();
            (state.jobs, left) = jobs.partition(pool.is_wanted);
        }
        left.append(&mut pool.wake_thread(state));
        left
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
        } else if state.threads < self.threads.max {
            let pool = Arc::clone(self);
            if spawn(self.threads.name, move || pool.run_thread()) {
                state.threads += 1;
                state.is_waking = true;
            } else if state.threads == 0 {
                return mem::take(&mut state.jobs);
            }
        }
        VecDeque::new()
    }

    /// Runs jobs until the thread has been idle for too long or the pool is closed.
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
            let is_timed_out;
            (state, is_timed_out) = self.wait(state);
            state.idle -= 1;
            state.is_waking = false;
            if is_timed_out && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl<J> Pool<J> {
    /// Waits until something changes. Returns true after the idle timeout.
    fn wait<'a>(&self, state: MutexGuard<'a, State<J>>) -> (MutexGuard<'a, State<J>>, bool) {
        if let Some(timeout) = self.threads.idle_timeout {
            let waited = self.changed.wait_timeout(state, timeout);
            let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            return (state, timeout.timed_out());
        }
        let waited = self.changed.wait(state);
        (waited.unwrap_or_else(PoisonError::into_inner), false)
    }

    /// Locks the state and ignores poisoning: jobs run outside of the lock, so no panic leaves the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread. Returns false if the system has none left.
#[cfg(not(loom))]
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).is_ok()
}

#[cfg(loom)]
fn spawn(_: &str, run: impl FnOnce() + Send + 'static) -> bool {
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

    fn threads(max: usize) -> Threads {
        Threads {
            name: "model",
            max,
            idle_timeout: None,
        }
    }

    /// Runs two jobs one after the other, and drops the pool.
    fn run_two_jobs(max_threads: usize) {
        let (done, is_done) = channel();
        let workers = Workers::new(
            threads(max_threads),
            |_| true,
            move |job: u8| {
                let _ = done.send(job);
            },
        );
        assert!(workers.run(1).is_empty() && workers.run(2).is_empty());
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
                threads(2),
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
            assert!(workers.run(false).is_empty() && workers.run(true).is_empty());
            is_done.recv().unwrap();
            is_done.recv().unwrap();
        });
    }
}

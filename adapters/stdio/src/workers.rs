//! Threads that run the application's function, one per concurrent request. Does not know what a request is about.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use everlink::ErrorObject;
use everlink::server::Request;
use everlink_handle::{Context, Response, Task};

/// How long an idle thread is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A pool of threads that run tasks. Dropping it drops the queued tasks, and ends each thread after its present task.
pub(crate) struct Workers(Arc<Pool>);

struct Pool {
    max_threads: usize,
    function: Box<dyn Fn(Request, Context) -> Result<Response, ErrorObject> + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Workers {
    /// Creates a pool of at most `max_threads` threads; further tasks wait.
    pub(crate) fn new<R: Into<Response>>(
        max_threads: usize,
        function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    ) -> Workers {
        Workers(Arc::new(Pool {
            max_threads,
            function: Box::new(move |request, context| function(request, context).map(Into::into)),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Runs a task on a thread. Without any thread, the task is dropped, which sends an error reply to its client.
    pub(crate) fn run(&self, task: Task) {
        let pool = &self.0;
        let mut state = pool.lock();
        state.tasks.push_back(task);
        let mut dropped = VecDeque::new();
        if state.tasks.len() > pool.max_threads {
            // The machine limits the wanted tasks; cancelled ones must not pile up.
            let tasks = mem::take(&mut state.tasks).into_iter();
            (dropped, state.tasks) = tasks.partition(|task| task.context.is_cancelled());
        }
        if state.tasks.len() > state.idle && state.threads < pool.max_threads {
            let worker = Arc::clone(pool);
            let thread = thread::Builder::new().name("everlink-task".into());
            if thread.spawn(move || worker.run_thread()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                dropped.append(&mut state.tasks);
            }
        }
        drop(state);
        pool.changed.notify_one();
        // Dropping a task queues a command for the server, which must not happen under the lock.
        drop(dropped);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let tasks = mem::take(&mut state.tasks);
        drop(state);
        self.0.changed.notify_all();
        drop(tasks);
    }
}

impl Pool {
    /// Runs tasks until the thread has been idle for [`IDLE_TIMEOUT`] or the pool is closed.
    fn run_thread(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            if let Some(task) = state.tasks.pop_front() {
                drop(state);
                self.run_task(task);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE_TIMEOUT);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.tasks.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    fn run_task(&self, task: Task) {
        let Task {
            request,
            context,
            answer,
        } = task;
        // A task that was cancelled before its turn is not run. If its function panics, dropping the answer sends an error reply to the client.
        if !context.is_cancelled() {
            let guarded = AssertUnwindSafe(|| (self.function)(request, context));
            if let Ok(response) = catch_unwind(guarded) {
                answer.respond(response);
            }
        }
    }

    /// Locks the state and ignores poisoning: the function runs outside of the lock, so no panic leaves the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
